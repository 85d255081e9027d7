use serde_json::json;

use super::{CHART, Results, entry, newest, placed};
use crate::shell::root;

fn results() -> Results {
    let variant = |server, keeps, beside, rates: [f64; 3]| {
        let samples = rates.map(|rate| {
            json!({"many": {"batches_per_second": rate}, "cpu_us_per_batch": 1e6 / rate,
                   "fixed": {"latency": {"p99_us": 1500.0}}})
        });
        json!({"server": server, "keeps": keeps, "beside": beside, "samples": samples})
    };
    let entries = [
        variant("ringwell", "nothing", "memory", [900.0, 1000.0, 5000.0]),
        variant("go & co", "nothing", "memory", [250.0; 3]),
        variant("ringwell", "all", "disk", [500.0; 3]),
        variant("postgres", "all", "disk", [10.0; 3]),
    ];
    Results {
        file: "bench/results/2026-01-02/030405.json".to_owned(),
        machine: json!({"cpu": "a <fast> one", "cpus": 2, "kernel": "6.1", "commit": "abc"}),
        entries: entries.iter().map(|it| entry(it).unwrap()).collect(),
    }
}

#[test]
fn each_server_is_compared_with_ours_of_the_same_durability() {
    let text = results().markdown();
    assert!(text.contains("| ringwell | nothing | 1000 | 1.0 times as many | 1000 us | 1.50 ms |"));
    assert!(text.contains("| go & co | nothing | 250 | 4.0 times as many |"), "{text}");
    assert!(text.contains("| postgres | all | 10 | 50.0 times as many |"), "{text}");
    assert!(text.contains("](../bench/results/2026-01-02/030405.json)"), "{text}");
}

#[test]
fn bars_are_as_long_as_their_figures_and_text_is_escaped() {
    let svg = results().svg();
    for width in ["400.0", "100.0", "200.0", "4.0"] {
        assert!(svg.contains(&format!("width=\"{width}\" height=\"18\"")), "{width}: {svg}");
    }
    assert!(svg.contains("go &amp; co, keeps nothing") && svg.contains("a &lt;fast> one"), "{svg}");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
}

#[test]
fn the_readme_keeps_the_text_around_the_table() {
    let page = "a\n<!-- cargo xtask chart -->\nold\n<!-- end of chart -->\nb\n";
    let new = placed(page, "new\n").unwrap();
    assert_eq!(new, "a\n<!-- cargo xtask chart -->\nnew\n<!-- end of chart -->\nb\n");
    assert!(placed("a\n", "new").is_err());
}

#[test]
fn page_and_chart_match_the_newest_results() {
    let page = std::fs::read_to_string(root().join(super::PAGE)).unwrap();
    let Some(results) = newest().unwrap() else {
        assert!(placed(&page, "").is_ok(), "there is a place for them");
        return;
    };
    let hint = "cargo xtask chart";
    assert_eq!(placed(&page, &results.markdown()).unwrap(), page, "{hint}");
    assert_eq!(std::fs::read_to_string(root().join(CHART)).unwrap(), results.svg(), "{hint}");
}
