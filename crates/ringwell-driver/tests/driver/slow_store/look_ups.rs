//! Look-ups whose records are read slowly.

use std::cell::RefCell;
use std::collections::VecDeque;

use ringwell_driver::local::Executor;
use ringwell_driver::lookup::attribution;
use ringwell_driver::store::{ReadError, Reader};
use ringwell_engine::{Missing, Past};
use ringwell_journal::Noted;

use super::*;

thread_local! {
    /// The executor whose clock each read advances, and the durations of the next reads.
    static PASSING: RefCell<(Option<Executor>, VecDeque<Duration>)> = RefCell::default();
}

#[derive(Clone)]
struct Slow(MemoryReader);

impl Reader for Slow {
    fn read(&self, n: u64) -> Result<Group, ReadError> {
        PASSING.with_borrow_mut(|(clock, passing)| {
            if let (Some(clock), Some(time)) = (clock, passing.pop_front()) {
                clock.advance(clock.now() + time);
            }
        });
        self.0.read(n)
    }

    fn noted(&self) -> Vec<Noted> {
        self.0.noted()
    }
}

#[test]
fn only_the_history_of_a_number_may_make_a_look_up_too_long() {
    let platform = Virtual::default();
    let (shard, _queue) = shards(&platform, 1, Millis(1_000), Durability::Disk).remove(0);
    let store = Rc::new(Memory::new([0; 16], u64::MAX));
    platform.spawn(writer::run(Rc::clone(&shard), Rc::clone(&store)));
    let number = shard.directory().pools().next().unwrap().numbers()[0].first();
    platform.run(async {
        let mut first = None;
        // Each of the five rounds hands out every number once.
        for round in 1..=5 {
            for _ in 0..50 {
                let answer = bulk(&shard, body(&shard, 400), &platform.terms(100)).await;
                assert_eq!(overflows(&answer), 0);
            }
            first.get_or_insert(shard.now());
            at(&platform, round * 2_000).await;
        }
        let look_up = |passing: &[u64]| {
            let passing = passing.iter().map(|ms| Duration::from_millis(*ms)).collect();
            PASSING.set((Some(platform.0.clone()), passing));
            let moment = ringwell_engine::Moment::Shard(first.unwrap());
            attribution(Rc::clone(&shard), Slow(store.reader()), number, moment)
        };
        let missing = |past: &Past| past.missing;
        let named = look_up(&[]).await.unwrap();
        assert!(named.held.is_some(), "{named:?}");
        // The process is suspended during one of the reads, and the next reads are a little slow.
        for passing in [&[2_500, 0, 0, 0][..], &[0, 60_000, 500, 500], &[400, 400, 400, 400]] {
            assert_eq!(look_up(passing).await.unwrap(), named, "{passing:?}");
        }
        // The number has a long history, and the disk is slow.
        for passing in [&[900; 5][..], &[1_500; 5], &[20_000; 5]] {
            let past = look_up(passing).await.unwrap();
            assert_eq!(missing(&past), Some(Missing::TooLong), "{passing:?}");
        }
    });
}
