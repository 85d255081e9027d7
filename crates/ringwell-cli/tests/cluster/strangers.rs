//! Connections from outside the cluster, and connections that do not follow the links' protocol.

use super::*;

#[test]
fn a_client_without_the_secret_gets_nothing_and_does_no_harm() {
    let cluster = Cluster { deadline: "1s", ..Cluster::new(40, HALF_AN_HOUR) };
    cluster.write_map("stranger.toml", 1, "another-secret-of-16", [&[0], &[1]]);
    let servers = [cluster.start(0), Server::start(cluster.command(1, "stranger.toml"))];
    let rows = cluster.ask(&mut servers[0].client(), "a");
    for (pool, row) in (1..).zip(&rows) {
        assert_eq!(row.overflow, Cluster::owner(pool) == 1, "{row:?}");
    }
    servers[1].says("the cluster's secret is missing or wrong");
    for server in servers {
        let log = server.stop();
        assert!(!log.contains(SECRET) && !log.contains("another-secret"), "{log}");
    }
}

/// The server used to log a warning for each connection, which filled a disk at 18 MB per second.
#[test]
fn many_clients_without_the_secret_are_counted_closed_and_logged_once_a_second() {
    let cluster = Cluster::new(40, HALF_AN_HOUR);
    let server = cluster.start(0);
    let begun = Instant::now();
    for guess in 0..500 {
        let mut link = Client::connect(&format!("127.0.0.1:{}", cluster.port)).unwrap();
        let authorization = format!("Bearer guess-{guess}");
        let headers = [("authorization", authorization.as_str())];
        let headers = if guess == 0 { &[][..] } else { &headers };
        assert_eq!(link.post("/link/v1/rows", headers, "").unwrap().status, 401);
        assert!(link.post("/link/v1/rows", headers, "").is_err(), "it is closed");
    }
    let lines = server.log().matches("request was refused").count() as u64;
    assert!((1..=begun.elapsed().as_secs() + 2).contains(&lines), "{lines} lines");
    assert_eq!(metrics::sum(&server, "ringwell_links_refused_total"), 500);
    server.stop();
}

/// Returns the number of a process's open sockets.
fn sockets(pid: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

/// Clients that had not yet presented a certificate used to be exempt from the limit on
/// connections.
#[test]
fn connections_without_a_handshake_use_no_more_descriptors_than_others() {
    let cluster = Cluster::new(40, HALF_AN_HOUR);
    certificates(cluster.folder.path(), "ours");
    let plain = fs::read_to_string(cluster.path("cluster.toml")).unwrap();
    let tls =
        "[tls]\nca = \"ours.pem\"\ncertificate = \"ours-{node}.pem\"\nkey = \"ours-{node}.key\"\n";
    fs::write(cluster.path("tls.toml"), format!("{plain}{tls}")).unwrap();
    let config = cluster.sites[0].config();
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("limits.connections = 20\n{text}")).unwrap();
    let server = Server::start(cluster.command(0, "tls.toml"));
    let before = sockets(server.pid());
    let address = format!("127.0.0.1:{}", cluster.port);
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    // The last connection was refused, so all earlier ones have been accepted.
    silent[99].set_read_timeout(Some(PATIENCE)).unwrap();
    assert!((&silent[99]).read(&mut [0]).is_ok_and(|bytes| bytes == 0));
    assert!(sockets(server.pid()) <= before + 20, "{} sockets", sockets(server.pid()));
    drop(silent);
    server.stop();
}

#[test]
fn a_link_accepts_only_valid_frames() {
    let cluster = Cluster::new(40, HALF_AN_HOUR);
    let server = cluster.start(0);
    let mut link = Client::connect(&format!("127.0.0.1:{}", cluster.port)).unwrap();
    let authorization = format!("Bearer {SECRET}");
    let known = [("authorization", authorization.as_str())];
    let mut status = |path: &str, headers: &[(&str, &str)], body: &str| {
        link.post(path, headers, body).unwrap().status
    };
    for path in ["/link/v1/rows", "/link/v1/unanswered", "/link/v1/ping"] {
        for body in ["", "\u{1}", "\u{1}\u{1}\u{0}", "{\"requests\":[]}"] {
            let status = status(path, &known, body);
            assert!([400, 426].contains(&status), "{path} {body:?}: {status}");
        }
    }
    assert_eq!(status("/link/v1/rows", &known, "\u{7}\u{1}"), 426, "of another version");
    assert_eq!(status("/link/v1/ping", &known, "\u{1}\u{4}\u{5}"), 404, "of another node");
    assert_eq!(status("/link/v2/rows", &known, ""), 404);
    assert_eq!(status("/link/v1/release", &known, "{}"), 400);
    // The address for clients does not serve links, and the link's address serves nothing else.
    assert_eq!(
        server.client().post("/link/v1/ping", &known, "\u{1}\u{4}\u{0}").unwrap().status,
        404
    );
    assert_eq!(link.get("/metrics", &known).unwrap().status, 405);
}

