//! Lets `ringwell check` judge a node's answers while the other node hangs. The history records the
//! fault (`nem` lines), so that the checker accepts the overflow that it caused.

use std::fmt::Write as _;
use std::process::Stdio;

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use support::server::ringwell;

use super::*;

/// Returns the time in nanoseconds, on the clock that all processes of the machine share.
fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn fault(phase: &str) -> Value {
    json!({"k": "nem", "t": now_ns(), "what": "SIGSTOP", "node": "b", "phase": phase})
}

/// Formats the list of pools for `ringwell load`.
fn list(pools: &[Pool]) -> String {
    let mut list =
        "id,ring_pool_key,overflow_number,lifetime_seconds,first_number,numbers\n".to_owned();
    for Pool { id, key, first, numbers, overflow, lifetime } in pools {
        let lifetime = lifetime.as_secs();
        writeln!(list, "{id},{key},{overflow},{lifetime},{first},{numbers}").unwrap();
    }
    list
}

/// Runs `ringwell` with these arguments. Returns its output as JSON.
fn json_of(args: &[&str]) -> Value {
    let output = ringwell(args).stderr(Stdio::inherit()).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{args:?}: {output:?}"))
}

fn succeed(args: &[&str]) {
    let output = ringwell(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
}

#[test]
fn rows_of_a_hanging_node_overflow_with_a_cause_and_would_be_violations_without_the_fault() {
    let cluster = Cluster::quick("10s", 500, HALF_AN_HOUR);
    let [first, second] = cluster.start_both();
    let file = |name: &str| cluster.path(name).to_str().unwrap().to_owned();
    let [pools, history, faults, token] =
        ["pools.csv", "clients.jsonl", "faults.jsonl", "token"].map(file);
    fs::write(&pools, list(cluster.pools())).unwrap();
    fs::write(&token, TOKEN).unwrap();

    let begin = fault("begin");
    second.signal("STOP");
    let url = format!("http://{}", first.address());
    let flags = ["--rate", "50/s", "--rows", "8", "--duration", "2s", "--json"];
    let run = thread::scope(|scope| {
        let load = ["load", &url, "--pools", &pools, "--history", &history];
        let load = scope.spawn(move || json_of(&[&load[..], &flags].concat()));
        sleep(Duration::from_secs(1));
        second.signal("CONT");
        load.join().unwrap()
    });
    let run_line = json!({"k": "run", "v": 1, "run": "faults", "t": now_ns(), "nodes": []});
    fs::write(&faults, format!("{run_line}\n{begin}\n{}\n", fault("end"))).unwrap();
    let (rows, overflow) = (&run["counts"]["rows"], &run["counts"]["overflow_rows"]);
    assert!(overflow.as_u64() > Some(0) && overflow.as_u64() < rows.as_u64(), "{run}");

    succeed(&["load", "finish", &history, "--look-up", &url, "--token-file", &token]);
    for (node, server) in [second, first].into_iter().enumerate() {
        server.stop();
        let site = &cluster.sites[1 - node];
        let data = site.data().to_str().unwrap();
        succeed(&["load", "finish", &history, "--node", NAMES[1 - node], "--journal", data]);
    }
    let verdict = json_of(&["check", "--json", &history, &faults]);
    assert_eq!(verdict["clean"], true, "{verdict:#}");
    let without = json_of(&["check", "--json", &history]);
    assert_eq!((&without["clean"], &without["first"]["rule"]), (&false.into(), &"C6".into()));
    let violations = without["violations"].as_object().unwrap();
    let others = violations.iter().filter(|(rule, count)| *rule != "C6" && **count != 0);
    assert_eq!(others.count(), 0, "{without:#}");
}
