//! Tests when the ring is sufficient, and which slot is its head.

use crate::{
    Fact, Millis, NumberRange, PoolId, PoolSpec, Position, PromoNumber, Rebuild, Shard, Slot,
};

const FIRST: u64 = 18_885_550_000;
const SIZE: u32 = 4;

fn number(at: u32) -> PromoNumber {
    PromoNumber::from_e164(FIRST + u64::from(at)).unwrap()
}

/// Returns two pools. The second is the one under test: its slots do not begin at zero.
fn specs(lifetime: u64) -> Vec<PoolSpec> {
    let spec = |id, at, count| PoolSpec {
        id: PoolId(id),
        lockout: Millis(lifetime),
        numbers: vec![NumberRange::new(number(at), count).unwrap()],
    };
    vec![spec(1, 100, 3), spec(2, 0, SIZE)]
}

/// The pool after a restart, given the end of each number's lockout.
fn restarted(lifetime: u64, untils: [u64; SIZE as usize]) -> Shard {
    let mut rebuild = Rebuild::new(specs(lifetime));
    for (at, until) in (0..).zip(untils).filter(|(_, until)| *until > 0) {
        let slot = Slot {
            number: number(at),
            allocated_at: Millis(until - 1),
            locked_until: Millis(until),
            position: Position(until),
        };
        rebuild.learn(u32::MAX, Fact { slot, pool: PoolId(2), visitor: None });
    }
    rebuild.finish()
}

/// Returns the places, within the pool, of the numbers that the pool hands out at `now`. The pool
/// receives one more request than it has numbers.
fn given(shard: &mut Shard, now: u64) -> Vec<u32> {
    let asked = (0..=SIZE).map_while(|_| shard.allocate(Millis(now), 1, None, Position(now)).ok());
    asked.map(|grant| u32::try_from(grant.number.to_e164() - FIRST).unwrap()).collect()
}

/// A pool whose lockouts run to their end needs no `Order`, which takes memory for each number and
/// time for each allocation.
#[test]
fn a_pool_whose_lockouts_run_to_their_end_needs_no_separate_order() {
    let mut shard = Rebuild::new(specs(10)).finish();
    let mut now = 1_000;
    for position in 1..40 {
        now += position % 3 * 5;
        let _ = shard.allocate(Millis(now), 1, None, Position(position));
        assert!(!shard.has_orders && !shard.pools[1].has_order(), "{now}");
    }
}

#[test]
fn after_a_restart_the_ring_continues_where_it_was() {
    for (untils, order) in [
        ([0, 0, 0, 0], [0, 1, 2, 3]),
        ([5, 0, 0, 0], [1, 2, 3, 0]),
        ([5, 6, 0, 0], [2, 3, 0, 1]),
        ([5, 6, 7, 8], [0, 1, 2, 3]),
        ([8, 5, 6, 7], [1, 2, 3, 0]),
        ([6, 7, 8, 5], [3, 0, 1, 2]),
    ] {
        let mut shard = restarted(10, untils);
        assert!(!shard.has_orders, "{untils:?}: it is a ring");
        assert_eq!(given(&mut shard, 50), order, "{untils:?}");
        assert!(!shard.has_orders, "{untils:?}: it stays one");
    }
}

#[test]
fn after_a_restart_the_one_free_longest_goes_first_even_if_no_ring_has_that_order() {
    for (untils, order) in [
        ([6, 5, 7, 8], [1, 0, 2, 3]),
        ([5, 6, 8, 7], [0, 1, 3, 2]),
        ([5, 7, 6, 8], [0, 2, 1, 3]),
        ([0, 5, 0, 6], [0, 2, 1, 3]),
        ([7, 8, 5, 9], [2, 0, 1, 3]),
    ] {
        let mut shard = restarted(10, untils);
        assert!(shard.has_orders, "{untils:?}");
        assert_eq!(given(&mut shard, 50), order, "{untils:?}");
    }
}

/// The lifetime was longer before the restart, so a number allocated now may become free before a
/// number that was allocated then.
#[test]
fn a_ring_stays_one_until_a_lockout_ends_before_an_older_one() {
    for (last, is_broken) in [(60, false), (61, true)] {
        let mut shard = restarted(10, [40, 41, 42, last]);
        assert!(!shard.has_orders);
        shard.allocate(Millis(50), 1, None, Position(70)).unwrap();
        assert_eq!(shard.pools[1].has_order(), is_broken, "{last}");
    }
}

/// Batches prefetch the memory that their rows will need, so that they wait for memory once and not
/// once per row.
#[test]
fn the_number_read_ahead_is_the_one_allocated_next() {
    let mut shard = restarted(10, [41, 42, 43, 44]);
    for at in 0..SIZE {
        let next = shard.slots()[shard.find(number(at)).unwrap() as usize];
        assert_eq!(shard.next_slot(1), Some(&next));
        shard.allocate(Millis(50), 1, None, Position(50)).unwrap();
    }
}
