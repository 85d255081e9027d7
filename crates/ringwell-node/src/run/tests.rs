use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};

use super::{EndReport, Report, any_panics, current_thread, wait_for};

#[test]
fn a_task_of_the_shards_own_that_panics_is_noticed_and_one_that_ends_is_not() {
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
    let (reports, mut reported) = mpsc::unbounded_channel();
    let ends = reports.clone();
    std::thread::spawn(move || drop(EndReport(ends)));
    reports.send(Report::Ready).unwrap();
    let all_there = current_thread().unwrap().block_on(wait_for(&mut reported, Report::Ready, 2));
    assert!(!all_there);
}
