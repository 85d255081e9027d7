//! The taker's side of a move. Everything that the giver sends is checked.

use std::rc::Rc;
use std::sync::Arc;

use ringwell_core::{Millis, PoolId, Retired, Slot};
use ringwell_directory::{Owner, Owners};
use ringwell_engine::Engine;
use tokio::sync::{MutexGuard, oneshot};

use super::owners::{digest, use_owners};
use super::payload::{Adopted, Prepare, Take, in_time_of, read_answer, read_hold, read_number};
use crate::arrivals;
use crate::canary::{Bug, planted};
use crate::change;
use crate::kept::{read_served, write_gaps, write_served};
use crate::message::Message;
use crate::node::{JournalState, Node, Phase};
use crate::platform::{Platform, to_its_end};
use crate::queue::Peers;
use crate::shard::Shard;
use crate::store::Gaps;

/// Checks whether this node can take the buckets in `wanted`.
///
/// # Errors
/// The reason for a refusal, as text for the operator who moves the buckets.
pub fn prepare(node: &Node, wanted: &Prepare) -> Result<(), String> {
    let owners = node.owners().ok_or("that server is not a node of a cluster")?;
    if !node.is_own(wanted.shard) {
        return Err(format!("shard {} does not belong to that node", wanted.shard));
    }
    if owners.version() != wanted.version {
        let (own, other) = (owners.version(), wanted.version);
        return Err(format!("the cluster files differ: version {own} there, {other} here"));
    }
    node.check_newest(owners.version())?;
    if node.phase() != Phase::Serving {
        return Err("the node is starting or stopping".to_owned());
    }
    let mut journals = node.journals();
    if !journals.any(|(shard, state)| shard == wanted.shard && state == JournalState::Writing) {
        return Err("the shard's journal does not accept writes".to_owned());
    }
    if digest(&node.directory(), &wanted.buckets) != wanted.digest {
        return Err("the two nodes have different lists of the pools in these buckets".to_owned());
    }
    arrivals::note_prepared(node, &wanted.buckets);
    Ok(())
}

/// Makes one of this node's shards adopt the previous owner's state, and returns once that state is
/// durable.
///
/// # Errors
/// The reason for a failure, as text for the operator.
pub async fn adopt(peers: &Peers, adopted: Adopted) -> Result<(), String> {
    let (reply, answer) = oneshot::channel();
    let shard = adopted.shard;
    if !peers.send_when_there_is_room(shard, Message::Adopt { adopted, reply }).await {
        return Err(format!("that node has no shard {shard}"));
    }
    answer.await.map_err(|_| "the shard is stopping".to_owned())?
}

/// Does the work of [`adopt`] on the shard's thread.
///
/// # Errors
/// Returns the same errors as [`adopt`].
pub async fn adopt_here<P: Platform>(thread: Rc<Shard<P>>, adopted: Adopted) -> Result<(), String> {
    let no_writes = || "the shard's journal does not accept writes".to_owned();
    if thread.node.owners().is_none_or(|owners| owners.version() != adopted.version) {
        return Err("the cluster files differ".to_owned());
    }
    let (here, there) = (thread.now(), Millis(adopted.at));
    let read = |word| {
        let mut known = read_number(word, here)?;
        known.visitor = known.visitor.filter(|_| !planted(Bug::AdoptForgets));
        known.slot.locked_until = in_time_of(known.slot.locked_until, here, there);
        Some(known)
    };
    let numbers: Option<Vec<_>> = adopted.numbers.iter().map(read).collect();
    let read_answer = |word| read_answer(word, here, there);
    let answers: Option<Vec<_>> = adopted.answers.iter().map(read_answer).collect();
    let (Some(numbers), Some(answers)) = (numbers, answers) else {
        return Err("the request contains an invalid promo number".to_owned());
    };
    for retired in &numbers {
        let adopt = |engine: &mut Engine, now| {
            // Once the buckets are accepted, this shard may have handed the number out, so state
            // that arrives again is ignored.
            let is_late = is_taken(&thread, &adopted);
            is_late || engine.adopt(now, &as_known_here(engine, retired))
        };
        change::when_there_is_room(&thread, adopt).await.ok_or_else(no_writes)?;
    }
    for entry in answers.iter().filter(|_| !planted(Bug::AdoptForgets)) {
        let adopt = |engine: &mut Engine, now| {
            is_taken(&thread, &adopted) || engine.adopt_answer(now, entry)
        };
        change::when_there_is_room(&thread, adopt).await.ok_or_else(no_writes)?;
    }
    for (pool, until) in adopted.holds {
        let (pool, until) = (PoolId(pool), in_time_of(Millis(until), here, there));
        change::when_there_is_room(&thread, |engine, now| engine.hold_pool(now, pool, until))
            .await
            .ok_or_else(no_writes)?;
    }
    let group = thread.engine.borrow().newest_group();
    thread.commit_soon();
    if planted(Bug::AdoptUnstored) {
        return Ok(());
    }
    thread.commit.wait(group).await.map_err(|_| no_writes())
}

