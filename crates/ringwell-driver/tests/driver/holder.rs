//! Tests look-ups of a number's holder that need answers from two nodes. One of the nodes is down
//! for part of the time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ringwell_config::demo_pools;
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{Directory, RingPool, bucket};
use ringwell_driver::holder::{HolderError, Joined, holder};
use ringwell_driver::message::Message;
use ringwell_driver::node::{Begun, JournalState, Phase};
use ringwell_driver::store::Gaps;
use ringwell_driver::{Platform, moves};
use ringwell_engine::{Missing, Moment};
use tokio::sync::oneshot;

use crate::moves::{give, hand_out};
use crate::pair::{LIFETIME, Links, Pair, Side};
use crate::support::Virtual;

fn wall(platform: &Virtual) -> u64 {
    u64::try_from(platform.wall().as_millis()).unwrap()
}

async fn ask(side: &Side, number: PromoNumber, at: u64) -> Joined {
    holder(&side.node, &side.peers, number, Millis(at)).await.unwrap()
}

/// Each pool has one number, so its next visitor gets the same number.
fn pair_with_one_number_each(platform: &Virtual) -> Pair {
    let pools = demo_pools(40, 1, LIFETIME).unwrap();
    Pair::with(platform, pools, |_| Begun::default())
}

/// Returns the list of pools without `pool`, and with its number in a pool of shard 1 instead.
fn moved_to_shard_1(side: &Side, pool: PoolId, number: PromoNumber) -> Arc<Directory> {
    let before = side.node.directory();
    let other = before.pools_of(1).next().unwrap().id();
    let mut fields = before.pool(other).unwrap().fields().clone();
    fields.numbers.push(NumberRange::new(number, 1).unwrap());
    Arc::new(before.change(vec![RingPool::new(fields).unwrap()], &[pool]).unwrap())
}

/// Lets this many minutes pass.
async fn pass(platform: &Virtual, minutes: u64) {
    platform.sleep_until(platform.moment() + Duration::from_mins(minutes)).await;
}

/// The numbers of node a have moved to node b. Node b sends two requests to each of node a's
/// shards. The first asks for the allocations that the shard made, and the second for the records
/// of allocations that node b knows. Node a answers all, some or none of these requests.
#[test]
fn a_visitor_is_named_if_his_node_answers_only_the_second_question() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let given = hand_out(a, 0, 1);
        let at = wall(&platform) + 10;
        platform.sleep_until(platform.moment() + Duration::from_millis(100)).await;
        give(&pair, 2).await.unwrap();
        for number in given.into_values() {
            let present = ask(b, number, at).await;
            let named = present.past.held.clone().unwrap();
            assert!(named.pool.is_some(), "{present:?}");
            for away_for in 0..=4 {
                pair.b_to_a.set(Links::GoneFor(away_for));
                let joined = ask(b, number, at).await;
                let held = joined.past.held.as_ref();
                let is_right = held.is_some_and(|it| it.allocated_at == named.allocated_at);
                let is_unknown = held.is_none() && joined.past.missing.is_some();
                assert!(is_right || is_unknown, "away for {away_for} requests: {joined:?}");
            }
            pair.b_to_a.set(Links::Up);
        }
    });
}

/// The starting node's data may be an older copy, which only the other nodes can detect.
#[test]
pub fn a_starting_node_names_no_visitor() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let given = hand_out(a, 0, 1);
        let at = wall(&platform) + 10;
        platform.sleep_until(platform.moment() + Duration::from_millis(100)).await;
        for number in given.into_values() {
            a.node.enter(Phase::Starting);
            for side in [a, b] {
                let refused = holder(&side.node, &side.peers, number, Millis(at)).await;
                let Err(HolderError::Unanswered(reason)) = refused else { panic!("{refused:?}") };
                assert!(reason.contains("the node is starting"), "{reason}");
            }
            a.node.enter(Phase::Serving);
            assert!(ask(b, number, at).await.past.held.is_some());
        }
    });
}

/// The number goes to its next visitor on another shard, which has no record of the previous
/// visitor. Look-ups must still find the end of the previous visitor's allocation.
#[test]
fn the_end_of_a_visitor_is_known_after_the_number_has_moved() {
    let platform = Virtual::default();
    let pair = pair_with_one_number_each(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let given = hand_out(a, 0, 1);
        let first = wall(&platform) + 10;
        // The lockouts end before the numbers move.
        pass(&platform, 2).await;
        give(&pair, 2).await.unwrap();
        pass(&platform, 2).await;
        let next = wall(&platform);
        let mut again = Vec::new();
        for batch in 2..4 {
            again.extend(hand_out(b, 2, batch).into_values());
            pass(&platform, 2).await;
        }
        let mut both = 0;
        for number in given.into_values().filter(|number| again.contains(number)) {
            for side in [a, b] {
                let joined = ask(side, number, first).await;
                let held = joined.past.held.clone().unwrap_or_else(|| panic!("{joined:?}"));
                assert!(held.allocated_wall.0 < first, "{held:?}");
                let end = held.next_allocated_at.map_or(0, |end| end.0);
                let second = ask(side, number, end).await.past.held.unwrap();
                assert!(end >= next, "{end} {next} {held:?}");
                assert_eq!(second.allocated_wall.0, end);
                both += 1;
            }
        }
        assert!(both > 0, "no number was handed out again");
    });
}

