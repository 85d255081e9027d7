//! Tests histories with exactly one planted fault, and random histories from a tiny model of a
//! server.

mod model;

use super::*;
use std::fs;
use std::path::Path;
use std::process::Command;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/history")
}

fn judged(name: &str) -> Verdict {
    check(&[fixtures().join(format!("{name}.jsonl"))]).unwrap()
}

/// The rules that each history violates, according to the second checker.
fn second_opinion(histories: &[PathBuf]) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("second_opinion.py");
    let mut python = Command::new("python3");
    let output = python.arg(script).arg("--each").args(histories).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{errors}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The rules that each history violates, in the second checker's output format. The count of parts
/// must not change a verdict.
fn first_opinion(histories: &[PathBuf]) -> Vec<String> {
    let codes = |path: &PathBuf| {
        let files = std::slice::from_ref(path);
        let verdict = check(files).unwrap();
        assert_eq!(verdict, check_in(files, 5).unwrap(), "{} in parts", path.display());
        verdict.violations.keys().map(|rule| rule.code()).collect::<Vec<_>>().join(" ")
    };
    histories.iter().map(codes).collect()
}

/// Asserts that the first violation in a fixture is a violation of `rule`, proved by the lines
/// whose numbers are in `proof`.
fn assert_found(name: &str, rule: Rule, words: &str, proof: &[u64]) {
    let verdict = judged(name);
    let first = verdict.first.unwrap_or_else(|| panic!("{name} is clean"));
    assert_eq!(first.rule, rule, "{name}: {}", first.words);
    assert!(first.words.contains(words), "{name}: {:?} is not in {:?}", words, first.words);
    let lines = first.proof.iter().map(|line| line.place.rsplit_once(':').unwrap().1);
    let lines: Vec<u64> = lines.map(|line| line.parse().unwrap()).collect();
    assert_eq!(lines, proof, "{name}: {:#?}", first.proof);
    assert_eq!(verdict.violations.keys().collect::<Vec<_>>(), [&rule], "{name}");
}

#[test]
fn a_kept_history_is_clean_and_all_rules_judged_it() {
    let verdict = judged("clean");
    assert_eq!(verdict.first, None);
    assert_eq!(
        (verdict.judged.as_slice(), verdict.not_judged.as_slice()),
        (&Rule::ALL[..], &[][..])
    );
    let Summary { batches, unanswered, rows, overflow_rows, numbers, records, lookups, .. } =
        verdict.summary;
    assert_eq!([batches, unanswered, rows, overflow_rows], [4, 1, 6, 1]);
    assert_eq!([numbers, records, lookups], [3, 6, 2]);
}

#[test]
fn an_overflow_during_a_fault_is_passed_over_and_counted() {
    let verdict = judged("clean-overflow-during-a-fault");
    assert_eq!(verdict.first, None);
    let passed = verdict.not_judged.iter().find(|(rule, _)| *rule == Rule::Overflow).unwrap();
    assert_eq!(passed.1, "1 overflow rows during faults");
}

/// Damage may hide an allocation that was undone, so the server need not name the visitor.
#[test]
fn a_look_up_without_a_visitor_is_passed_over_if_a_journal_is_damaged() {
    let verdict = judged("clean-no-visitor-after-damage");
    assert_eq!(verdict.first, None);
    let why = "1 look-ups that named no visitor, because a journal is damaged".to_owned();
    assert_eq!(verdict.not_judged, [(Rule::Attribution, why)]);
}

#[test]
fn a_lockout_counts_from_the_first_attempt_that_may_have_been_served() {
    assert_eq!(judged("clean-answer-of-an-earlier-attempt").first, None);
}

#[test]
fn an_allocation_that_no_visitor_saw_has_no_holder() {
    assert_eq!(judged("clean-allocation-that-nobody-saw").first, None);
}

#[test]
fn c1_a_number_given_to_two_visitors_is_found_in_client_histories() {
    assert_found("c1-double-by-clients", Rule::Double, "aaaa0001-2-0", &[5, 6, 9, 10]);
    let fault = judged("c1-double-by-clients").first.unwrap().nearest_fault.unwrap();
    assert!(fault.text.contains("kill9 a"), "{fault:?}");
}

#[test]
fn c1_a_number_given_to_two_visitors_is_found_in_the_journal() {
    let words = "allocated again after 899 ms";
    assert_found("c1-double-by-journal", Rule::Double, words, &[7, 12]);
}

