//! A shard's part of a directory change. It is processed piece by piece, between batches.

use std::collections::BTreeSet;
use std::rc::Rc;

use ringwell_core::{Millis, NumberRange, PoolId, PoolSpec, Retired, Slot};
use ringwell_directory::{BucketHolds, bucket};
use ringwell_engine::Engine;
use ringwell_journal::position_parts;

use crate::canary::{Bug, planted};
use crate::message::{Known, Step, StepResult};

use crate::platform::Platform;
use crate::rows::spec;
use crate::shard::Shard;

/// The maximum number of pool numbers that are processed before the next batch is served.
/// Processing this many takes about 10 µs.
const PIECE_NUMBERS: u64 = 1024;

/// Like [`PIECE_NUMBERS`], but for numbers that are not in rotation.
const PIECE_RETIRED: usize = 1024;

/// The maximum length of one piece when a number range is searched. Batches are served between the
/// pieces. The shard has states for only a few numbers in a range.
const PIECE_NUMBERS_MAX: u32 = 1024;

/// The maximum number of remembered answers that are processed before the next batch is served.
const PIECE_ANSWERS: u32 = 512;

/// Takes a step.
pub async fn take<P: Platform>(shard: Rc<Shard<P>>, step: Step) -> StepResult {
    match step {
        Step::Leave { removed, smaller } => {
            for (index, id) in removed {
                remove(&shard, index, id);
                shard.platform.turn().await;
            }
            put(&shard, smaller).await
        }
        Step::Report { numbers, includes_free } => {
            let now = shard.now();
            let mut known = known(&shard, &numbers).await;
            known.retain(|retired| includes_free || !retired.slot.is_free(now));
            StepResult::Known(known)
        }
        Step::ReportLocked { numbers } => StepResult::Locked(locked(&shard, &numbers).await),
        Step::ReportAll { numbers, buckets } => report_all(&shard, &numbers, &buckets).await,
        Step::ReportHolds { includes_past } => {
            let from = if includes_past { Millis::ZERO } else { shard.now() };
            StepResult::Holds(shard.engine.borrow().shard().holds(from).collect())
        }
        Step::TellStored => StepResult::Stored(shard.commit.durable()),
        Step::HoldBuckets(holds) => hold_buckets(&shard, &holds).await,
        Step::Enter { known, answers, holds, put: pools } => {
            for (place, retired) in known.into_iter().enumerate() {
                pause_at(&shard, place).await;
                let adopt = |engine: &mut Engine, now| engine.adopt(now, &retired);
                if when_there_is_room(&shard, adopt).await.is_none() {
                    // The journal is full. The state is kept in memory, because the journal may
                    // have free space again before the next startup.
                    shard.engine.borrow_mut().adopt_unrecorded(&retired);
                    shard.changed();
                }
            }
            for (place, entry) in answers.into_iter().enumerate() {
                pause_at(&shard, place).await;
                let adopt = |engine: &mut Engine, now| engine.adopt_answer(now, &entry);
                if when_there_is_room(&shard, adopt).await.is_none() {
                    tracing::warn!(
                        "answers to batches with an `Idempotency-Key` could not be stored: if a \
                         client repeats one of these batches, it may get different numbers"
                    );
                    if let Some(watch) = shard.platform.watch() {
                        watch.answers_lost(shard.id);
                    }
                    break;
                }
            }
            let are_recorded = hold(&shard, holds).await;
            match put(&shard, pools).await {
                StepResult::Taken if !are_recorded => StepResult::Unrecorded,
                result => result,
            }
        }
        Step::Use(directory) => {
            shard.use_directory(directory);
            StepResult::Taken
        }
    }
}

/// Holds these pools until the given times, and returns once the holds are durable. Returns `false`
/// if the journal cannot store them.
async fn hold<P: Platform>(shard: &Shard<P>, holds: Vec<(PoolId, Millis)>) -> bool {
    let (mut are_recorded, is_any) = (true, !holds.is_empty());
    for (place, (pool, until)) in holds.into_iter().enumerate() {
        pause_at(shard, place).await;
        // Includes expired holds; see `Facts::settle_apart`.
        let hold = |engine: &mut Engine, now| engine.hold_pool(now, pool, until);
        if when_there_is_room(shard, hold).await.is_none() {
            shard.engine.borrow_mut().hold_unrecorded(pool, until);
            shard.changed();
            are_recorded = false;
        }
    }
    if !is_any || !are_recorded || planted(Bug::ListsBeforeHolds) {
        return are_recorded;
    }
    let group = shard.engine.borrow().newest_group();
    shard.commit_soon();
    shard.commit.wait(group).await.is_ok()
}