#[test]
fn no_value_of_a_body_that_a_link_refuses_is_logged() {
    let cluster = Cluster::new(40, HALF_AN_HOUR);
    let server = cluster.start(0);
    let mut link = Client::connect(&format!("127.0.0.1:{}", cluster.port)).unwrap();
    let authorization = format!("Bearer {SECRET}");
    let known = [("authorization", authorization.as_str())];
    let body = r#"{"shard":0,"number":"8885551234","allocated_at":"8885551234"}"#;
    let refused = link.post("/link/v1/release", &known, body).unwrap();
    assert_eq!(refused.status, 400);
    let log = server.stop();
    assert!(log.contains("request was refused"), "{log}");
    assert!(!log.contains("8885551234"), "{log}");
}

/// Starts a server that answers every request with the same bytes, which no node would send.
fn nonsense(answer: &'static [u8]) -> (u16, std::sync::mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, closed) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, sender) = (stream.unwrap(), sender.clone());
            thread::spawn(move || {
                let mut bytes = vec![0; 65536];
                while stream.read(&mut bytes).is_ok_and(|count| count > 0) {
                    if stream.write_all(answer).is_err() {
                        break;
                    }
                }
                let _ = sender.send(());
            });
        }
    });
    (port, closed)
}

#[test]
fn a_nonsensical_answer_costs_the_connection_and_the_rows_of_its_node() {
    let answers: [&[u8]; 4] = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"no\":1}\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n\x01\x02\x00\x00\x00",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ];
    for answer in answers {
        let cluster = Cluster { deadline: "1s", ..Cluster::new(40, HALF_AN_HOUR) };
        let (port, closed) = nonsense(answer);
        let map = fs::read_to_string(cluster.path("cluster.toml")).unwrap();
        let own = format!("unix:{}", cluster.path("b.link").display());
        let map = map.replace(&own, &format!("127.0.0.1:{port}"));
        fs::write(cluster.path("cluster.toml"), map).unwrap();
        let server = cluster.start(0);
        let rows = cluster.ask(&mut server.client(), "x");
        for (pool, row) in (1..).zip(&rows) {
            assert_eq!(row.overflow, Cluster::owner(pool) == 1, "{row:?}");
        }
        closed.recv_timeout(PATIENCE).expect("the connection is closed");
        server.stop();
    }
}

