use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};

use super::{EndReport, Report, Reported, any_panics, current_thread};

#[test]
fn a_panic_of_a_shard_s_task_is_noticed_and_its_end_is_not() {
    let runtime = current_thread().unwrap();
    runtime.block_on(LocalSet::new().run_until(async {
        let mut tasks = JoinSet::new();
        tasks.spawn_local(async {});
        let patience = Duration::from_millis(20);
        assert!(tokio::time::timeout(patience, any_panics(&mut tasks)).await.is_err());
        tasks.spawn_local(async { panic!("as the writer might") });
        any_panics(&mut tasks).await;
    }));
}

#[test]
fn a_shard_that_ends_is_not_waited_for() {
    let (reports, received) = mpsc::unbounded_channel();
    let mut reported = Reported { reports: received, ended: 0 };
    let ends = reports.clone();
    std::thread::spawn(move || drop(EndReport(ends)));
    reports.send(Report::Ready).unwrap();
    let runtime = current_thread().unwrap();
    assert!(!runtime.block_on(reported.wait_for(Report::Ready, 2)));
    // The wait for `Drained` also ends, although only one of the two shards sends this report.
    reports.send(Report::Drained).unwrap();
    assert!(!runtime.block_on(reported.wait_for(Report::Drained, 2)));
}