/// Returns the complete state of these numbers and buckets, collected piece by piece. The leaving
/// pools have already left, so this state no longer changes.
async fn report_all<P: Platform>(
    shard: &Shard<P>,
    numbers: &[NumberRange],
    buckets: &[u16],
) -> StepResult {
    let at = shard.now();
    let mut known = known(shard, numbers).await;
    let mut given: BTreeSet<_> = known.iter().map(|retired| retired.slot.number).collect();
    let had = of_buckets(shard, buckets).await;
    known.extend(had.into_iter().filter(|retired| given.insert(retired.slot.number)));
    let mut answers = Vec::new();
    let mut next = shard.engine.borrow().answers_first();
    while let Some(place) = next {
        let is_wanted = |number| given.contains(&number);
        {
            let engine = shard.engine.borrow();
            next = engine.answers_for(place, PIECE_ANSWERS, is_wanted, &mut answers);
        }
        shard.platform.turn().await;
    }
    if planted(Bug::FactsMissGroup) {
        let newest = shard.engine.borrow().newest_group();
        known.retain(|known| position_parts(known.slot.position).0 < newest);
    }
    let holds = shard.engine.borrow().shard().holds(Millis::ZERO).collect();
    StepResult::All(Known { numbers: known, answers, at }, holds)
}

/// Holds the pools of these buckets without writing records, because `cluster-map.json` contains
/// the holds.
async fn hold_buckets<P: Platform>(shard: &Shard<P>, holds: &BucketHolds) -> StepResult {
    let directory = shard.node.directory();
    for (place, pool) in directory.pools_of(shard.id).enumerate() {
        pause_at(shard, place).await;
        if let Some(until) = holds.until(pool.id(), spec(pool).lockout) {
            shard.engine.borrow_mut().hold_unrecorded(pool.id(), until);
            shard.changed();
        }
    }
    StepResult::Taken
}

/// Yields to waiting batches after every [`PIECE_RETIRED`] entries.
async fn pause_at<P: Platform>(shard: &Shard<P>, place: usize) {
    if place % PIECE_RETIRED == PIECE_RETIRED - 1 {
        shard.platform.turn().await;
    }
}

fn remove<P: Platform>(shard: &Shard<P>, index: u32, id: PoolId) {
    let mut engine = shard.engine.borrow_mut();
    if engine.shard().is_pool(index, id) {
        engine.remove_pool(index);
        shard.changed();
    }
}

async fn put<P: Platform>(shard: &Shard<P>, pools: Vec<(u32, PoolSpec)>) -> StepResult {
    let mut looked_at = 0;
    for (index, spec) in pools {
        while shard.engine.borrow_mut().make_room(&spec) {
            shard.platform.turn().await;
        }
        if let Err(clash) = shard.engine.borrow_mut().put_pool(index, &spec) {
            return StepResult::Clash(spec.id, clash);
        }
        shard.changed();
        looked_at += spec.numbers.iter().map(|range| u64::from(range.count())).sum::<u64>() + 1;
        if looked_at >= PIECE_NUMBERS {
            looked_at = 0;
            shard.platform.turn().await;
        }
    }
    StepResult::Taken
}

/// Returns the states that the shard has recorded for those `numbers` that are not in its rotation.
async fn known<P: Platform>(shard: &Shard<P>, numbers: &[NumberRange]) -> Vec<Retired> {
    let mut found = Vec::new();
    for piece in numbers.iter().flat_map(|range| range.pieces(PIECE_NUMBERS_MAX)) {
        found.extend(shard.engine.borrow().shard().retired_in(piece));
        shard.platform.turn().await;
    }
    found
}

/// Returns the newest allocation of each of these numbers that is locked.
async fn locked<P: Platform>(shard: &Shard<P>, numbers: &[NumberRange]) -> Vec<Slot> {
    let mut found = Vec::new();
    for piece in numbers.iter().flat_map(|range| range.pieces(PIECE_NUMBERS_MAX)) {
        found.extend(shard.locked_in(piece));
        shard.platform.turn().await;
    }
    found
}

/// Returns the states that the shard has recorded for numbers that are not in its rotation and were
/// last in pools of these buckets. These pools' ranges need not contain all of these numbers,
/// because numbers may have left the pools.
async fn of_buckets<P: Platform>(shard: &Shard<P>, buckets: &[u16]) -> Vec<Retired> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let mut looked_at = 0;
        for retired in shard.engine.borrow().shard().retired_after(after).take(PIECE_RETIRED) {
            after = Some(retired.slot.number);
            looked_at += 1;
            found.extend(Some(*retired).filter(|it| buckets.contains(&bucket(it.pool))));
        }
        if looked_at < PIECE_RETIRED {
            return found;
        }
        shard.platform.turn().await;
    }
}

/// Calls `write` to add records to the open group, as soon as the group has room for them. Returns
/// `None` if the journal accepts no records.
pub async fn when_there_is_room<P: Platform>(
    shard: &Shard<P>,
    mut write: impl FnMut(&mut Engine, Millis) -> bool,
) -> Option<()> {
    loop {
        let now = shard.now();
        let sealed = shard.room.notified();
        if shard.engine.borrow().refusal().is_some() {
            return None;
        }
        let is_written = write(&mut shard.engine.borrow_mut(), now);
        shard.commit_soon();
        if is_written {
            shard.changed();
            return Some(());
        }
        sealed.await;
    }
}