/// Reduces an allocation to its lockout if the number is already in rotation here, in another pool
/// and with a different allocation. Look-ups find the complete allocation on the shard that made
/// it.
fn as_known_here(engine: &Engine, known: &Retired) -> Retired {
    let (rules, number) = (engine.shard(), known.slot.number);
    let pool = rules.find(number).and_then(|slot| rules.pool_of(slot));
    // If this node's data is from before the bucket left, the number is still in the same pool when
    // the bucket comes back.
    let is_elsewhere = pool.is_some_and(|pool| rules.pool_id(pool) != known.pool);
    match rules.newest(number).filter(|_| is_elsewhere) {
        Some(newest) if newest.allocated_at != known.slot.allocated_at => Retired {
            slot: Slot { allocated_at: Millis::ZERO, ..known.slot },
            local_at: Millis::ZERO,
            visitor: None,
            ..*known
        },
        Some(_) | None => *known,
    }
}

/// Whether the buckets were already accepted, in this move or a later one. A node accepts all
/// buckets of a move or none.
fn is_taken<P: Platform>(thread: &Shard<P>, adopted: &Adopted) -> bool {
    let node = &thread.node;
    let Some(owners) = node.owners() else { return false };
    let directory = thread.directory();
    adopted.buckets.iter().any(|(bucket, owner)| {
        let is_it = |known: Owner| known == *owner && node.is_returned(*bucket);
        let is_known = |known: Owner| known.moves >= owner.moves;
        // While the node accepts the buckets, this shard may already serve them although other
        // shards have not processed their arrival yet.
        let is_served = |known: Owner| {
            known.shard != thread.id && directory.placement().of_bucket(*bucket) == thread.id
        };
        owners.get(*bucket).is_some_and(|known| {
            (is_known(known) && (!is_it(known) || planted(Bug::ReturnLate)))
                || (is_served(known) && !planted(Bug::ServedAdopts))
        })
    })
}

/// Makes this node the owner of the buckets in `take`. Their previous owner's state must already
/// have been adopted.
///
/// # Errors
/// The reason for a refusal, as text for the operator.
pub async fn take<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    take: Take,
) -> Result<(), String> {
    let (at, node, peers) = (platform.clone(), Arc::clone(node), peers.clone());
    let work = async move { take_now(&at, &node, &peers, &take).await };
    // Runs to completion even if the giver stops waiting or ends.
    to_its_end(platform, work).await.ok_or("the node is stopping")?
}

/// Applies the giver's holds on whole buckets. These holds also cover pools that are added later.
async fn hold_buckets(node: &Node, peers: &Peers, take: &Take) -> Result<(), String> {
    let Some((_, first)) = take.buckets.first().filter(|_| !take.holds.is_empty()) else {
        return Ok(());
    };
    let (reply, answer) = oneshot::channel();
    if !peers.send_when_there_is_room(first.shard, Message::Ping(reply)).await {
        return Err("the shard is stopping".to_owned());
    }
    let now = answer.await.map_err(|_| "the shard is stopping".to_owned())?;
    let mut holds = node.bucket_holds();
    let taken = |bucket: u16| take.buckets.iter().any(|(of, _)| *of == bucket);
    for (bucket, hold) in take.holds.iter().map(|word| read_hold(*word, now)) {
        if taken(bucket) {
            holds.add(bucket, hold);
        }
    }
    node.set_bucket_holds(holds);
    Ok(())
}

async fn take_now<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    take: &Take,
) -> Result<(), String> {
    let (_one, mut owners) = owners_to_change(node, take).await?;
    node.check_newest(owners.version())?;
    if let Some((bucket, _)) = take.buckets.iter().find(|(_, owner)| !node.is_own(owner.shard)) {
        return Err(format!("bucket {bucket} is meant for another node's shard"));
    }
    let mut taken = 0;
    for (bucket, owner) in &take.buckets {
        let known = owners.get(*bucket).map_or(0, |known| known.moves);
        let is_stale = planted(Bug::StaleTake) && known > owner.moves;
        let moves = if is_stale { known + 1 } else { owner.moves };
        taken += usize::from(owners.take(*bucket, Owner { moves, ..*owner }));
    }
    if taken == 0 {
        // Either an earlier request already handed the buckets over but its answer was lost, or the
        // buckets no longer belong to this node.
        let own = |bucket| owners.get(bucket).is_some_and(|owner| node.is_own(owner.shard));
        let is_gone = take.buckets.iter().any(|(bucket, _)| !own(*bucket));
        return if is_gone {
            Err("the buckets have moved on, or were taken back".to_owned())
        } else {
            Ok(())
        };
    }
    if !planted(Bug::TakenNotHeld) {
        hold_buckets(node, peers, take).await?;
    }
    let buckets = take.buckets.iter().map(|(bucket, _)| *bucket);
    arrivals::hold_taken(platform, node, peers, buckets).await;
    if !take.gaps.is_empty() {
        let mut gaps = node.gaps();
        gaps.merge(&Gaps::from(take.gaps.clone()));
        write_gaps(platform, node, gaps).await?;
    }
    change_owners(platform, node, peers, owners, take).await?;
    tracing::info!(buckets = taken, "buckets have arrived with their lockouts");
    Ok(())
}

