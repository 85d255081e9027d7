//! Tests buckets that return to a node whose data does not show that they had moved away.

use std::collections::BTreeMap;
use std::time::Duration;

use ringwell_config::demo_pools;
use ringwell_core::{PoolId, PromoNumber};
use ringwell_directory::Directory;
use ringwell_driver::moves::{self, MoveError};
use ringwell_driver::node::Begun;
use ringwell_driver::{Path, Platform, change};
use ringwell_engine::Outcome;

use crate::moves::{buckets, give, hand_out, pools, served};
use crate::pair::{LIFETIME, LIFETIME_AND_MORE, Links, Pair, Side, allocate, locked};
use crate::support::Virtual;

/// Hands out a number from each of these pools. Always uses the same batch, so a second invocation
/// repeats the first.
fn hand_out_of(side: &Side, shard: u16, of: &[PoolId]) -> BTreeMap<PoolId, PromoNumber> {
    hand_out(side, shard, 1).into_iter().filter(|(pool, _)| of.contains(pool)).collect()
}

/// The next owner has accepted the buckets and returns them. The first owner has not recorded that
/// the first move is complete, or that the buckets are being returned. It must not take the buckets
/// back without their lockouts.
#[test]
pub fn buckets_on_their_way_back_are_not_taken_back_without_their_lockouts() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b, moving, moved) = (&pair.a, &pair.b, buckets(&pair), pools(&pair.a, 0));
        pair.a_to_b.set(Links::Deaf(Path::Take));
        give(&pair, 2).await.unwrap_err();
        let given = hand_out_of(b, 2, &moved);
        pair.a_to_b.set(Links::Up);
        pair.b_to_a.set(Links::Without(Path::Take));
        moves::give(&platform, &b.node, &b.peers, moving, 0).await.unwrap_err();
        let aborted = moves::abort(&platform, &a.node, &a.peers).await;
        assert!(matches!(aborted, Err(MoveError::NotTakenBack { shard: 2, .. })), "{aborted:?}");
        let has = |side, shard| moved.iter().all(|pool| pools(side, shard).contains(pool));
        assert!(!has(a, 0) && !has(b, 2));
        // Both moves complete.
        pair.b_to_a.set(Links::Up);
        for side in [a, b] {
            side.resume_moves(&platform);
        }
        platform.sleep_until(platform.moment() + Duration::from_secs(3)).await;
        assert!(served(a).leaving.is_empty() && served(b).leaving.is_empty());
        assert!(has(a, 0) && !has(b, 2));
        assert!(given.values().all(|number| locked(a.shard(0)).contains_key(number)));
    });
}

/// While buckets were being returned to the first owner, its data was replaced by an older copy.
/// The buckets must bring their lockouts and answers back.
#[test]
pub fn buckets_that_come_back_to_older_data_bring_lockouts_and_answers() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b, moving, moved) = (&pair.a, &pair.b, buckets(&pair), pools(&pair.a, 0));
        let before = a.node.owners().unwrap();
        give(&pair, 2).await.unwrap();
        let given = hand_out_of(b, 2, &moved);
        pair.b_to_a.set(Links::Without(Path::Adopt));
        moves::give(&platform, &b.node, &b.peers, moving, 0).await.unwrap_err();
        platform.sleep_until(platform.moment() + Duration::from_secs(1)).await;
        let placement = before.placement();
        let old = move |list: &Directory| Ok(list.moved(placement));
        change::apply(&platform, &a.node, &a.peers, old).await.unwrap();
        a.node.set_owners(before);
        assert_eq!(moves::learn_from(&platform, &a.node, &a.peers, 2).await, Some(true));
        pair.b_to_a.set(Links::Up);
        b.resume_moves(&platform);
        platform.sleep_until(platform.moment() + Duration::from_secs(3)).await;
        assert!(served(b).leaving.is_empty());
        assert!(given.values().all(|number| locked(a.shard(0)).contains_key(number)));
        for (pool, number) in &given {
            // The shard may have no record of the number's last visitor.
            let repeated = allocate(a.shard(0), *pool, 1);
            let is_same = repeated == Outcome::Kept { number: *number };
            assert!(is_same || matches!(repeated, Outcome::Exhausted { .. }), "{repeated:?}");
        }
    });
}

/// A shard may serve buckets before the node has finished accepting them: its other shards may be
/// busy, or its disk slow. If the giver then sends the state again, the shard's own allocations are
/// newer.
#[test]
pub fn state_that_arrives_again_while_a_shard_already_serves_the_buckets_is_ignored() {
    let platform = Virtual::default();
    let pools_of_two = demo_pools(40, 2, LIFETIME).unwrap();
    let pair = Pair::with(&platform, pools_of_two, |_| Begun::default());
    platform.run(async {
        let (a, b, moved) = (&pair.a, &pair.b, pools(&pair.a, 0));
        let first = hand_out(a, 0, 1);
        pair.a_to_b.set(Links::Without(Path::Take));
        give(&pair, 2).await.unwrap_err();
        let placement = a.node.owners().unwrap().placement();
        let next = move |list: &Directory| Ok(list.moved(placement));
        change::apply(&platform, &b.node, &b.peers, next).await.unwrap();
        platform.sleep_until(platform.moment() + LIFETIME_AND_MORE).await;
        for pool in &moved {
            let outcomes = [2, 3].map(|batch| allocate(b.shard(2), *pool, batch));
            assert!(outcomes.contains(&Outcome::Kept { number: first[pool] }));
        }
        let newest = || -> Vec<_> {
            let engine = b.shard(2).engine.borrow();
            first.values().map(|number| engine.shard().newest(*number).unwrap()).collect()
        };
        let before = newest();
        pair.a_to_b.set(Links::Up);
        a.resume_moves(&platform);
        platform.sleep_until(platform.moment() + Duration::from_secs(3)).await;
        assert!(served(a).leaving.is_empty());
        assert_eq!(newest(), before);
    });
}

/// A node must not take buckets if another node has a newer version of the map, in which the
/// buckets may belong to a third node.
#[test]
fn no_bucket_moves_to_a_node_that_has_heard_of_a_newer_version_of_the_map() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let mut owners = serde_json::to_value(b.node.owners().unwrap()).unwrap();
        owners["version"] = 2.into();
        let newer = serde_json::json!({ "owners": owners }).to_string();
        b.answer(Path::Owners, newer.into()).await.unwrap();
        let refused = moves::give(&platform, &a.node, &a.peers, buckets(&pair), 2).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("another node uses version 2"), "{refused}");
    });
}
