//! Tests the configurations in `deploy/` with the programs that they are written for.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use support::batch;
use support::client::Client;
use support::server::Server;
use support::site::{Pool, Site, TOKEN};
use tempfile::TempDir;

fn deploy(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    fs::read_to_string(path).unwrap()
}

/// Returns the contents of a file in a `ConfigMap`: the lines below the file's name that are
/// indented by four spaces.
fn embedded(manifest: &str, name: &str) -> String {
    let head = format!("  {name}: |");
    let lines = manifest.lines().skip_while(|line| *line != head).skip(1);
    let is_inside = |line: &&str| line.is_empty() || line.starts_with("    ");
    lines.take_while(is_inside).fold(String::new(), |text, line| text + line.trim_start() + "\n")
}

#[test]
fn the_kubernetes_manifest_configures_both_of_its_nodes() {
    let manifest = deploy("kubernetes.yaml");
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let config = embedded(&manifest, "ringwell.toml").replace("change-me-", "of-the-tests-");
    fs::write(path("ringwell.toml"), config).unwrap();
    let cluster = embedded(&manifest, "cluster.toml").replace("/etc/ringwell-secret/", "");
    fs::write(path("cluster.toml"), cluster).unwrap();
    fs::write(path("cluster.secret"), "a-secret-of-the-tests\n").unwrap();
    for (node, code) in [("ringwell-0", 0), ("ringwell-1", 0), ("ringwell-2", 1)] {
        let output = Command::new(env!("CARGO_BIN_EXE_ringwell"))
            .args(["serve", "--check", "--config", &path("ringwell.toml")])
            .args(["--cluster", &path("cluster.toml"), "--node", node])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{node}: {said}");
    }
    assert!(manifest.contains("replicas: 2\n"), "as many as there are nodes");
}

#[test]
fn the_unit_checks_the_configuration_that_it_serves() {
    let unit = deploy("ringwell.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    assert_eq!(value("ExecStartPre="), format!("{} --check", value("ExecStart=")));
}

/// A process that is killed when the test ends.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn one_address_serves_allocation_and_ring_pools_through_haproxy() {
    one_address("haproxy", "", "one-address.cfg", &["-f"]);
}

#[test]
fn one_address_serves_allocation_and_ring_pools_through_caddy() {
    // Caddy's admin endpoint is disabled, because its address may already be in use.
    let options = "{\n\tadmin off\n\tdefault_bind 127.0.0.1\n}\n";
    let arguments = ["run", "--adapter", "caddyfile", "--config"];
    one_address("caddy", options, "one-address.Caddyfile", &arguments);
}

/// Starts a proxy with `options` and the named configuration, and sends requests of all kinds to
/// its address.
fn one_address(proxy: &str, options: &str, config: &str, arguments: &[&str]) {
    let Some(proxy) = program(proxy) else { return };
    let pool = Pool::new(1, 5, Duration::from_mins(1));
    let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (proxy_port, management_port) = (port(), port());
    let settings = format!(
        "management.address = \"127.0.0.1:{management_port}\"\n\
         [directory]\ndatabase = \"sqlite:directory.sqlite\""
    );
    let site = Site::new(vec![pool.clone()], &settings);
    let server = Server::start(site.serve(&[]));
    let address = format!("127.0.0.1:{proxy_port}");
    let config = deploy(config)
        // The address in Caddy's configuration must not contain a host. Otherwise, Caddy would
        // answer only requests for that host.
        .replace("http://:8000", &format!("http://:{proxy_port}"))
        .replace(":8000", &address)
        .replace("127.0.0.1:8080", server.address())
        .replace("127.0.0.1:8081", &format!("127.0.0.1:{management_port}"));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("config");
    fs::write(&file, [options, &config].concat()).unwrap();
    let mut command = Command::new(proxy);
    command.args(arguments).arg(&file).env("HOME", folder.path());
    let _proxy = Proxy(command.spawn().unwrap());
    let mut client = connect(&address);
    assert_eq!(batch::one(&mut client, &pool, "a").number, pool.first);
    let pools = "/api/2013-07-01/1/advertisers/7/advertiser_campaigns/8/ring_pools";
    let made = format!("{pools}/spring.json");
    let made = client.post(&made, &[("authorization", TOKEN)], "{\"name\":\"Spring\"}").unwrap();
    assert_eq!(made.status, 201, "{}", made.body);
    let list = client.get(&format!("/{pools}.json"), &[("authorization", TOKEN)]).unwrap();
    assert_eq!(list.status, 200, "{}", list.body);
    assert_eq!(client.get("/v1/pools", &[("authorization", TOKEN)]).unwrap().status, 404);
    assert_eq!(client.get("/rw.js", &[]).unwrap().status, 200);
    // This answer comes from the server, not from the proxy.
    let answer = client.post("/site/v1/numbers", &[], "{}").unwrap();
    assert!(answer.body.contains("the site key is unknown"), "{}", answer.body);
    server.stop();
}

