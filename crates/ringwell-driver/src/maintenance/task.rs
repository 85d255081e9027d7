//! The task for a shard's maintenance: it records the time, takes snapshots and drops old segments.

use std::fmt::Display;
use std::rc::Rc;
use std::time::Duration;

use ringwell_core::{Millis, Throttle};
use ringwell_engine::Refusal;
use ringwell_journal::Group;

use super::{Carry, Rounds, Snapshot};
use crate::canary::{Bug, planted};
use crate::clock::WALL_APART_WARNED;
use crate::node::JournalState;
use crate::platform::{Moment, Platform};
use crate::shard::Shard;
use crate::store::{Reader, Store, segment_span};

/// The minimum interval between reports of a failure that repeats in every round.
const REPORT_EVERY: Duration = Duration::from_mins(1);

/// The longest time that a snapshot waits for a shared log to store the groups that the snapshot
/// covers. This is longer than the log's servers need to elect a leader.
const LOG_PATIENCE: Duration = Duration::from_secs(10);

/// The interval between two checks of whether another process has taken over an idle shard.
const OWNER_CHECK_EVERY: Duration = Duration::from_secs(2);

/// The interval between two checks of whether the log has stored a group.
const LOG_PAUSE: Duration = Duration::from_millis(50);

/// The reason why maintenance failed.
type Trouble = String;

const NO_WRITES: &str = "the journal does not accept writes";

/// Records the time, takes snapshots and drops old segments until the thread ends.
pub async fn run<P: Platform, S: Store>(thread: Rc<Shard<P>>, store: Rc<S>) {
    let settings = thread.node.config.journal.clone();
    let span = Some(segment_span(settings.history_age));
    let mut rounds = Rounds::new(&*store, settings.snapshot_every_bytes, span, thread.now());
    let mut wall = Wall { is_apart: false };
    // Failed work is retried in each round, but reported less often.
    let [failed_snapshots, failed_drops] = [(); 2].map(|()| Throttle::every(REPORT_EVERY));
    let mut round = thread.platform.moment();
    let mut checked_at = round;
    loop {
        thread.platform.sleep_until(round).await;
        round = thread.platform.moment() + P::ROUND;
        let (now, clocks) = (thread.now(), thread.clocks());
        if rounds.tick(&mut thread.engine.borrow_mut(), now, clocks) {
            thread.commit_soon();
        }
        wall.report(&thread);
        note_held(&thread);
        check_owner(&thread, &*store, &mut checked_at).await;
        if thread.node.answers_wait() && rounds.wants_snapshot(&*store, thread.now()) {
            let (written, now) = (store.stats().written_bytes, thread.now());
            let taken = snapshot(&thread, &*store).await;
            if taken.is_ok() {
                rounds.snapshot_taken(written, now);
            }
            report(&thread, "no snapshot could be taken", taken, &failed_snapshots);
        }
        let dropped = drop_old(&thread, &*store, &mut rounds).await;
        report(&thread, "old segments could not be removed", dropped, &failed_drops);
    }
}

/// Checks whether another process has taken an idle shard over. The next append would detect this
/// as well, but a shard without rows appends rarely. Until then, this process would report that it
/// is ready.
async fn check_owner<P: Platform, S: Store>(thread: &Shard<P>, store: &S, checked_at: &mut Moment) {
    let reader = store.reader();
    let now = thread.platform.moment();
    if !reader.is_shared() || now.since(*checked_at) < OWNER_CHECK_EVERY {
        return;
    }
    let (newest, is_idle) = {
        let engine = thread.engine.borrow();
        (engine.newest_group(), !engine.is_pending() && engine.refusal().is_none())
    };
    if !is_idle || thread.commit.durable() < newest {
        return;
    }
    *checked_at = now;
    // A log that does not answer is detected by appends.
    let is_followed = thread.platform.offload(move || reader.is_followed(newest)).await;
    if matches!(is_followed, Some(Ok(true))) && thread.engine.borrow().newest_group() == newest {
        let why = format!("another process has written group {} of this journal", newest + 1);
        thread.hold_up(JournalState::Taken, Refusal::Moved, &why);
    }
}

/// Reports how long the shard's pools will still be held.
fn note_held<P: Platform>(thread: &Shard<P>) {
    let now = thread.now();
    let engine = thread.engine.borrow();
    let longest = engine.shard().holds(now).map(|(_, until)| until).max();
    let left = longest.map_or(Millis::ZERO, |until| until.since(now));
    thread.node.set_held(thread.id, left, thread.platform.moment());
}

/// The state of the log messages about the wall clock.
struct Wall {
    /// Whether the last log message reported a difference.
    is_apart: bool,
}

impl Wall {
    /// Logs when the wall clock begins to differ from shard time, and when the two agree again.
    fn report<P: Platform>(&mut self, thread: &Shard<P>) {
        if thread.node.shards().next() != Some(thread.id) {
            return;
        }
        let wall_ahead_ms = thread.clocks().wall_less_shard();
        let is_apart = wall_ahead_ms.unsigned_abs() > WALL_APART_WARNED.0;
        if is_apart && !self.is_apart {
            tracing::warn!(
                wall_ahead_ms,
                "the wall clock was set, and now differs from this server's time. Lockouts are \
                not affected; look-ups use the wall clock"
            );
        } else if !is_apart && self.is_apart {
            tracing::info!(wall_ahead_ms, "the wall clock matches this server's time again");
        }
        self.is_apart = is_apart;
    }
}

