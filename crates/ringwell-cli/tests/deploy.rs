//! The files in `deploy/` that hold configurations of ours in other formats: they are read by the
//! real program.

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

/// The text of a file in a `ConfigMap`: the lines below its name that are indented by four.
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
fn the_unit_checks_what_it_then_serves() {
    let unit = deploy("ringwell.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    assert_eq!(value("ExecStartPre="), format!("{} --check", value("ExecStart=")));
}

/// Ends with the test.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn one_address_serves_allocation_and_ring_pools_through_haproxy() {
    let Some(haproxy) = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy", "/usr/bin/haproxy"]
        .into_iter()
        .find(|path| Path::new(path).is_file())
    else {
        return;
    };
    let pool = Pool::new(1, 5, Duration::from_mins(1));
    let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (proxy_port, management_port) = (port(), port());
    let settings = format!(
        "management.address = \"127.0.0.1:{management_port}\"\n\
         [directory]\ndatabase = \"sqlite:directory.sqlite\""
    );
    let site = Site::new(vec![pool.clone()], &settings);
    let server = Server::start(site.serve(&[]));
    let config = deploy("one-address.cfg")
        .replace(":8000", &format!("127.0.0.1:{proxy_port}"))
        .replace("127.0.0.1:8080", server.address())
        .replace("127.0.0.1:8081", &format!("127.0.0.1:{management_port}"));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("haproxy.cfg");
    fs::write(&file, config).unwrap();
    let _proxy = Proxy(Command::new(haproxy).arg("-f").arg(&file).spawn().unwrap());
    let until = Instant::now() + Duration::from_secs(20);
    let address = format!("127.0.0.1:{proxy_port}");
    let mut client = loop {
        match Client::connect(&address) {
            Ok(client) => break client,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(batch::one(&mut client, &pool, "a").number, pool.first);
    let pools = "/api/2013-07-01/1/advertisers/7/advertiser_campaigns/8/ring_pools";
    let made = format!("{pools}/spring.json");
    let made = client.post(&made, &[("authorization", TOKEN)], "{\"name\":\"Spring\"}").unwrap();
    assert_eq!(made.status, 201, "{}", made.body);
    let list = client.get(&format!("/{pools}.json"), &[("authorization", TOKEN)]).unwrap();
    assert_eq!(list.status, 200, "{}", list.body);
    assert_eq!(client.get("/v1/pools", &[("authorization", TOKEN)]).unwrap().status, 404);
    assert_eq!(client.get("/rw.js", &[]).unwrap().status, 200);
    // The server answers it, not the proxy.
    let answer = client.post("/site/v1/numbers", &[], "{}").unwrap();
    assert!(answer.body.contains("the site key is unknown"), "{}", answer.body);
    server.stop();
}

/// Metrics that files of monitoring name, without the suffixes of counters and histograms.
fn metrics_of(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let names = text.split(|c: char| !is_part(c)).filter(|word| word.starts_with("ringwell_"));
    // Links are there in a cluster alone.
    let names = names.filter(|name| !name.starts_with("ringwell_link_"));
    names.map(|name| name.trim_end_matches("_total").trim_end_matches("_bucket")).collect()
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
        assert!(Instant::now() < until, "nobody has looked at the pools: {text}");
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