/// Connects to a proxy that has just been started.
fn connect(address: &str) -> Client {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match Client::connect(address) {
            Ok(client) => return client,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn haproxy_finds_the_machine_that_serves_among_its_standbys() {
    let Some(proxy) = program("haproxy") else { return };
    let pool = Pool::new(1, 5, Duration::from_mins(1));
    let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let [first, second] = [(); 2].map(|()| Site::new(vec![pool.clone()], ""));
    // Nothing listens at the address of the first machine, as on a standby.
    let server = Server::start(first.serve(&[]));
    let [standby, address] = [(); 2].map(|()| format!("127.0.0.1:{}", port()));
    let config = deploy("nats/haproxy.cfg")
        .replace(":8000", &address)
        .replace("10.0.0.1:8080", &standby)
        .replace("10.0.0.2:8080", server.address())
        .replace("10.0.0.", "127.0.0.");
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("haproxy.cfg");
    fs::write(&file, config).unwrap();
    let _proxy = Proxy(Command::new(proxy).arg("-f").arg(&file).spawn().unwrap());
    let number = || batch::one(&mut connect(&address), &pool, "a").number;
    assert_eq!(number(), pool.first);
    assert_eq!(connect(&address).get("/metrics", &[]).unwrap().status, 404);
    server.stop();
    let server = Server::start(second.serve(&["--listen", &standby]));
    thread::sleep(Duration::from_secs(1));
    assert_eq!(number(), pool.first);
    server.stop();
}

/// Returns the names of the metrics in a monitoring file, without the suffixes of counters and
/// histograms.
fn metrics_of(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let names = text.split(|c: char| !is_part(c)).filter(|word| word.starts_with("ringwell_"));
    // Link metrics are omitted, because links exist only in a cluster.
    let names = names.filter(|name| !name.starts_with("ringwell_link_"));
    names.map(|name| name.trim_end_matches("_total").trim_end_matches("_bucket")).collect()
}

fn program(name: &str) -> Option<String> {
    let places = ["/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin"];
    let places = places.map(|folder| format!("{folder}/{name}"));
    places.into_iter().find(|place| Path::new(place).is_file())
}

#[test]
fn alerts_fire_when_they_should() {
    // CI installs promtool. On other machines, it may be missing.
    let Some(promtool) = program("promtool") else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus");
    for words in [["check", "rules", "ringwell.rules.yml"], ["test", "rules", "ringwell.test.yml"]]
    {
        let output = Command::new(&promtool).args(words).current_dir(&folder).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}

/// Queries Prometheus's API, and returns the answer's data.
fn asked(address: &str, path: &str) -> Option<serde_json::Value> {
    // Uses curl, because long answers are chunked, which this project's test client does not
    // support.
    let mut curl = Command::new("curl");
    let output = curl.args(["-sf", &format!("http://{address}{path}")]).output().ok()?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    output.status.success().then(|| answer["data"].clone())
}

#[test]
fn prometheus_scrapes_a_server_loads_the_alerts_and_understands_the_dashboard() {
    let Some(prometheus) = program("prometheus") else { return };
    let settings = "management.address = \"127.0.0.1:0\"\nmanagement.dashboard = true";
    let site = Site::new(vec![Pool::new(1, 4, Duration::from_mins(1))], settings);
    let server = Server::start(site.serve(&[]));
    batch::one(&mut server.client(), &site.pools[0], "1");
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("ringwell.rules.yml"), deploy("prometheus/ringwell.rules.yml"))
        .unwrap();
    let config = format!(
        "global: {{ scrape_interval: 200ms, evaluation_interval: 200ms }}\n\
         rule_files: [ringwell.rules.yml]\nscrape_configs:\n- job_name: ringwell\n  \
         static_configs: [{{ targets: ['{}'] }}]\n",
        server.address()
    );
    fs::write(folder.path().join("prometheus.yml"), config).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let mut command = Command::new(prometheus);
    command.arg(format!("--web.listen-address={address}")).arg("--config.file=prometheus.yml");
    command.arg("--storage.tsdb.path=data").current_dir(folder.path());
    command.stderr(fs::File::create(folder.path().join("log")).unwrap());
    let _prometheus = Proxy(command.spawn().unwrap());
    let until = Instant::now() + Duration::from_secs(30);
    let query = |expr: &str| {
        let expr = percent_encoding::utf8_percent_encode(expr, percent_encoding::NON_ALPHANUMERIC);
        asked(&address, &format!("/api/v1/query?query={expr}"))
    };
    let has_pools =
        || query("ringwell_ring_pools_in_trouble").is_some_and(|it| it["result"][0].is_object());
    while !has_pools() {
        let log = || fs::read_to_string(folder.path().join("log"));
        assert!(Instant::now() < until, "Prometheus has no metric: {:?}", log());
        thread::sleep(Duration::from_millis(100));
    }
    let dashboard: serde_json::Value =
        serde_json::from_str(&deploy("grafana/ringwell.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut count = 0;
    for target in targets {
        let expr = target["expr"].as_str().unwrap().replace("$instance", ".*");
        assert!(query(&expr).is_some(), "Prometheus does not understand {expr}");
        count += 1;
    }
    assert!(count >= 10, "{count}");
    // Every rule must be evaluated without an error.
    loop {
        let groups = asked(&address, "/api/v1/rules").unwrap_or_default();
        let groups = groups["groups"].as_array().cloned().unwrap_or_default();
        let rules: Vec<_> = groups.iter().flat_map(|it| it["rules"].as_array().unwrap()).collect();
        if rules.len() > 5 && rules.iter().all(|rule| rule["health"] == "ok") {
            break;
        }
        assert!(Instant::now() < until, "{rules:#?}");
        thread::sleep(Duration::from_millis(100));
    }
    drop(server);
    let is_down = || query("up").is_some_and(|it| it["result"][0]["value"][1] == "0");
    while !is_down() {
        assert!(Instant::now() < until, "Prometheus has not noticed the end");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn alerts_and_the_dashboard_of_grafana_name_metrics_that_there_are() {
    let settings = "management.address = \"127.0.0.1:0\"\nmanagement.dashboard = true";
    let site = Site::new(vec![Pool::new(1, 4, Duration::from_mins(1))], settings);
    let server = Server::start(site.serve(&[]));
    batch::one(&mut server.client(), &site.pools[0], "1");
    let until = Instant::now() + Duration::from_secs(20);
    let page = loop {
        let text = server.client().get("/metrics", &[]).unwrap().body;
        if text.contains("ringwell_ring_pools_in_trouble") {
            break text;
        }
        assert!(Instant::now() < until, "the pools were not examined: {text}");
        thread::sleep(Duration::from_millis(50));
    };
    for name in ["prometheus/ringwell.rules.yml", "grafana/ringwell.json"] {
        let text = deploy(name);
        let metrics = metrics_of(&text);
        assert!(metrics.len() > 5, "{name}: {metrics:?}");
        for metric in metrics.into_iter().filter(|metric| *metric != "ringwell_") {
            assert!(page.contains(&format!("# TYPE {metric} ")), "{name}: no {metric}");
        }
    }
    let dashboard: serde_json::Value =
        serde_json::from_str(&deploy("grafana/ringwell.json")).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() >= 8);
}

/// Returns `text` with each run of white space replaced by one space.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a rule's expression, and how long it must be true, as written in the guide.
fn condition(rule: &str) -> (String, Option<&str>) {
    let text = rule.split_once("expr: ").unwrap().1;
    let text = text.split_once("labels:").unwrap().0;
    let (expr, time) = match text.split_once("\n        for: ") {
        Some((expr, time)) => (expr, Some(time.trim())),
        None => (text, None),
    };
    (one_line(expr.trim_start_matches(">-")), time)
}

#[test]
fn the_guide_to_alerts_has_the_expressions_and_severities_of_the_rules() {
    let guide = deploy("../docs/guides/alerts.md");
    let rules = deploy("prometheus/ringwell.rules.yml");
    let mut rules: Vec<_> = rules.split("- alert: ").skip(1).collect();
    assert!(rules.len() > 10, "{}", rules.len());
    for row in guide.lines().filter(|line| line.contains("| `Ringwell")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let name = cells[2].trim_matches('`');
        let index = rules.iter().position(|rule| rule.lines().next() == Some(name));
        let index = index.unwrap_or_else(|| panic!("the rules have no {name}"));
        let rule = rules.remove(index);
        assert!(rule.contains("runbook_url: https://github.com/ringwell/ringwell/blob/main/docs/"));
        let (expr, time) = condition(rule);
        let time = time.map_or_else(String::new, |time| format!(" for {time}"));
        assert_eq!(cells[3], format!("`{expr}`{time}"), "{name}");
        assert!(rule.contains(&format!("severity: {} }}", cells[4])), "{name}: {}", cells[4]);
    }
    assert!(rules.is_empty(), "the guide lacks {rules:?}");
}

/// These alerts must also work on servers that read their pools from a file and have no dashboard.
#[test]
fn alerts_that_page_someone_need_no_dashboard() {
    let site = Site::new(vec![Pool::new(1, 1, Duration::from_mins(1))], "");
    let server = Server::start(site.serve(&[]));
    for visitor in ["1", "2"] {
        batch::one(&mut server.client(), &site.pools[0], visitor);
    }
    let page = server.client().get("/metrics", &[]).unwrap().body;
    assert!(page.contains("ringwell_pool_overflow_rows_total{pool=\"1\"} 1"), "{page}");
    let rules = deploy("prometheus/ringwell.rules.yml");
    let urgent = rules.split("- alert: ").filter(|rule| rule.contains("severity: page"));
    let text = urgent.collect::<String>();
    for metric in metrics_of(&text).into_iter().filter(|metric| *metric != "ringwell_") {
        assert!(page.contains(&format!("# TYPE {metric} ")), "no {metric}");
    }
}
