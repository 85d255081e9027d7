//! Makes a shard that was suspended confirm its pools before it hands out a number.
//!
//! If a node does not answer, other nodes give its numbers to other pools after [`LIST_SPREAD`] and
//! the longest lifetime. A process that was suspended, or whose machine was asleep, would continue
//! with its old list of pools and hand out the same numbers. A shard therefore checks the clock
//! every second ([`TURN`]), and may serve only within [`STILL_MAX`] of its last check. After that,
//! its rows overflow until the list has been read again from its source and the other nodes have
//! been asked about the numbers. If the source or a node does not answer within its time limit, the
//! shard continues without that answer. The other nodes are also asked whether their lists have the
//! shard's numbers in pools. This happens when the shard starts, and after a list change that
//! brought numbers from other nodes. Source: docs/spec/cluster.md, "A suspended node".

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringwell_core::{Millis, NumberRange, PoolId};
use ringwell_directory::without;

use crate::arrivals::{self, LIST_SPREAD};
use crate::canary::{Bug, planted};
use crate::node::Phase;
use crate::platform::Platform;
use crate::shard::Shard;

/// If at most this much time passes between two checks of the clock, a shard continues as before.
const STILL_MAX: Millis = Millis(LIST_SPREAD.0 / 2);

/// The interval between two checks of the clock.
const TURN: Duration = Duration::from_secs(1);

/// The maximum number of promo numbers that are looked up before the next batch is served.
const PIECE_NUMBERS: u32 = 1024;

/// The delay, after a change to the list, before the other nodes are asked. All nodes should have
/// read the new list by then, and the holds caused by the change do not end before [`LIST_SPREAD`].
const LISTS_READ: Millis = Millis(LIST_SPREAD.0 - 2_000);

/// The time limit within which a source of pools must answer.
const LIST_PATIENCE: Duration = Duration::from_secs(5);

/// A shard's pools that share numbers with pools in other nodes' lists. As long as there are such
/// pools, one of the lists is outdated.
#[derive(Debug)]
struct Conflict {
    pools: BTreeSet<PoolId>,
    /// The time at which the other nodes are asked next.
    ask_at: Option<Millis>,
}

/// Confirms the shard's pools after each suspension, until the shard ends. If there are no other
/// nodes, there is nothing to confirm.
pub async fn run<P: Platform>(shard: Rc<Shard<P>>) {
    if shard.node.others().is_empty() || planted(Bug::SuspensionIgnored) {
        return;
    }
    let mut confirmed = shard.now();
    let ask_at = Some(confirmed).filter(|_| !planted(Bug::StartUnconfirmed));
    let conflict = RefCell::new(Conflict { pools: BTreeSet::new(), ask_at });
    let mut seen = 0;
    loop {
        let until = confirmed + STILL_MAX;
        let changes = shard.node.held_changes.load(Ordering::Relaxed);
        if changes != seen && !planted(Bug::ArrivalsUnconfirmed) {
            seen = changes;
            conflict.borrow_mut().ask_at.get_or_insert(confirmed + LISTS_READ);
        }
        shard.engine.borrow_mut().serve_until(until);
        // While the node starts, it may still lack the records of buckets that have moved to other
        // nodes.
        let is_due = conflict.borrow().ask_at.is_some_and(|at| shard.now() >= at);
        if is_due && shard.node.phase() != Phase::Starting {
            ask_others(&shard, &conflict, false).await;
        }
        if shard.now() <= until {
            shard.platform.sleep_until(shard.platform.moment() + TURN).await;
        }
        if shard.now() > until {
            while !took_turns(&shard, confirm(&shard, &conflict)).await {}
        }
        confirmed = shard.now();
    }
}

/// Completes `work`, however long it takes. Returns `false` if the shard was suspended in the
/// meantime.
async fn took_turns<P: Platform>(shard: &Shard<P>, work: impl Future<Output = ()>) -> bool {
    let mut work = pin!(work);
    let (mut last, mut is_steady) = (shard.now(), true);
    loop {
        let is_done = shard.platform.within(TURN, work.as_mut()).await.is_some();
        let now = shard.now();
        is_steady &= now <= last + STILL_MAX;
        last = now;
        if is_done {
            return is_steady;
        }
    }
}

async fn confirm<P: Platform>(shard: &Shard<P>, conflict: &RefCell<Conflict>) {
    tracing::warn!(
        shard = shard.id,
        "this shard stalled: its rows get overflow numbers until the list of pools has been \
         reloaded and the other nodes have been asked about its numbers"
    );
    let Shard { platform, node, .. } = shard;
    let request = node.reload_requests.ask();
    if platform.within(LIST_PATIENCE, node.reload_requests.wait(request)).await.is_none() {
        tracing::warn!(
            shard = shard.id,
            "the list of pools could not be reloaded: the shard continues with the current list"
        );
    }
    ask_others(shard, conflict, true).await;
    if conflict.borrow().pools.is_empty() {
        tracing::info!(
            shard = shard.id,
            "the shard's pools are confirmed: numbers are handed out again"
        );
    }
}

/// Asks the other nodes about the shard's numbers, and holds pools if necessary. If there is a
/// conflict, the nodes are asked again before the holds end. Set `may_be_locked` after a
/// suspension.
async fn ask_others<P: Platform>(
    shard: &Shard<P>,
    conflict: &RefCell<Conflict>,
    may_be_locked: bool,
) {
    let Shard { platform, node, peers, .. } = shard;
    let had = std::mem::take(&mut conflict.borrow_mut().pools);
    let free = async |numbers: &[NumberRange]| free_numbers(shard, numbers).await;
    let mut has =
        arrivals::confirm(platform, node, peers, shard.id, (&had, may_be_locked), free).await;
    if planted(Bug::ConflictIgnored) {
        has.clear();
    }
    if had.is_empty() && !has.is_empty() {
        tracing::error!(
            shard = shard.id,
            "numbers in this shard's pools are in pools in another node's list: these pools hand \
             out only overflow numbers until the lists agree. If the list is in a file, copy the \
             newest one to all nodes, and send SIGHUP to each of them. If it is in a database, let \
             all nodes reach the same database"
        );
    } else if has.is_empty() && !had.is_empty() {
        tracing::info!(shard = shard.id, "the lists of pools agree again");
    }
    let ask_at = (!has.is_empty()).then(|| shard.now() + LIST_SPREAD);
    conflict.replace(Conflict { pools: has, ask_at });
}

/// Returns `numbers` without those that are locked in this shard.
async fn free_numbers<P: Platform>(shard: &Shard<P>, numbers: &[NumberRange]) -> Vec<NumberRange> {
    let mut free = Vec::new();
    for piece in numbers.iter().flat_map(|range| range.pieces(PIECE_NUMBERS)) {
        let locked = shard.locked_in(piece).into_iter();
        let locked: Vec<_> = locked.filter_map(|slot| NumberRange::new(slot.number, 1)).collect();
        free.extend(without(piece, &locked));
        shard.platform.turn().await;
    }
    free
}