/// Lets the previous owner take back buckets that this node has not accepted. After that, this node
/// never accepts them in that move.
///
/// # Errors
/// The reason for a refusal, as text for the operator.
pub async fn abandon<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    back: Take,
) -> Result<(), String> {
    let (at, node, peers) = (platform.clone(), Arc::clone(node), peers.clone());
    let work = async move { abandon_now(&at, &node, &peers, &back).await };
    to_its_end(platform, work).await.ok_or("the node is stopping")?
}

async fn abandon_now<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    back: &Take,
) -> Result<(), String> {
    let (_one, mut owners) = owners_to_change(node, back).await?;
    let abandoned = node.abandoned();
    let is_known = |bucket: u16, owner: &Owner| {
        planted(Bug::BackWithoutState) || abandoned.get(&bucket) == Some(owner)
    };
    let mut learnt = 0;
    for (bucket, owner) in &back.buckets {
        let known = owners.get(*bucket).ok_or("there is no such bucket")?;
        if node.is_own(owner.shard) || (known.moves < owner.moves && node.is_own(known.shard)) {
            return Err("the node has accepted the buckets; the move is about to end".to_owned());
        }
        // An owner equal to `owner` does not prove that the bucket was given back before: a later
        // move or a new cluster file may have set that owner.
        let is_same = known == *owner && is_known(*bucket, owner);
        if known.moves >= owner.moves && !is_same {
            return Err("the node has accepted the buckets; they have moved on since".to_owned());
        }
        learnt += usize::from(owners.take(*bucket, *owner));
    }
    if learnt == 0 {
        return Ok(());
    }
    node.add_abandoned(&back.buckets);
    change_owners(platform, node, peers, owners, back).await
}

/// Returns the owners, locked, if this node can change them for `moved`.
async fn owners_to_change<'a>(
    node: &'a Node,
    moved: &Take,
) -> Result<(MutexGuard<'a, ()>, Owners), String> {
    if node.phase() != Phase::Serving {
        // Holds that result from a new cluster file are not recorded until the node serves.
        return Err("the node is starting or stopping".to_owned());
    }
    let one = node.changes.lock().await;
    let owners = node.owners().ok_or("that server is not a node of a cluster")?;
    if owners.version() != moved.version {
        return Err("the cluster files differ".to_owned());
    }
    Ok((one, owners))
}

/// Records the `owners`, and then uses them: the move of the buckets in `moved` has ended.
async fn change_owners<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    owners: Owners,
    moved: &Take,
) -> Result<(), String> {
    let served = read_served(platform, node).map_err(|error| error.to_string())?;
    let leaving = served.map(|served| served.leaving).unwrap_or_default();
    write_served(platform, node, &owners, leaving).await.map_err(|error| error.to_string())?;
    use_owners(platform, node, peers, owners).await.map_err(|error| error.to_string())?;
    node.unprepare(moved.buckets.iter().map(|(bucket, _)| *bucket));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests report failures by panicking")]

    use ringwell_config::demo_pools;
    use ringwell_core::{Position, VisitorId};
    use ringwell_directory::Directory;
    use ringwell_engine::{Moment, Past, Restore, Step};
    use ringwell_journal::Tip;

    use super::*;

    #[test]
    fn a_number_in_rotation_here_adopts_only_the_lockout_of_another_pool_s_allocation() {
        let (now, lifetime) = (Millis(1_000_000), Millis(5_000));
        let directory = Directory::new(1, demo_pools(1, 3, lifetime).unwrap(), 1).unwrap();
        let pool = directory.pools_of(0).next().unwrap();
        let number = pool.numbers()[0].first();
        let specs = vec![crate::rows::spec(pool)];
        let (mut engine, _) = Restore::new(specs, 10).finish(Tip::FIRST.raise_epoch(), now, false);
        let (allocated_at, locked_until) = (Millis(999_000), Millis(1_004_000));
        let slot = Slot { number, allocated_at, locked_until, position: Position::NONE };
        let known = Retired { slot, local_at: allocated_at, pool: PoolId(99), visitor: None };
        assert!(engine.adopt(now, &as_known_here(&engine, &known)));
        let newest = engine.shard().newest(number).unwrap();
        assert_eq!((newest.allocated_at, newest.locked_until), (Millis::ZERO, locked_until));
        let (_, step) = engine.attribution(number, Moment::Wall(Millis(1)), &[]);
        assert_eq!(step, Step::Done(Past::default()), "no visitor had it from the beginning");
        assert!(!engine.is_doubted(number));
        assert!(engine.hold_pool(now, pool.id(), locked_until));
        assert!(engine.is_doubted(number));
        // An allocation that is already known keeps its visitor.
        let slot = Slot { allocated_at: newest.allocated_at, ..slot };
        let same = Retired { slot, visitor: Some(VisitorId([1; 16])), ..known };
        assert_eq!(as_known_here(&engine, &same), same);
    }
}
