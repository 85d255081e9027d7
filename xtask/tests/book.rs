//! Tests that the table of contents of the documentation's site lists every page exactly once.

#![allow(clippy::unwrap_used, reason = "a test program")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const FOLDERS: [&str; 5] = ["", "guides/", "providers/", "spec/", "decisions/"];

#[test]
fn the_table_of_contents_lists_every_page_once() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    for rest in summary.split("](").skip(1) {
        *listed.entry(rest.split_once(')').unwrap().0.to_owned()).or_default() += 1;
    }
    let mut wrong: Vec<String> = listed
        .iter()
        .filter(|(_, times)| **times > 1)
        .map(|(page, times)| format!("{page} is listed {times} times"))
        .collect();
    for folder in FOLDERS {
        for entry in fs::read_dir(docs.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let page = format!("{folder}{name}");
            let is_page = Path::new(&name).extension().is_some_and(|kind| kind == "md");
            if is_page && page != "SUMMARY.md" && !listed.contains_key(&page) {
                wrong.push(format!("{page} is missing"));
            }
        }
    }
    assert!(wrong.is_empty(), "docs/SUMMARY.md:\n{}", wrong.join("\n"));
}
