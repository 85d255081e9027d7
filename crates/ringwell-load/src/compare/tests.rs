use super::*;
use crate::outcome::{FORMAT, Latency, Setting};
use crate::request::Spread;
use crate::tally::Counts;

fn run(samples: Vec<Sample>) -> Outcome {
    let setting = Setting {
        targets: vec!["127.0.0.1:8080".to_owned()],
        mode: "closed".to_owned(),
        rate: None,
        ramp_seconds: 0.0,
        spikes: 0,
        spread: Spread::Pools,
        pools: 200,
        rows: 40,
        connections: 64,
        threads: 1,
        duration_seconds: 10.0,
        timeout_seconds: 10.0,
        history: false,
    };
    Outcome {
        format: FORMAT,
        by: String::new(),
        started_at: String::new(),
        setting,
        interrupted: false,
        seconds: 10.0,
        counts: Counts::default(),
        batches_per_second: 0.0,
        rows_per_second: 0.0,
        latency: Latency::default(),
        percentiles: Vec::new(),
        generator_cores: 0.0,
        generator_cpu_us_per_answer: 0.0,
        interval_seconds: 1.0,
        samples,
    }
}

/// A run with intervals of 1 s, whose answers all took `latency_us`.
pub(crate) fn intervals(answers: &[u64], latency_us: u64) -> Outcome {
    let sample = |ok: &u64| Sample {
        ok: *ok,
        rows: 40 * ok,
        overflow_rows: 0,
        error_rows: 0,
        failures: 0,
        latency_ns: vec![(latency_us * 1000, *ok)],
    };
    run(answers.iter().map(sample).collect())
}

fn line(a: &Outcome, b: &Outcome, name: &str) -> Line {
    let all = compare(a, b).unwrap().lines;
    all.into_iter().find(|line| line.name == name).unwrap()
}

#[test]
fn a_difference_far_larger_than_the_scatter_is_sure() {
    let a = intervals(&[1000, 1010, 990, 1005, 995, 1000], 500);
    let b = intervals(&[1200, 1210, 1190, 1205, 1195, 1200], 400);
    let rate = line(&a, &b, "batches/s");
    assert!((rate.ratio - 1.2).abs() < 1e-9 && rate.is_sure(), "{rate:?}");
    assert!(rate.between.0 > 1.18 && rate.between.1 < 1.22, "{rate:?}");
    let p99 = line(&a, &b, "p99 ms");
    assert!((p99.ratio - 0.8).abs() < 1e-9 && p99.is_sure(), "{p99:?}");
}

#[test]
fn a_difference_within_the_scatter_is_not_significant() {
    let a = intervals(&[1000, 1400, 700, 1100, 900, 1300], 500);
    let b = intervals(&[1050, 1380, 740, 1150, 880, 1290], 500);
    let rate = line(&a, &b, "batches/s");
    assert!(!rate.is_sure() && rate.between.0 < 1.0 && rate.between.1 > 1.0, "{rate:?}");
}

#[test]
fn percentiles_are_those_of_all_intervals_together() {
    let mut a = intervals(&[900; 10], 100);
    for sample in &mut a.samples {
        sample.latency_ns = vec![(100_000, 890), (5_000_000, 10)];
    }
    let p99 = line(&a, &a, "p99 ms");
    assert!((p99.a - 5000.0).abs() < 1e-9, "10 of 900 are slow: {p99:?}");
    assert!((line(&a, &a, "p90 ms").a - 100.0).abs() < 1e-9);
}

#[test]
fn runs_with_too_little_data_are_refused_and_other_settings_are_named() {
    let a = intervals(&[1000; 6], 500);
    assert_eq!(compare(&a, &intervals(&[1000; 4], 500)), Err(CompareError::TooShort));
    assert_eq!(compare(&intervals(&[0; 6], 500), &a), Err(CompareError::NoAnswers));
    let mut b = a.clone();
    b.setting.spread = Spread::One;
    assert!(compare(&a, &a).unwrap().differences.is_empty());
    assert!(compare(&a, &b).unwrap().table().contains("all on one pool"));
}
