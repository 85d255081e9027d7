//! The cost of a batch that is spread over as many shards as possible.

use std::time::Duration;

use ringwell_config::Durability;
use ringwell_core::Millis;
use rustix::time::{ClockId, clock_gettime};

use crate::support::{Virtual, body, bulk, shards};

/// Returns this thread's CPU time, which excludes the time that other processes use on the same
/// core.
fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

/// Measures the CPU time of 500-row batches. This includes reading, planning, requests to 255 other
/// shards, and rendering.
#[test]
fn a_batch_of_500_rows_over_256_shards_blocks_its_thread_for_little_time() {
    let platform = Virtual::default();
    let mut all = shards(&platform, 256, Millis(60_000), Durability::Memory);
    let (shard, _queue) = all.remove(0);
    let mut took = Vec::new();
    for _ in 0..50 {
        for (_, queue) in &mut all {
            while queue.try_recv().is_ok() {}
        }
        let body = body(&shard, 500);
        let begun = cpu();
        platform.run(bulk(&shard, body, &platform.terms(10)));
        took.push(cpu().saturating_sub(begun));
    }
    took.sort_unstable();
    println!("500 rows over 256 shards: median {:?}, longest {:?}", took[25], took[49]);
    assert!(took[25] < Duration::from_millis(20), "{took:?}");
}