/// Node a's wall clock is ahead. According to the clocks, its allocations are therefore newer than
/// those of node b, which has taken the numbers over since. Look-ups must still name node b's
/// visitors.
#[test]
pub(crate) fn the_owner_knows_the_newest_visitor_even_if_a_clock_is_wrong() {
    let platform = Virtual::default();
    let pair = pair_with_one_number_each(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let later = async || pass(&platform, 5).await;
        a.shard(0).platform.1.set(Duration::from_mins(15));
        let first = hand_out(a, 0, 1);
        later().await;
        give(&pair, 2).await.unwrap();
        later().await;
        let second = hand_out(b, 2, 2);
        let at = wall(&platform);
        later().await;
        later().await;
        for (pool, number) in first {
            assert_eq!(second[&pool], number);
            for side in [a, b] {
                let joined = ask(side, number, wall(&platform)).await;
                let held = joined.past.held.clone().unwrap_or_else(|| panic!("{joined:?}"));
                assert_eq!((held.pool, held.allocated_wall.0), (Some(pool), at), "{joined:?}");
            }
        }
    });
}

/// Node b's wall clock is ahead, so its allocations seem newer than node a's later ones. Afterwards
/// the numbers move to another shard of node b. That shard has handed none of them out, but has
/// recorded that node a's allocations are the newest.
#[test]
pub(crate) fn an_owner_without_allocations_knows_the_newest_visitor_before_the_numbers_arrived() {
    let platform = Virtual::default();
    let pair = pair_with_one_number_each(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let later = async || pass(&platform, 5).await;
        b.shard(2).platform.1.set(Duration::from_mins(15));
        give(&pair, 2).await.unwrap();
        let first = hand_out(b, 2, 1);
        later().await;
        let buckets = || first.keys().map(|pool| bucket(*pool)).collect();
        moves::give(&platform, &b.node, &b.peers, buckets(), 0).await.unwrap();
        later().await;
        let second = hand_out(a, 0, 2);
        let made = wall(&platform);
        for _ in 0..3 {
            later().await;
        }
        let at = wall(&platform);
        later().await;
        moves::give(&platform, &a.node, &a.peers, buckets(), 3).await.unwrap();
        let mut both = 0;
        for (pool, number) in first.iter().filter(|(pool, number)| second.get(pool) == Some(number))
        {
            for side in [a, b] {
                let joined = ask(side, *number, at).await;
                let held = joined.past.held.clone().unwrap_or_else(|| panic!("{joined:?}"));
                assert_eq!((held.pool, held.allocated_wall.0), (Some(*pool), made), "{joined:?}");
                both += 1;
            }
        }
        assert!(both > 0, "no number was handed out by both nodes");
    });
}

/// Node b took node a's buckets and then lost its data. The numbers that it handed out are unknown,
/// and according to its new data, it does not own the buckets.
#[test]
pub(crate) fn what_was_lost_with_buckets_that_had_moved_in_is_not_kept() {
    let platform = Virtual::default();
    let moved = Pair::new(&platform);
    let pair = Pair::new(&platform);
    platform.run(async {
        give(&moved, 2).await.unwrap();
        let owners = || moves::copy_owners(&moved.a.node, Vec::new()).unwrap();
        let (a, b) = (&pair.a, &pair.b);
        let number = *hand_out(a, 0, 1).values().next().unwrap();
        // The lockout is over, so another visitor may have received the number from node b.
        let began = Millis(wall(&platform) + 120_000);
        pass(&platform, 5).await;
        let mut gaps = Gaps::default();
        gaps.add(began, Millis(wall(&platform)));
        b.node.set_gaps(gaps);
        moves::learn(&platform, &a.node, &a.peers, owners()).await;
        let at = began.0 + 1000;
        // Node b may lack the record that it owns the buckets.
        for is_known in [false, true] {
            if is_known {
                moves::learn(&platform, &b.node, &b.peers, owners()).await;
            }
            let lost = ask(a, number, at).await.past;
            assert_eq!((lost.held, lost.missing), (None, Some(Missing::NotKept)));
        }
    });
}

