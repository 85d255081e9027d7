//! Implements the option `--shared-log`: simulates machines that share a log, one run for each
//! seed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ringwell_sim::{Bug, LogFault, LogOptions, LogReport, Violation, run_log};

/// The runs that were requested by the program's arguments.
pub(crate) struct LogRunPlan {
    pub(crate) seed: u64,
    pub(crate) seeds: u64,
    pub(crate) threads: u16,
    pub(crate) on: Vec<LogFault>,
    pub(crate) off: Vec<LogFault>,
    pub(crate) bug: Option<Bug>,
    pub(crate) quiet: bool,
    pub(crate) keep_going: bool,
}

/// The totals of all threads.
#[derive(Default)]
struct Sum {
    failed: Option<u64>,
    violations: u64,
    rows: u64,
    numbers: u64,
    hours: f64,
    take_overs: u64,
    from_the_living: u64,
    faults: BTreeMap<LogFault, u64>,
}

/// Runs all seeds. Returns `false` if one of them failed.
pub(crate) fn work(plan: &LogRunPlan) -> Result<bool, String> {
    let (next, sum) = (AtomicU64::new(plan.seed), Mutex::new(Sum::default()));
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(|| run_seeds(plan, &next, &sum));
        }
    });
    let sum = sum.into_inner().map_err(|_| "a run has panicked: see above")?;
    let done = next.load(Ordering::Relaxed).min(plan.seed + plan.seeds) - plan.seed;
    let Sum { hours, rows, numbers, take_overs, from_the_living, violations, .. } = sum;
    print!("{done} seeds, {hours:.2} simulated hours, {rows} rows, {numbers} numbers, ");
    print!(
        "{take_overs} take-overs, {from_the_living} from a running owner, {violations} violations;"
    );
    for (fault, count) in &sum.faults {
        print!(" {fault}={count}");
    }
    println!();
    if let Some(seed) = sum.failed {
        println!("\nto repeat: cargo run -p ringwell-sim --release -- --shared-log --seed {seed}");
        let report = run_log(&LogOptions { keeps_tale: true, ..options(plan, seed) });
        report.story.iter().for_each(|line| println!("{line}"));
        println!("\nBROKEN: {:?}", report.violation);
    }
    Ok(sum.failed.is_none())
}

fn options(plan: &LogRunPlan, seed: u64) -> LogOptions {
    let (on, off) = (plan.on.clone(), plan.off.clone());
    LogOptions { seed, on, off, bug: plan.bug, keeps_tale: false }
}

fn run_seeds(plan: &LogRunPlan, next: &AtomicU64, sum: &Mutex<Sum>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= plan.seed + plan.seeds {
            return;
        }
        let report = run_log(&options(plan, seed));
        let LogReport { violation, length_us, rows, numbers, .. } = &report;
        if !plan.quiet || violation.is_some() {
            let broken = |it: &Violation| format!("{}: {}", it.rule, it.text);
            let verdict = violation.as_ref().map_or_else(|| "ok".to_owned(), broken);
            println!(
                "seed={seed} seconds={} rows={rows} numbers={numbers} take-overs={} hash={:016x} \
                 verdict={verdict:?}",
                length_us / 1_000_000,
                report.take_overs,
                report.hash
            );
        }
        // If a thread panicked while it held the lock, the panic was already reported.
        let Ok(mut sum) = sum.lock() else { return };
        sum.rows += rows;
        sum.numbers += numbers;
        sum.take_overs += report.take_overs;
        sum.from_the_living += report.from_the_living;
        #[expect(
            clippy::cast_precision_loss,
            reason = "a run lasts a few hours: fewer than 2^52 microseconds"
        )]
        let hours = *length_us as f64 / 3.6e9;
        sum.hours += hours;
        for (fault, count) in &report.faults {
            *sum.faults.entry(*fault).or_default() += count;
        }
        if violation.is_some() {
            sum.failed.get_or_insert(seed);
            sum.violations += 1;
            if !plan.keep_going {
                next.store(u64::MAX / 2, Ordering::Relaxed);
            }
        }
    }
}
