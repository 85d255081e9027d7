//! Reads values from `/metrics`.

use super::support::server::Server;

/// Returns the sum of the metric `name` over all lines that contain `label`.
pub(crate) fn labelled(server: &Server, name: &str, label: &str) -> u64 {
    let text = server.client().get("/metrics", &[]).unwrap().body;
    let of_name = |line: &&str| line.split('{').next() == Some(name) && line.contains(label);
    let lines: Vec<&str> = text.lines().filter(of_name).collect();
    assert!(!lines.is_empty(), "{name} is not in {text}");
    lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Returns the sum of a metric over all shards.
pub(crate) fn sum(server: &Server, name: &str) -> u64 {
    labelled(server, name, "")
}
