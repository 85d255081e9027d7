//! Tests that the dashboard's Cluster page reports a slow node.

use super::support::server::signal;
use super::*;

const SETTINGS: &str = "management.address = \"127.0.0.1:0\"\nmanagement.dashboard = true\n";

/// Returns the JSON form of the page.
fn page(ui: &str, cookie: &str) -> Value {
    let mut client = Client::connect(ui).unwrap();
    client.get("/ui/cluster.json", &[("cookie", cookie)]).unwrap().json()
}

#[test]
fn a_slow_node_is_named_on_the_page_of_the_cluster() {
    let cluster = Cluster::with("200ms", SETTINGS, 50_000, HALF_AN_HOUR);
    let servers = cluster.start_both();
    servers[0].says("\"message\":\"management\"");
    let log = servers[0].log();
    let line = log.lines().find(|line| line.contains("\"message\":\"management\"")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    let ui = line["address"].as_str().unwrap().to_owned();
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
