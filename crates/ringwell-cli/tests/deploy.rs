//! The files in `deploy/` that hold configurations of ours in other formats: they are read by the
//! real program.

#![expect(clippy::unwrap_used, reason = "a test program: a panic is its way to report")]

use std::fs;
use std::path::Path;
use std::process::Command;

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