/// Node b took node a's buckets, and then lost its data. It may have ended the lockout on request
/// and handed the number out again, although node a has recorded only the lockout.
#[test]
fn a_lockout_that_the_owner_may_have_ended_names_no_visitor() {
    let platform = Virtual::default();
    let moved = Pair::new(&platform);
    let pairs = [false, true].map(|is_own| (is_own, Pair::new(&platform)));
    platform.run(async {
        give(&moved, 2).await.unwrap();
        let owners = || moves::copy_owners(&moved.a.node, Vec::new()).unwrap();
        for (is_own, Pair { a, b, .. }) in &pairs {
            let number = *hand_out(a, 0, 1).values().next().unwrap();
            let began = Millis(wall(&platform) + 10);
            platform.sleep_until(platform.moment() + Duration::from_millis(LIFETIME.0 / 2)).await;
            let at = wall(&platform);
            let mut gaps = Gaps::default();
            gaps.add(began, Millis(at));
            moves::learn(&platform, &a.node, &a.peers, owners()).await;
            assert!(ask(a, number, at).await.past.held.is_some());
            b.node.set_gaps(gaps);
            if *is_own {
                // Only the journal was lost.
                b.shard(2).use_directory(moved.b.node.directory());
            } else {
                moves::learn(&platform, &b.node, &b.peers, owners()).await;
            }
            let lost = ask(a, number, at).await.past;
            assert_eq!((lost.held, lost.missing), (None, Some(Missing::NotKept)), "{is_own}");
        }
    });
}

/// A node that has answered with the record is not asked for it again, because its clock may be set
/// between the two queries.
#[test]
pub(crate) fn a_node_that_has_answered_with_the_record_is_not_asked_for_it_again() {
    let platform = Virtual::default();
    let pair = pair_with_one_number_each(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let first = hand_out(a, 0, 1);
        let at = wall(&platform) + 10;
        give(&pair, 2).await.unwrap();
        pass(&platform, 1).await;
        for number in first.into_values() {
            // Each of node a's two shards is asked once.
            pair.b_to_a.set(Links::UpFor(2));
            let joined = ask(b, number, at).await;
            assert!(joined.past.held.is_some_and(|held| held.pool.is_some()));
            assert_eq!(pair.b_to_a.get(), Links::UpFor(0));
        }
    });
}

/// While node b's pools were held, it was uncertain whether node b's own allocations were the
/// newest. Node b therefore did not send them when the pools went back to node a. Only node b can
/// name their visitors.
#[test]
pub(crate) fn a_visitor_whose_allocation_was_in_doubt_when_its_pool_moved_hides_no_later_one() {
    let platform = Virtual::default();
    let pair = pair_with_one_number_each(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let later = async || pass(&platform, 2).await;
        let first = hand_out(a, 0, 1);
        later().await;
        give(&pair, 2).await.unwrap();
        let second = hand_out(b, 2, 2);
        later().await;
        let at = wall(&platform);
        let shard = b.shard(2);
        let now = shard.now();
        for pool in first.keys() {
            assert!(shard.engine.borrow_mut().hold_pool(now, *pool, now + Millis(1)));
        }
        let buckets = first.keys().map(|pool| bucket(*pool)).collect();
        moves::give(&platform, &b.node, &b.peers, buckets, 0).await.unwrap();
        later().await;
        let third = hand_out(a, 0, 3);
        for (pool, number) in first {
            assert_eq!((second[&pool], third[&pool]), (number, number));
            let known = ask(a, number, at).await.past.held.unwrap();
            let newest = ask(a, number, wall(&platform)).await.past;
            pair.a_to_b.set(Links::Gone);
            let unknown = ask(a, number, at).await.past;
            assert_eq!((unknown.held, unknown.missing), (None, Some(Missing::NotKept)));
            // The doubt ended with the number's next allocation.
            assert_eq!(ask(a, number, wall(&platform)).await.past, newest);
            pair.a_to_b.set(Links::Up);
            assert_eq!(ask(a, number, at).await.past.held, Some(known));
        }
    });
}

/// Node b has taken a number over in doubt: it does not have the record of the number's newest
/// allocation, and other nodes may have recorded later ones. The allocation that node b reports may
/// therefore not be the newest.
#[test]
pub(crate) fn an_allocation_without_its_record_may_not_be_the_newest() {
    let platform = Virtual::default();
    let pair = pair_with_one_number_each(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let first = hand_out(a, 0, 1);
        pass(&platform, 2).await;
        give(&pair, 2).await.unwrap();
        let shard = b.shard(2);
        let (now, at) = (shard.now(), Moment::Wall(Millis(wall(&platform))));
        for (pool, number) in first {
            let look_up = async || {
                let (reply, answer) = oneshot::channel();
                let asked = Message::Attribution { number, at, keep_alives: false, reply };
                assert!(b.peers.send(2, asked), "its queue is full");
                answer.await.unwrap().unwrap()
            };
            let sure = look_up().await;
            assert!(sure.held.is_some() && sure.missing.is_none(), "{sure:?}");
            assert!(shard.engine.borrow_mut().hold_pool(now, pool, now + Millis(1)));
            let doubted = look_up().await;
            assert_eq!((doubted.held, doubted.missing), (None, Some(Missing::NotKept)));
            assert_eq!(doubted.later, sure.held.map(|held| held.allocated_at));
        }
    });
}

