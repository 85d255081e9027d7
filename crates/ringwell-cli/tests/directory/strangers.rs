//! Clients at the management address that never present a valid token.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ringwell_store::Role;

use super::rig::Rig;
use super::support::server::Server;
use super::support::site::{Pool, TOKEN};
use super::{LONG, Managed, management, management_address};

/// The server's time limit for a request head is 10 s. The additional time allows for a busy
/// machine.
const BOUND: Duration = Duration::from_secs(28);

/// Sends bytes, and reads the answer until the server closes the connection.
fn converse(server: &Server, bytes: &[u8]) -> (String, Duration) {
    let start = Instant::now();
    let mut stream = TcpStream::connect(management_address(server)).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    // The error is ignored, because the server may close the connection before it has read
    // everything.
    let _ = stream.write_all(bytes);
    let mut got = Vec::new();
    let mut part = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut part) {
        got.extend_from_slice(&part[..len]);
    }
    (String::from_utf8_lossy(&got).into_owned(), start.elapsed())
}

#[test]
fn unauthenticated_clients_that_are_silent_slow_or_long_are_disconnected_while_management_continues()
 {
    let managed = Managed::new(Rig::sqlite(), vec![Pool::new(1, 2, LONG)]);
    let server = managed.start();
    let head = "GET /v1/pools HTTP/1.1\r\nhost: x\r\n";
    let idle: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(management_address(&server)).unwrap()).collect();
    let token = format!("Bearer {TOKEN}");
    let beside = management(&server).get("/v1/pools", &[("authorization", &token)]).unwrap();
    assert_eq!(beside.status, 200, "{}", beside.body);
    std::thread::scope(|scope| {
        for (bytes, status) in [
            (String::new(), ""),
            (head.to_owned(), ""),
            (format!("{head}a: {}\r\n\r\n", "x".repeat(20_000)), "431"),
            (format!("{head}{}\r\n", "a: b\r\n".repeat(70)), "431"),
        ] {
            let server = &server;
            scope.spawn(move || {
                let (got, took) = converse(server, bytes.as_bytes());
                assert!(took < BOUND, "{took:?}: {}", &bytes[..bytes.len().min(60)]);
                let first = got.lines().next().unwrap_or_default();
                assert!(first.contains(status) && !first.contains("200"), "{first}");
            });
        }
    });
    drop(idle);
    server.stop();
}

/// Returns the value of the `Authorization` header with the tests' token.
fn token() -> String {
    format!("Bearer {TOKEN}")
}

/// Silent clients used to occupy all connections, so that other clients waited until the silent
/// ones timed out.
#[test]
fn silent_clients_are_displaced_by_each_other_and_by_those_with_a_token() {
    let managed = Managed::new(Rig::sqlite(), vec![Pool::new(1, 2, LONG)]);
    let server = managed.start();
    let token = token();
    let headers = [("authorization", token.as_str())];
    let mut known = management(&server);
    assert_eq!(known.get("/v1/pools", &headers).unwrap().status, 200);
    let start = Instant::now();
    let silent: Vec<TcpStream> =
        (0..600).map(|_| TcpStream::connect(management_address(&server)).unwrap()).collect();
    let beside = management(&server).get("/v1/pools", &headers).unwrap();
    assert_eq!(beside.status, 200, "{}", beside.body);
    assert_eq!(known.get("/v1/pools", &headers).unwrap().status, 200, "it is still open");
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    drop(silent);
    server.stop();
}