#[test]
fn c2_an_answer_missing_in_the_journal_is_found() {
    assert_found("c2-lost", Rule::Lost, "aaaa0001-2-1 got 2000000002", &[8, 9]);
}

#[test]
fn c2_an_answered_number_that_was_released_is_found() {
    let words = "the number was released";
    assert_found("c2-released-though-answered", Rule::Lost, words, &[8, 9, 21]);
}

#[test]
fn c3_an_allocation_without_a_request_is_found() {
    assert_found("c3-nobody-asked", Rule::Phantom, "aaaa0001-9-0, which was never sent", &[23]);
}

#[test]
fn c3_an_unanswered_allocation_that_was_kept_is_found() {
    let words = "but the row got ServiceUnavailable";
    assert_found("c3-kept-though-not-given", Rule::Phantom, words, &[21, 8, 9]);
}

#[test]
fn c4_a_number_of_another_pool_is_found() {
    assert_found(
        "c4-number-of-no-pool",
        Rule::Pool,
        "2000000009, which is not in that pool",
        &[4, 5],
    );
}

#[test]
fn c4_a_repeated_row_with_a_number_that_has_left_its_pool_is_found() {
    let name = "c4-number-that-left-the-pool-before-the-attempt";
    assert_found(name, Rule::Pool, "2000000001, which is not in that pool", &[7, 8]);
}

#[test]
fn c4_an_overflow_number_given_as_a_visitor_s_own_is_found() {
    let words = "2999999999, which is the pool's overflow number but was not marked";
    assert_found("c4-overflow-as-its-own", Rule::Pool, words, &[6, 7]);
}

#[test]
fn c5_a_second_answer_is_found() {
    assert_found("c5-two-answers", Rule::Answer, "aaaa0001-0 has two answers", &[4, 5, 6]);
}

#[test]
fn c5_rows_out_of_order_are_found() {
    assert_found("c5-rows-out-of-order", Rule::Answer, "row 0 of batch aaaa0001-0", &[4, 5]);
}

#[test]
fn c5_another_number_for_a_repeated_batch_is_found() {
    let words = "got two different numbers for row aaaa0001-0-1";
    assert_found("c5-another-number-when-sent-again", Rule::Answer, words, &[4, 5, 9, 10]);
}

#[test]
fn c5_an_unreadable_answer_is_found() {
    let words = "the body ends too early";
    assert_found("c5-answer-cannot-be-read", Rule::Answer, words, &[4, 5]);
}

#[test]
fn c6_an_overflow_without_a_cause_is_found() {
    let words = "although pool 1 was neither exhausted";
    assert_found("c6-overflow-without-cause", Rule::Overflow, words, &[24, 25]);
}

#[test]
fn c7_a_journal_out_of_order_is_found() {
    assert_found("c7-frame-is-missing", Rule::Order, "frame 3 follows frame 1", &[6, 9]);
    assert_found("c7-time-falls", Rule::Order, "time goes back by 11 ms before frame 4", &[11, 14]);
    assert_found("c7-epoch-falls", Rule::Order, "the epoch decreases from 1 to 0", &[11, 14]);
}

#[test]
fn c8_a_shard_with_two_owners_is_found() {
    assert_found("c8-two-owners", Rule::Owner, "epoch 1 of shard 0 has two journals", &[5, 16]);
}

#[test]
fn c9_a_late_answer_is_found() {
    assert_found("c9-late", Rule::Deadline, "took 160 ms", &[6, 7]);
}

#[test]
fn c10_a_look_up_that_returns_the_wrong_visitor_or_none_is_found() {
    let words = "the look-up found row aaaa0001-2-0";
    assert_found("c10-another-visitor", Rule::Attribution, words, &[24, 5]);
    assert_found("c10-nobody", Rule::Attribution, "returned the outcome \"none\"", &[24, 5]);
}

#[test]
fn c11_a_state_that_does_not_follow_from_the_records_is_found() {
    assert_found("c11-another-lockout", Rule::Recovery, "2000000002", &[21, 27]);
    assert_found("c11-number-is-missing", Rule::Recovery, "the final state does not", &[21]);
}

#[test]
fn the_second_opinion_agrees_on_every_fixture() {
    let entries = fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path());
    let histories = entries.filter(|path| path.extension() == Some("jsonl".as_ref()));
    let histories: Vec<_> = histories.collect();
    assert!(histories.len() >= 20, "only {} histories", histories.len());
    let both = first_opinion(&histories).into_iter().zip(second_opinion(&histories));
    for (path, (first, second)) in histories.iter().zip(both) {
        assert_eq!(first, second, "{}", path.display());
    }
}