fn report<P: Platform>(
    thread: &Shard<P>,
    what: &str,
    outcome: Result<(), Trouble>,
    throttle: &Throttle,
) {
    let Err(trouble) = outcome else { return };
    if let Some(left_out) = throttle.pass(thread.platform.moment().0) {
        tracing::warn!(shard = thread.id, trouble, left_out, "{what}: trying again later");
    }
    thread.note_failure(trouble);
}

/// Takes a snapshot, piece by piece between batches.
///
/// # Errors
/// The file that could not be written; the previous snapshot then remains.
pub async fn snapshot<P: Platform>(thread: &Shard<P>, store: &impl Store) -> Result<(), Trouble> {
    let _one = thread.snapshots.lock().await;
    let begun = Snapshot::begin(store, &thread.engine.borrow(), thread.id);
    let mut snapshot = begun.map_err(|e| e.to_string())?;
    let early = thread.engine.borrow().newest_group();
    let mut is_whole = false;
    while !is_whole {
        is_whole = snapshot.piece(&mut thread.engine.borrow_mut(), P::SNAPSHOT_ENTRIES);
        if snapshot.is_full() {
            snapshot = blocking(&thread.platform, move || snapshot.write()).await?;
        }
        thread.platform.turn().await;
    }
    // The records that the snapshot covers must be in the journal before the snapshot is published.
    let through = snapshot.through(&thread.engine.borrow());
    let through = if planted(Bug::ThroughTooEarly) { early } else { through };
    thread.commit_soon();
    stored(thread, through).await?;
    #[cfg(canary)]
    if planted(Bug::SnapshotMissesGroup) {
        let engine = &thread.engine.borrow();
        let late = snapshot.publish_late(store, engine, thread.id, through);
        return late.map_err(|error| error.to_string());
    }
    let published = blocking(&thread.platform, move || snapshot.publish(through)).await;
    if let Err(error) = &published
        && store.stats().failed
    {
        thread.journal_failed(error);
    }
    published
}

/// Waits until `group` is stored. If the log is so slow that rows overflow, keeps waiting for up to
/// [`LOG_PATIENCE`]. Otherwise, a slow log would make shutdown fail.
async fn stored<P: Platform>(thread: &Shard<P>, group: u64) -> Result<(), Trouble> {
    let until = thread.platform.moment() + LOG_PATIENCE;
    loop {
        match thread.commit.wait(group).await {
            Ok(()) => return Ok(()),
            Err(Refusal::JournalWaits) if thread.platform.moment() < until => {
                thread.platform.sleep_until(thread.platform.moment() + LOG_PAUSE).await;
            }
            Err(_) => return Err(NO_WRITES.to_owned()),
        }
    }
}

/// Runs `work`, which waits for the disk, on a thread that serves no batches.
async fn blocking<P: Platform, T: Send + 'static, E: Display + Send + 'static>(
    platform: &P,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Trouble> {
    let done = platform.offload(work).await;
    done.ok_or("the server is stopping")?.map_err(|error| error.to_string())
}

/// Drops the segments that exceed the limits of age and size, after copying the records that still
/// matter. Stops at the history that the kept snapshots need, because no new snapshot is taken in
/// the meantime. Also stops as soon as dropping frees no space.
async fn drop_old<P: Platform>(
    thread: &Shard<P>,
    store: &impl Store,
    rounds: &mut Rounds,
) -> Result<(), Trouble> {
    let mut dropped_n = 0;
    while let Some(mut carry) = rounds.expired(store, thread.now(), thread.clocks())
        // If the log could not be trimmed, the store returns the same part again.
        && carry.part.next_n > dropped_n
    {
        dropped_n = carry.part.next_n;
        carry_part(thread, store, &mut carry).await?;
        if let Some(bytes) = rounds.carried(store, &carry) {
            tracing::warn!(
                shard = thread.id,
                bytes,
                "most of the oldest history is still needed: more than journal.history_bytes is \
                kept, because the newest allocation of each number is always kept"
            );
        }
        store.drop_part(carry.part).await.map_err(|error| error.to_string())?;
        thread.platform.turn().await;
    }
    Ok(())
}

async fn carry_part<P: Platform>(
    thread: &Shard<P>,
    store: &impl Store,
    carry: &mut Carry,
) -> Result<(), Trouble> {
    let next = |carry: &mut Carry| carry.next(&thread.engine.borrow(), &mut { u64::MAX });
    while let Some(n) = next(carry) {
        let reader = store.reader();
        let group = blocking(&thread.platform, move || reader.read(n)).await?;
        carry_group(thread, &group).await?;
    }
    let last = thread.engine.borrow().newest_group();
    thread.commit_soon();
    if planted(Bug::DropBeforeStored) {
        return Ok(());
    }
    thread.commit.wait(last).await.map_err(|_| NO_WRITES.to_owned())
}

async fn carry_group<P: Platform>(thread: &Shard<P>, group: &Group) -> Result<(), Trouble> {
    let mut records = group.records();
    loop {
        let now = thread.now();
        let (is_done, gathering) = {
            let mut engine = thread.engine.borrow_mut();
            if engine.refusal().is_some() {
                return Err(NO_WRITES.to_owned());
            }
            let carried = engine.carry(now, &mut records, group.header.clocks);
            (carried.map_err(|e| e.to_string())?, engine.group())
        };
        thread.commit_soon();
        if is_done {
            thread.platform.turn().await;
            return Ok(());
        }
        thread.commit.wait(gathering).await.map_err(|_| NO_WRITES)?;
    }
}
