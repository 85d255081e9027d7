//! Nodes whose wall clocks differ.

use super::support::wall::Wall;
use super::*;

/// Returns how many seconds the other node's clock is ahead, according to this node's metrics.
fn ahead(server: &Server) -> f64 {
    let metrics = server.client().get("/metrics", &[]).unwrap().body;
    let line = metrics.lines().find(|line| line.starts_with("ringwell_link_clock_ahead_seconds{"));
    line.and_then(|line| line.rsplit(' ').next()).unwrap().parse().unwrap()
}

#[test]
fn nodes_report_that_their_clocks_differ() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let Some(wall) = Wall::new(cluster.path("time")) else { return };
    let first = cluster.start(0);
    let second = Server::start(wall.shown_to(cluster.command(1, "cluster.toml")));
    let differ = "the clocks of this node and another node differ";
    // A node compares the clocks whenever it receives an answer from the other node.
    let wait_for = |of: &Server, range: std::ops::RangeInclusive<f64>| {
        let begun = Instant::now();
        loop {
            cluster.ask(&mut of.client(), "now");
            let ahead = ahead(of);
            if range.contains(&ahead) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{ahead} is not in {range:?}");
            sleep(Duration::from_millis(50));
        }
    };
    wait_for(&first, -0.9..=0.9);
    assert_eq!((first.log() + &second.log()).matches(differ).count(), 0);
    wall.set(100);
    wait_for(&first, 99.0..=100.0);
    wait_for(&second, -100.0..=-99.0);
    first.says(differ);
    second.says(differ);
    wall.set(0);
    wait_for(&first, -0.9..=0.9);
    wait_for(&second, -0.9..=0.9);
    assert_eq!([&first, &second].map(|server| server.log().matches(differ).count()), [1, 1]);
}