/// Node a once lost data. A number later came back to node a from node b, and node b has since lost
/// its record of that number. The lost periods must not hide allocations that followed them.
#[test]
pub(crate) fn a_lost_period_hides_no_allocation_that_followed_it() {
    let platform = Virtual::default();
    let pair = pair_with_one_number_each(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let began = wall(&platform);
        let mut gaps = Gaps::default();
        gaps.add(Millis(began - 1000), Millis(began));
        a.node.set_gaps(gaps);
        let later = async || pass(&platform, 2).await;
        later().await;
        let first = hand_out(a, 0, 1);
        later().await;
        give(&pair, 2).await.unwrap();
        later().await;
        let second = hand_out(b, 2, 2);
        let at = wall(&platform) + 10;
        later().await;
        let buckets = first.keys().map(|pool| bucket(*pool)).collect();
        moves::give(&platform, &b.node, &b.peers, buckets, 1).await.unwrap();
        for (pool, number) in first {
            assert_eq!(second[&pool], number);
            // The record of the allocation has left the cluster with the other node.
            let found = holder(&a.node, &a.alone, number, Millis(at)).await.unwrap().past;
            assert_eq!((found.held, found.missing), (None, Some(Missing::NotKept)));
        }
    });
}

/// A node that lost its data may have handed out any number, even a number that has left its pools
/// and whose state was lost.
#[test]
pub(crate) fn a_node_that_lost_its_data_may_have_handed_out_any_number() {
    let platform = Virtual::default();
    let pair = pair_with_one_number_each(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let first = hand_out(a, 0, 1);
        let (pool, number) = first.first_key_value().unwrap();
        pass(&platform, 2).await;
        let next = moved_to_shard_1(a, *pool, *number);
        a.node.use_directory(Arc::clone(&next));
        b.node.use_directory(next);
        let at = wall(&platform);
        let named = ask(a, *number, at).await.past.held.unwrap();
        let lost = |until: u64| {
            let mut gaps = Gaps::default();
            gaps.add(Millis::ZERO, Millis(until));
            b.node.set_gaps(gaps);
        };
        lost(named.allocated_wall.0);
        assert_eq!(ask(a, *number, at).await.past.held, Some(named));
        lost(at);
        let found = ask(a, *number, at).await.past;
        assert_eq!((found.held, found.missing), (None, Some(Missing::NotKept)));
    });
}

#[test]
fn a_process_that_was_replaced_names_no_holder() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let a = &pair.a;
        let number = *hand_out(a, 0, 1).values().next().unwrap();
        let at = Millis(wall(&platform));
        assert!(ask(a, number, at.0).await.past.held.is_some());
        a.node.set_journal(1, JournalState::Taken);
        let refused = holder(&a.node, &a.peers, number, at).await;
        assert!(matches!(refused, Err(HolderError::Unanswered(_))), "{refused:?}");
    });
}

/// A new list moves a number back to a pool of the number's previous owner, but that pool's shard
/// has not read the new list yet. That shard's answer must not count as the owner's answer.
#[test]
pub(crate) fn the_next_owner_is_not_believed_before_it_has_taken_the_number_in() {
    let platform = Virtual::default();
    let pair = pair_with_one_number_each(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let first = hand_out(a, 1, 1);
        let (pool, number) = first.first_key_value().unwrap();
        platform.sleep_until(platform.moment() + Duration::from_millis(100)).await;
        let moving = BTreeSet::from([bucket(*pool)]);
        moves::give(&platform, &a.node, &a.peers, moving, 2).await.unwrap();
        pass(&platform, 2).await;
        assert_eq!(hand_out(b, 2, 2)[pool], *number);
        platform.sleep_until(platform.moment() + Duration::from_millis(100)).await;
        let at = wall(&platform);
        let newest = ask(b, *number, at).await.past.held.unwrap();
        // The new list adds the number to a pool of node a, and omits the pool that contained the
        // number.
        a.node.use_directory(moved_to_shard_1(a, *pool, *number));
        let held = ask(a, *number, at).await.past.held;
        let named = held.map(|held| held.allocated_at);
        assert_eq!(named, Some(newest.allocated_at), "the node that had it before was believed");
    });
}
