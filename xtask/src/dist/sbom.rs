//! The bill of materials: every crate in the program, in the format of `CycloneDX` 1.5.

use std::collections::{BTreeMap, BTreeSet};
use std::env::consts::ARCH;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::shell::{cargo, output};

/// Writes the list of the components of `ringwell`.
pub(super) fn write(file: &Path) -> anyhow::Result<()> {
    let mut command = cargo();
    command.args(["metadata", "--locked", "--format-version", "1"]);
    command.args(["--features", "ringwell-cli/nats"]);
    command.args(["--filter-platform", &format!("{ARCH}-unknown-linux-gnu")]);
    let metadata: Value = serde_json::from_str(&output(&mut command)?)?;
    let text = serde_json::to_string_pretty(&bill(&metadata).context("cargo metadata")?)? + "\n";
    std::fs::write(file, text).with_context(|| file.display().to_string())
}

fn bill(metadata: &Value) -> Option<Value> {
    let packages = metadata["packages"].as_array()?;
    let packages: BTreeMap<&str, &Value> =
        packages.iter().filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let nodes = metadata["resolve"]["nodes"].as_array()?;
    let nodes: BTreeMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let (root, _) = packages.iter().find(|(_, package)| package["name"] == "ringwell-cli")?;
    let mut reached = BTreeSet::new();
    let mut waiting = vec![*root];
    let mut dependencies = Vec::new();
    while let Some(id) = waiting.pop() {
        if !reached.insert(id) {
            continue;
        }
        let below = nodes.get(id)?["deps"].as_array()?.iter().filter(|dep| is_linked(dep));
        let below: Vec<&str> = below.filter_map(|dep| dep["pkg"].as_str()).collect();
        dependencies.push(json!({
            "ref": purl(packages.get(id)?),
            "dependsOn": below.iter().filter_map(|id| packages.get(id)).map(|it| purl(it)).collect::<Vec<_>>(),
        }));
        waiting.extend(below);
    }
    let components = reached.iter().filter(|id| *id != root).filter_map(|id| packages.get(id));
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(packages.get(root)?, "application") },
        "components": components.map(|it| component(it, "library")).collect::<Vec<_>>(),
        "dependencies": dependencies,
    }))
}

/// Dependencies that only tests or builds need are excluded.
fn is_linked(dependency: &Value) -> bool {
    let kinds = dependency["dep_kinds"].as_array();
    kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
}

fn component(package: &Value, kind: &str) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
    });
    if let Some(licence) = package["license"].as_str() {
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    component
}

fn purl(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}
