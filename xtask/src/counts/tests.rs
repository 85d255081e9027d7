//! Tests which changes count as a rise, and which counts cannot be compared.

use super::{Compared, Counts, compare};

fn counts(rustc: &str, machine: &str, figures: &[(&str, f64)]) -> Counts {
    let figures = figures.iter().map(|(name, figure)| ((*name).to_owned(), *figure)).collect();
    Counts { rustc: rustc.to_owned(), machine: machine.to_owned(), figures }
}

fn check(before: f64, now: f64) -> Compared {
    let of = |figure| counts("1", "m", &[("path", figure), ("same", 5.0)]);
    compare(&of(before), &of(now))
}

#[test]
fn a_rise_of_three_percent_passes_and_a_larger_one_does_not() {
    assert_eq!(check(1000.0, 1030.0), Compared::Alike);
    assert_eq!(check(1000.0, 1031.0), Compared::Risen(vec!["path".to_owned()]));
    assert_eq!(check(1000.0, 10.0), Compared::Alike);
}

#[test]
fn one_more_allocation_of_a_few_is_a_rise() {
    assert_eq!(check(8.0, 9.0), Compared::Risen(vec!["path".to_owned()]));
    assert_eq!(check(0.0, 1.0), Compared::Risen(vec!["path".to_owned()]));
}

#[test]
fn an_unaccepted_figure_is_a_rise() {
    let last = counts("1", "m", &[]);
    let now = counts("1", "m", &[("path", 1.0)]);
    assert_eq!(compare(&last, &now), Compared::Risen(vec!["path".to_owned()]));
}

#[test]
fn counts_of_another_compiler_or_machine_are_distinguished_from_a_rise() {
    let now = counts("2", "m", &[("path", 9.0)]);
    assert_eq!(compare(&counts("1", "m", &[("path", 1.0)]), &now), Compared::OtherCompiler);
    assert_eq!(compare(&counts("2", "n", &[("path", 1.0)]), &now), Compared::OtherMachine);
}
