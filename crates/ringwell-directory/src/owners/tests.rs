//! Tests copies of the owners that differ, and tests merging entries from one copy into another.

use proptest::prelude::*;

use super::*;

const SHARDS: u16 = 4;

fn owners() -> Owners {
    let owner = |bucket| (0, bucket % SHARDS);
    let plain = Plain { version: 3, shards: SHARDS, buckets: (0..BUCKETS).map(owner).collect() };
    Owners::try_from(plain).unwrap()
}

proptest! {
    /// Each shard represents a node and has its own copy of the owners. Only the present owner
    /// gives a bucket away, and the next owner receives it in the same step. Copies are exchanged
    /// in any order.
    #[test]
    fn no_bucket_ever_has_two_owners_that_know_it(
        steps in proptest::collection::vec((0..8_u16, 0..SHARDS, 0..SHARDS, any::<bool>()), 1..200)
    ) {
        let mut copies: Vec<Owners> = (0..SHARDS).map(|_| owners()).collect();
        for (bucket, one, other, is_move) in steps {
            let (from, to) = (usize::from(one), usize::from(other));
            let is_mine = |shard: u16, copies: &[Owners]| {
                copies[usize::from(shard)].get(bucket).unwrap().shard == shard
            };
            if is_move && is_mine(one, &copies) && one != other {
                copies[from].give(bucket, other);
                let given = copies[from].get(bucket).unwrap();
                prop_assert!(copies[to].take(bucket, given), "the newest move is news to everyone");
            } else {
                let copy = copies[from].clone();
                copies[to].learn(&copy, |shard| shard == other);
            }
            let who = (0..SHARDS).filter(|shard| is_mine(*shard, &copies)).count();
            prop_assert!(who <= 1, "bucket {bucket} has {who} owners");
        }
    }
}

#[test]
fn a_shard_does_not_trust_hearsay_about_its_own_buckets() {
    let (mut giver, mut taker) = (owners(), owners());
    giver.give(0, 1);
    assert!(!taker.learn(&giver, |shard| shard == 1));
    assert_eq!(taker.get(0), Some(Owner { moves: 0, shard: 0 }));
    let moved = giver.get(0).unwrap();
    assert!(taker.take(0, moved) && !taker.take(0, moved));
    let mut third = owners();
    assert!(third.learn(&taker, |shard| shard == 2));
    assert_eq!(third.placement().of_bucket(0), 1);
    assert_eq!((third.moves(), third.version()), (1, 3));
}

#[test]
fn data_from_before_a_move_give_way_to_the_newer_count_and_to_a_newer_map() {
    let (mut old, mut newer) = (owners(), owners());
    let own = |shard: u16| shard == 0;
    newer.give(0, 1);
    let before = old.clone();
    assert!(old.learn(&newer, own));
    assert_eq!((old.lost_since(&before, own), old.get(0)), (vec![0], newer.get(0)));
    // The bucket moves away and back: the count is greater, and the owner is the same.
    let mut back = newer.clone();
    back.give(0, 0);
    let mut older = owners();
    assert!(older.learn(&back, own) && older.lost_since(&owners(), own).is_empty());
    assert_eq!(older.get(0), back.get(0));
    // A newer version of the map, with one more shard.
    let mut next = Owners { version: 4, shards: 5, ..owners() };
    next.give(0, 4);
    let mut stale = owners();
    assert!(!stale.learn(&next, own) && stale.give_way(&next, own, own));
    assert_eq!(stale.lost_since(&owners(), own), [0]);
    assert!(!stale.give_way(&next, own, own), "nothing is left");
    // In the newer version, the shard itself belongs to another node.
    let same = Owners { version: 4, ..owners() };
    let (mut stale, is_first) =
        (owners(), |bucket: &u16| owners().get(*bucket).unwrap().shard == 0);
    assert!(!stale.give_way(&same, own, own) && stale.give_way(&same, own, |_| false));
    let lost = stale.lost_since(&owners(), own);
    assert_eq!(lost, (0..BUCKETS).filter(is_first).collect::<Vec<_>>());
}

#[test]
fn a_copy_for_a_node_contains_none_of_the_shards_that_it_lost() {
    let of = |owners: &Owners, shard: u16| {
        (0..BUCKETS).filter(|bucket| owners.get(*bucket).unwrap().shard == shard).count()
    };
    let copy = owners().without(|shard| shard == 0);
    assert_eq!([0, 1, 2].map(|shard| of(&copy, shard)), [0, 512, 256]);
    assert_eq!(copy.shards(), owners().shards());
    assert_eq!(owners().without(|_| false), owners());
    let copy = owners().without(|shard| shard < 4);
    assert_eq!((of(&copy, 4), copy.shards()), (usize::from(BUCKETS), 5));
    let text = serde_json::to_string(&copy).unwrap();
    assert_eq!(serde_json::from_str::<Owners>(&text).unwrap(), copy);
}

#[test]
fn stored_data_is_checked() {
    let mut some = owners();
    some.give(7, 2);
    let text = serde_json::to_string(&some).unwrap();
    assert_eq!(serde_json::from_str::<Owners>(&text).unwrap(), some);
    let with_shards = |shards| text.replace("\"shards\":4", &format!("\"shards\":{shards}"));
    for bad in [with_shards(2), with_shards(SHARDS_MAX + 1), text.replacen("[0,0],", "", 1)] {
        assert!(serde_json::from_str::<Owners>(&bad).is_err(), "{bad}");
    }
    let most = serde_json::from_str::<Owners>(&with_shards(SHARDS_MAX)).unwrap();
    assert_eq!(most.placement().shards(), SHARDS_MAX);
}