#[test]
fn several_files_in_any_order_are_one_history() {
    let text = fs::read_to_string(fixtures().join("c2-lost.jsonl")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a.jsonl", "b.jsonl"].map(|name| folder.path().join(name));
    let (run, others) = text.split_once('\n').unwrap();
    let mut files = [format!("{run}\n"), format!("{run}\n")];
    for (index, line) in others.lines().rev().enumerate() {
        // The order of the journal's own lines matters, so all of them stay in one file.
        if !line.contains("\"jrn\"") {
            files[index % 2].extend([line, "\n"]);
        }
    }
    for line in others.lines().filter(|line| line.contains("\"jrn\"")) {
        files[1].extend([line, "\n"]);
    }
    for (path, text) in paths.iter().zip(files) {
        fs::write(path, text).unwrap();
    }
    let verdict = check(&paths).unwrap();
    assert_eq!(verdict.violations.keys().collect::<Vec<_>>(), [&Rule::Lost]);
}

#[test]
fn an_unreadable_line_is_named_and_a_torn_last_line_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("h.jsonl");
    let clean = fs::read_to_string(fixtures().join("clean.jsonl")).unwrap();
    fs::write(&path, format!("{clean}{{\"k\":\"in")).unwrap();
    assert_eq!(check(std::slice::from_ref(&path)).unwrap().first, None);

    let broken = [
        ("{\"k\":\"inv\"}\n", "`rows` is missing"),
        ("{\"k\":\n", "EOF"),
        ("{\"k\":\"run\",\"v\":2,\"run\":\"x\"}\n", "format version 2"),
    ];
    for (line, why) in broken {
        fs::write(&path, format!("{clean}{line}")).unwrap();
        let error = check(std::slice::from_ref(&path)).unwrap_err();
        assert!(error.why.contains(why), "{error}");
        assert_eq!(error.line, clean.lines().count() as u64 + 1);
    }
    fs::write(&path, "{\"k\":\"clk\",\"t\":1,\"wall_ms\":1}\n").unwrap();
    assert!(check(std::slice::from_ref(&path)).unwrap_err().why.contains("first line"));
    assert_eq!(check(&[folder.path().join("none")]).unwrap_err().line, 0);
}

#[test]
fn lines_of_unknown_kinds_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("h.jsonl");
    let clean = fs::read_to_string(fixtures().join("clean.jsonl")).unwrap();
    fs::write(&path, format!("{clean}{{\"k\":\"new\",\"t\":1}}\n")).unwrap();
    let verdict = check(std::slice::from_ref(&path)).unwrap();
    assert_eq!((verdict.first, verdict.summary.unknown_lines), (None, 1));
}

#[test]
fn a_rule_whose_lines_are_missing_is_not_judged() {
    let clean = fs::read_to_string(fixtures().join("clean.jsonl")).unwrap();
    let without = |is_missing: &dyn Fn(&str) -> bool| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.jsonl");
        let kept: Vec<&str> = clean.lines().filter(|line| !is_missing(line)).collect();
        fs::write(&path, kept.join("\n") + "\n").unwrap();
        check(&[path]).unwrap()
    };
    let is_frame = |line: &str| line.contains("\"previous_hash\"");
    let count = |line: &str| line.contains("\"k\":\"fin\"") && line.contains("\"numbers\"");
    let first = |line: &str| line.contains("\"frame\":1,");
    let frameless = (without(&is_frame), Rule::Order);
    let cut_off = (without(&first), Rule::Order);
    let uncounted = (without(&count), Rule::Recovery);
    for (verdict, rule) in [frameless, cut_off, uncounted] {
        assert!(!verdict.judged.contains(&rule), "{rule:?}: {:?}", verdict.not_judged);
    }
    let late = clean.replacen("\"k\":\"cfg\",\"t\":1", "\"k\":\"cfg\",\"t\":9", 1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("h.jsonl");
    fs::write(&path, late).unwrap();
    let verdict = check(&[path]).unwrap();
    let said = verdict
        .not_judged
        .iter()
        .any(|(rule, why)| *rule == Rule::Double && why.contains("pools without a `cfg` line"));
    assert!(said, "{:?}", verdict.not_judged);
}