fn openssl(folder: &Path, arguments: &[&str]) {
    let mut openssl = Command::new("openssl");
    let done = openssl.current_dir(folder).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/// Creates a certificate authority `NAME.pem`, and certificates for both nodes, signed by this
/// authority.
fn certificates(folder: &Path, authority: &str) {
    let [pem, key] = ["pem", "key"].map(|kind| format!("{authority}.{kind}"));
    let subject = format!("/CN={authority}");
    let new = ["req", "-x509", "-days", "2", "-subj", &subject, "-keyout", &key, "-out", &pem];
    openssl(folder, &[&new[..], &KEY].concat());
    for node in NAMES {
        let [own, own_key] = ["pem", "key"].map(|kind| format!("{authority}-{node}.{kind}"));
        let (subject, name) = (format!("/CN={node}"), format!("subjectAltName=DNS:{node}"));
        let ask =
            ["req", "-subj", &subject, "-addext", &name, "-keyout", &own_key, "-out", "ask.csr"];
        openssl(folder, &[&ask[..], &KEY].concat());
        let sign = ["x509", "-req", "-in", "ask.csr", "-CA", &pem, "-CAkey", &key, "-days", "2"];
        let more = ["-CAcreateserial", "-copy_extensions", "copy", "-out", &own];
        openssl(folder, &[&sign[..], &more].concat());
    }
}

#[test]
fn links_over_tcp_require_a_certificate_of_the_cluster_if_it_has_any() {
    let cluster = Cluster { deadline: "2s", ..Cluster::new(40, HALF_AN_HOUR) };
    let folder = cluster.folder.path();
    for authority in ["ours", "theirs"] {
        certificates(folder, authority);
    }
    let plain = fs::read_to_string(cluster.path("cluster.toml")).unwrap();
    for (map, authority, own) in [
        ("tls.toml", "ours", "ours"),
        ("other.toml", "theirs", "theirs"),
        ("mixed.toml", "ours", "theirs"),
    ] {
        let tls = format!(
            "[tls]\nca = \"{authority}.pem\"\ncertificate = \"{own}-{{node}}.pem\"\n\
             key = \"{own}-{{node}}.key\"\n"
        );
        fs::write(cluster.path(map), format!("{plain}{tls}")).unwrap();
    }
    // Node b sends its rows to node a over TCP.
    let first = Server::start(cluster.command(0, "tls.toml"));
    let second = Server::start(cluster.command(1, "tls.toml"));
    let rows = cluster.ask(&mut second.client(), "tls");
    assert!(rows.iter().all(|row| !row.overflow), "{rows:?}");
    second.stop();
    for map in ["cluster.toml", "other.toml", "mixed.toml"] {
        let stranger = Server::start(cluster.command(1, map));
        let rows = cluster.ask(&mut stranger.client(), map);
        for (pool, row) in (1..).zip(&rows) {
            assert_eq!(row.overflow, Cluster::owner(pool) == 0, "{map}: {row:?}");
        }
        if map == "other.toml" {
            stranger.says("this node refuses the certificate of another node");
        }
        stranger.stop();
    }
    first.says("only nodes with a certificate of this cluster can connect");
    // The server does not read the secret on a connection without TLS.
    let mut link = Client::connect(&format!("127.0.0.1:{}", cluster.port)).unwrap();
    let authorization = format!("Bearer {SECRET}");
    assert!(link.post("/link/v1/ping", &[("authorization", &authorization)], "").is_err());

    // Node a presents node b's certificate, which lacks node a's name.
    first.stop();
    let unnamed = "[tls]\nca = \"ours.pem\"\ncertificate = \"ours-b.pem\"\nkey = \"ours-b.key\"\n";
    fs::write(cluster.path("unnamed.toml"), format!("{plain}{unnamed}")).unwrap();
    let unnamed = Server::start(cluster.command(0, "unnamed.toml"));
    let second = Server::start(cluster.command(1, "tls.toml"));
    let rows = cluster.ask(&mut second.client(), "unnamed");
    assert!(rows.iter().any(|row| row.overflow), "{rows:?}");
    second.says("this node refuses the certificate of another node");
    second.says("certificate not valid for name");
    unnamed.says("the other node refused this node's certificate");
    unnamed.stop();
    second.stop();

    let missing = plain + "[tls]\nca = \"ours.pem\"\ncertificate = \"no.pem\"\nkey = \"no.key\"\n";
    fs::write(cluster.path("missing.toml"), missing).unwrap();
    let refused = Server::try_start(cluster.command(1, "missing.toml")).unwrap_err();
    assert!(refused.log.contains("no.pem"), "{}", refused.log);
}

#[test]
fn the_certificates_of_links_change_with_their_files() {
    let cluster = Cluster { deadline: "2s", ..Cluster::new(40, HALF_AN_HOUR) };
    let folder = cluster.folder.path();
    for authority in ["first", "next"] {
        certificates(folder, authority);
    }
    let show = |authority: &str, of: &str| {
        for kind in ["pem", "key"] {
            let file = |name: &str| folder.join(format!("{name}{of}.{kind}"));
            fs::copy(file(authority), file("ours")).unwrap();
        }
    };
    for of in ["", "-a", "-b"] {
        show("first", of);
    }
    let plain = fs::read_to_string(cluster.path("cluster.toml")).unwrap();
    let tls =
        "[tls]\nca = \"ours.pem\"\ncertificate = \"ours-{node}.pem\"\nkey = \"ours-{node}.key\"\n";
    fs::write(cluster.path("tls.toml"), format!("{plain}{tls}")).unwrap();
    let servers = [0, 1].map(|node| Server::start(cluster.command(node, "tls.toml")));
    // Node b sends its rows to node a over TCP.
    let is_served = |which: &str| {
        let rows = cluster.ask(&mut servers[1].client(), which);
        rows.iter().all(|row| !row.overflow)
    };
    assert!(is_served("before"));
    // The certificate authority and node a's certificate change first, so that node b's certificate
    // is no longer accepted.
    show("next", "-a");
    show("next", "");
    servers[0].says("the certificates of links were reloaded");
    servers[1].says("cannot reload the certificates of links");
    servers[0].says("the other node's certificate is no longer valid");
    let until = Instant::now() + PATIENCE;
    while is_served("between") {
        assert!(Instant::now() < until, "{}", servers[0].log());
        thread::sleep(Duration::from_millis(200));
    }
    show("next", "-b");
    servers[1].says("the certificates of links were reloaded");
    let until = Instant::now() + PATIENCE;
    while !is_served("after") {
        assert!(Instant::now() < until, "{}", servers[1].log());
        thread::sleep(Duration::from_millis(200));
    }
    for server in servers {
        server.stop();
    }
}
