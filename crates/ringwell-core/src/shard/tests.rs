//! Tests edge cases of holds, visitors and retired numbers.

use crate::{
    Millis, NumberRange, PoolId, PoolSpec, Position, PromoNumber, Rebuild, Shard, VisitorId,
};

const FIRST: u64 = 18_885_550_000;
const ANN: VisitorId = VisitorId([1; 16]);

fn number(at: u32) -> PromoNumber {
    PromoNumber::from_e164(FIRST + u64::from(at)).unwrap()
}

/// A pool of four numbers with 50 ms lockouts.
fn shard() -> Shard {
    let numbers = vec![NumberRange::new(number(0), 4).unwrap()];
    Rebuild::new(vec![PoolSpec { id: PoolId(1), lockout: Millis(50), numbers }]).finish()
}

#[test]
fn while_a_pool_is_held_its_visitors_keep_nothing_and_afterwards_only_their_own_numbers() {
    for (now, is_kept) in [(119, false), (120, true), (121, true), (149, true), (150, false)] {
        let mut shard = shard();
        shard.allocate(Millis(100), 0, Some(ANN), Position(1)).unwrap();
        shard.hold(Some(PoolId(1)), Millis(120));
        let kept = shard.keep(Millis(now), 0, ANN, Position(2));
        assert_eq!(kept.map(|kept| kept.number), is_kept.then(|| number(0)), "{now}");
    }
}

#[test]
fn numbers_that_left_are_listed_in_rising_order_from_any_of_them_and_by_range() {
    let mut shard = shard();
    for at in 1..=3 {
        shard.allocate(Millis(100 + at), 0, None, Position(at)).unwrap();
    }
    shard.remove_pool(0, None);
    let after = |after: Option<u32>| -> Vec<u64> {
        let retired = shard.retired_after(after.map(number));
        retired.map(|retired| retired.slot.number.to_e164() - FIRST).collect()
    };
    assert_eq!(after(None), [0, 1, 2], "the fourth was never handed out");
    assert_eq!((after(Some(0)), after(Some(1)), after(Some(2))), (vec![1, 2], vec![2], vec![]));
    let within = |first, count| -> Vec<u64> {
        let range = NumberRange::new(number(first), count).unwrap();
        shard.retired_in(range).map(|retired| retired.slot.number.to_e164() - FIRST).collect()
    };
    assert_eq!((within(0, 4), within(1, 1), within(3, 9)), (vec![0, 1, 2], vec![1], vec![]));
}

#[test]
fn the_time_that_keep_alives_add_to_lockouts_and_releases_take_from_them_is_counted() {
    let mut shard = shard();
    let lengthened = |shard: &Shard| shard.counts(0).lengthened;
    let slot = shard.allocate(Millis(100), 0, Some(ANN), Position(1)).unwrap().slot;
    assert_eq!(lengthened(&shard), 0, "an allocation counts as one lifetime");
    shard.keep(Millis(130), 0, ANN, Position(2)).unwrap();
    assert_eq!(lengthened(&shard), 30, "locked until 180 and not 150");
    // The lockout has ended, so the number was free for 20 ms.
    shard.extend(Millis(200), slot, Position(3)).unwrap();
    assert_eq!(lengthened(&shard), 30 + 50);
    shard.release(Millis(209), slot, Millis(100), Position(4)).unwrap();
    assert_eq!(lengthened(&shard), 30 + 50 - 40, "locked until 210 and not 250");
    // The count is kept if the pool's numbers change, and ends if the pool is removed.
    let spec = |count| {
        let numbers = vec![NumberRange::new(number(0), count).unwrap()];
        PoolSpec { id: PoolId(1), lockout: Millis(50), numbers }
    };
    shard.put_pool(0, &spec(3), None).unwrap();
    assert_eq!(lengthened(&shard), 40);
    assert_eq!(shard.counts(0).kept, 2);
    shard.remove_pool(0, None);
    shard.put_pool(0, &spec(4), None).unwrap();
    assert_eq!((shard.counts(0).kept, lengthened(&shard)), (0, 0));
}
