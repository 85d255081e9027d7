//! Tests that the dashboard's Cluster page reports a slow node.

use super::support::server::signal;
use super::*;

const SETTINGS: &str = "management.address = \"127.0.0.1:0\"\nmanagement.dashboard = true\n";

/// Returns the address of the management API and the dashboard.
fn management(server: &Server) -> String {
    server.says("\"message\":\"management\"");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("\"message\":\"management\"")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    line["address"].as_str().unwrap().to_owned()
}

/// Returns the JSON form of the page.
fn page(ui: &str, cookie: &str) -> Value {
    let mut client = Client::connect(ui).unwrap();
    client.get("/ui/cluster.json", &[("cookie", cookie)]).unwrap().json()
}

#[test]
fn a_slow_node_is_named_on_the_page_of_the_cluster() {
    let cluster = Cluster::with("200ms", SETTINGS, 50_000, HALF_AN_HOUR);
    let servers = cluster.start_both();
    let ui = management(&servers[0]);
    let mut client = Client::connect(&ui).unwrap();
    let answer = client.post("/ui/login", &[], &format!("token={TOKEN}")).unwrap();
    let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();

    let ask_for = |time: Duration, tag: &str| {
        let mut client = servers[0].client();
        let until = Instant::now() + time;
        let mut round = 0;
        while Instant::now() < until {
            cluster.ask(&mut client, &format!("{tag}-{round}"));
            round += 1;
        }
    };
    ask_for(Duration::from_secs(7), "well");
    let well = page(&ui, &cookie);
    let node = &well["other_nodes"][0];
    assert_eq!(node["node"], "b", "{well}");
    assert!(node["requests"].as_u64().unwrap() > 0, "{well}");

    // Node b runs only part of the time, as on an overloaded machine.
    let pid = servers[1].pid();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let slow = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                signal(pid, "STOP");
                sleep(Duration::from_millis(90));
                signal(pid, "CONT");
                // Node b runs only briefly each time. Otherwise, a fast machine would answer so
                // many requests that fewer than one in a hundred would be slow.
                sleep(Duration::from_millis(2));
            }
        });
        let until = Instant::now() + PATIENCE;
        let mut seen = Value::Null;
        while Instant::now() < until {
            ask_for(Duration::from_secs(1), "slow");
            seen = page(&ui, &cookie);
            if seen["other_nodes"][0]["state"] != "✔ answers" {
                break;
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        seen
    });
    let node = &slow["other_nodes"][0];
    assert!(["▲ slow", "✖ not answering"].iter().any(|state| node["state"] == *state), "{slow}");
    let mut client = Client::connect(&ui).unwrap();
    let html = client.get("/ui/cluster", &[("cookie", &cookie)]).unwrap().body;
    assert!(html.contains("Check "), "{html}");
}

#[test]
fn a_node_names_the_node_that_has_the_figures_of_a_pool() {
    let settings =
        "management.address = \"127.0.0.1:0\"\ndirectory.database = \"sqlite:p.sqlite\"\n";
    let cluster = Cluster::with("5s", settings, 10, HALF_AN_HOUR);
    let servers = cluster.start_both();
    let pool = (1..=POOLS).find(|pool| Cluster::owner(*pool) == 1).unwrap();
    let mut client = Client::connect(&management(&servers[0])).unwrap();
    let token = format!("Bearer {TOKEN}");
    for figures in ["sizing", "state"] {
        let path = format!("/v1/pools/{pool}/{figures}");
        let answer = client.get(&path, &[("authorization", &token)]).unwrap();
        assert_eq!(answer.status, 503, "{}", answer.body);
        let named = format!("node \\\"b\\\" serves ring pool {pool}");
        assert!(answer.body.contains(&named), "{}", answer.body);
    }
}