#[test]
fn unauthenticated_clients_with_too_many_requests_take_nothing_from_those_with_a_token() {
    let managed = Managed::with(
        Rig::sqlite(),
        vec![Pool::new(1, 2, LONG)],
        "management.address = \"127.0.0.1:0\"\nmanagement.requests_per_second = 20",
    );
    let server = managed.start();
    let token = token();
    let (made, text) = managed
        .change(async |change| change.create_token("t", Role::Read, None, [9; 40]).await)
        .map(|(grant, token)| (grant, format!("Bearer {}", token.reveal())))
        .unwrap();
    let guess = format!("Bearer rw_{}_guess", made.id);
    let mut refused = 0;
    for _ in 0..60 {
        let mut stranger = management(&server);
        let answer = stranger.get("/v1/pools", &[("authorization", &guess)]).unwrap();
        refused += u32::from(answer.status == 429);
        assert!([401, 429].contains(&answer.status), "{}", answer.body);
    }
    assert!(refused > 10, "{refused}");
    for known in [&token, &text] {
        let answer = management(&server).get("/v1/pools", &[("authorization", known)]).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    server.stop();
}

/// Requests with other host names must be refused: if an attacker makes a page's host name resolve
/// to this machine, the page's requests still contain that name.
#[test]
fn a_loopback_address_accepts_no_other_host_name_and_no_answer_may_be_cached() {
    let managed = Managed::with(
        Rig::sqlite(),
        vec![Pool::new(1, 2, LONG)],
        "management.address = \"127.0.0.1:0\"\nmanagement.hosts = [\"admin.example\"]",
    );
    let server = managed.start();
    let ask = |target: &str, host: &str| {
        let more = format!("authorization: {}\r\nconnection: close\r\n", token());
        let text = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n{more}\r\n");
        converse(&server, text.as_bytes()).0
    };
    for host in ["localhost", "127.0.0.1:8081", "[::1]:8081", "admin.example:8081"] {
        assert!(ask("/v1/pools", host).contains("200 OK"), "{host}");
    }
    for host in ["evil.example", "evil.example:8081", "10.0.0.1", ""] {
        assert!(ask("/v1/pools", host).contains("421 Misdirected"), "{host}");
    }
    assert!(ask("http://evil.example/v1/pools", "localhost").contains("421 Misdirected"));
    for (target, host) in [
        ("/v1/pools", "localhost"),
        ("/v1/pools", "evil.example"),
        ("/v1/pools.csv", "localhost"),
        ("/v1/openapi.json", "localhost"),
        ("/nothing", "localhost"),
        ("/api/2013-07-01/7/advertisers/1/advertiser_campaigns/1/ring_pools.json", "localhost"),
    ] {
        let answer = ask(target, host);
        assert!(answer.contains("cache-control: no-store\r\n"), "{target}: {answer}");
        assert!(answer.contains("x-content-type-options: nosniff\r\n"), "{target}: {answer}");
    }
    server.stop();
}

/// The published API allows a token in the body, so the server must read the body before it can
/// authenticate the sender.
#[test]
fn bodies_of_unauthenticated_clients_stay_within_their_memory_limit() {
    let managed = Managed::with(
        Rig::sqlite(),
        vec![Pool::new(1, 2, LONG)],
        "management.address = \"127.0.0.1:0\"\nlimits.bodies_bytes = \"1MiB\"",
    );
    let server = managed.start();
    let path = "/api/2013-07-01/7/advertisers/1/advertiser_campaigns/1/ring_pools.json";
    let part = vec![b'x'; 3 << 20];
    let stalled = |_| {
        let mut stream = TcpStream::connect(management_address(&server)).unwrap();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000000\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let _ = stream.write_all(&part);
        stream
    };
    // The memory limit is 32 MiB, the maximum length of a list of pools. Ten of these bodies fit,
    // but no more.
    let mut open: Vec<TcpStream> = (0..16).map(stalled).collect();
    let mut refused = 0;
    for stream in &mut open {
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut answer = [0; 512];
        let Ok(bytes) = stream.read(&mut answer) else { continue };
        let answer = String::from_utf8_lossy(&answer[..bytes]);
        assert!(answer.contains("503") && answer.contains("retry-after: 1"), "{answer}");
        refused += 1;
    }
    assert!(refused >= 5, "{refused}");
    let token = token();
    let beside = management(&server).get("/v1/pools", &[("authorization", &token)]).unwrap();
    assert_eq!(beside.status, 200, "{}", beside.body);
    drop(open);
    server.stop();
}

#[test]
fn an_end_that_can_be_seen_in_two_ways_ends_the_connection() {
    let managed = Managed::new(Rig::sqlite(), vec![Pool::new(1, 2, LONG)]);
    let server = managed.start();
    let smuggled = "GET /v1/pools HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for path in ["/v1/pools", "/v1/numbers", "/nothing"] {
        let text = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\n\
             transfer-encoding: chunked\r\n\r\n0\r\n\n{smuggled}",
            token()
        );
        let (got, _) = converse(&server, text.as_bytes());
        assert_eq!(got.matches("HTTP/1.1 ").count(), 1, "{got}");
        assert!(got.contains("connection: close"), "{got}");
    }
    server.stop();
}

#[test]
fn an_ordinary_file_in_the_place_of_the_socket_stays() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("admin.sock");
    let at = format!("management.address = \"unix:{}\"", path.display());
    let managed = Managed::with(Rig::sqlite(), vec![Pool::new(1, 2, LONG)], &at);
    std::fs::write(&path, "precious").unwrap();
    let refused = Server::try_start(managed.site.serve(&[])).unwrap_err();
    assert!(refused.log.contains("cannot listen on unix:"), "{}", refused.log);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
    // The server replaces a killed server's socket, but not a running server's socket.
    managed.start().kill();
    let server = managed.start();
    assert!(Server::try_start(managed.site.serve(&["--data", "elsewhere"])).is_err());
    server.stop();
}
