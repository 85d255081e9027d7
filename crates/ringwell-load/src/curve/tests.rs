use super::*;
use crate::compare::tests::intervals;
use crate::outcome::{Latency, curve};
use crate::tally::latencies;

fn outcome() -> Outcome {
    let mut all = latencies();
    for us in 1..=10_000_u64 {
        all.record(us * 1000).unwrap();
    }
    let mut outcome = intervals(&[1000, 900, 1100], 500);
    outcome.percentiles = curve(&all);
    outcome.latency = Latency::of(&all);
    outcome
}

#[test]
fn the_percentile_file_has_its_columns_and_ends_with_the_count() {
    let text = outcome().percentile_text();
    let columns = |line: &str| line.split_whitespace().count();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0].split_whitespace().next(), Some("Value"));
    assert_eq!(columns(lines[2]), 4, "{text}");
    let last = lines[lines.len() - 3];
    assert_eq!(columns(last), 3, "at 100 % there is no 1/(1-p): {text}");
    assert!(lines[lines.len() - 1].contains("Total count    =        10000"), "{text}");
}

#[test]
fn the_page_needs_no_other_file_and_draws_within_its_frames() {
    let mut outcome = outcome();
    outcome.setting.targets = vec!["unix:/<a&b>.sock".to_owned()];
    let page = outcome.page();
    assert!(page.contains("unix:/&lt;a&amp;b&gt;.sock"), "{page}");
    for foreign in ["<script", "<link", "src=", "href=", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert_eq!(page.matches("<svg").count(), 3);
    for points in page.split("points=\"").skip(1) {
        for pair in points.split('"').next().unwrap().split_whitespace() {
            let (x, y) = pair.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((0.0..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y), "{pair}");
        }
    }
}

#[test]
fn a_run_without_answers_can_be_drawn() {
    let page = intervals(&[0, 0], 1).page();
    assert!(page.contains("<svg") && !page.contains("NaN") && !page.contains("inf"), "{page}");
}
