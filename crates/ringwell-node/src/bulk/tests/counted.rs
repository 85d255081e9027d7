//! The path of a batch (read, look up, allocate, record, render) as a program to be counted.
//!
//! `cargo xtask counts` runs it under callgrind, twice with different lengths, and reads what it
//! prints of memory. A test, because only tests see the path without sockets; and as one it shows
//! that the answers that are counted are right ones.

use tokio::runtime::Builder;

use super::{Durability, Millis, body, shard_threads, soon};

/// How many batches are answered, if not [`USUAL`].
const BATCHES: &str = "RINGWELL_COUNTED_BATCHES";
const USUAL: usize = 20;
/// Rows of each, as in all benchmarks.
const ROWS: usize = 40;
/// A group of the journal at 64 connections holds about this many batches.
const BATCHES_A_GROUP: usize = 16;

#[test]
fn what_is_counted_is_batches_that_get_their_numbers() {
    let batches = std::env::var(BATCHES).ok().map_or(USUAL, |text| text.parse().unwrap());
    // So long that no number comes back: which one is next never depends on the clock.
    let (thread, _queue) = shard_threads(1, Millis(3_600_000), Durability::Memory).remove(0);
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let (body, terms) = (body(&thread, ROWS), soon(3_600_000));
    let (mut answer, mut spare) = (Vec::new(), Vec::with_capacity(1 << 20));
    let mut least = None;
    for batch in 0..batches {
        let body = body.clone();
        let used = allocation_counter::measure(|| {
            answer = runtime.block_on(super::super::answer(&thread, body, &terms)).unwrap();
        });
        // Lists that count groups grow now and then: the least is what a batch needs.
        let used = (used.count_total, used.bytes_total);
        least = least.into_iter().chain([used]).min();
        if batch % BATCHES_A_GROUP == 0 {
            let sealed = thread.engine.borrow_mut().seal(std::mem::take(&mut spare));
            spare = sealed.map_or_else(Vec::new, |group| group.body);
        }
    }
    let (allocations, bytes) = least.unwrap();
    println!("COUNTED {{\"allocations\":{allocations},\"bytes\":{bytes}}}");
    let text = String::from_utf8(answer).unwrap();
    assert_eq!(text.matches("\"promo_number\"").count(), ROWS);
    assert!(!text.contains("overflow") && !text.contains("error_class"), "{text}");
    let counts = thread.engine.borrow().counts();
    assert_eq!(counts.allocated, (batches * ROWS) as u64);
}
