//! What a shard does beside answering: ticks, snapshots, and giving up old segments.

use std::fmt::Display;
use std::rc::Rc;
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_driver::Throttle;
use ringwell_driver::maintenance::{Carry, Rounds, Snapshot};
use ringwell_journal::Group;

use crate::clock::{WALL_APART_WARNED, coarse_time};
use crate::conn::PhaseLimits;
use crate::disk::Journal;
use crate::shard::{HttpShard, ShardThread};

/// How often connections are swept and old segments looked for.
const ROUND: Duration = Duration::from_secs(1);

/// Old segments that are given up in a round. Where most of what they hold must be kept, giving
/// them up frees nothing: the bound keeps that from becoming all that the shard does.
const SEGMENTS_A_ROUND: usize = 4;

/// Something that fails round after round is reported this often.
const REPORT_EVERY: Duration = Duration::from_mins(1);

/// Why something beside answering failed. The shard goes on without it.
type Trouble = String;

const NO_WRITES: &str = "the journal takes no writes";

/// Keeps the limits of connections' phases until the thread ends: a task of its own, so that a disk
/// that hangs does not keep slow clients.
pub(crate) async fn sweep(thread: Rc<HttpShard>) {
    let limits = &thread.node.config.limits;
    let phases = PhaseLimits {
        idle: limits.idle_timeout,
        head: limits.head_timeout,
        write: limits.write_timeout,
    };
    loop {
        tokio::time::sleep(ROUND).await;
        thread.stats.connections_cut.add(thread.connections.sweep(&phases));
    }
}

/// Ticks, takes snapshots and gives up old segments until the thread ends.
pub(crate) async fn run(thread: Rc<ShardThread>, journal: Rc<Journal>) {
    let settings = thread.node.config.journal.clone();
    let span = Some(Millis(settings.history_age.0 / 8));
    let mut rounds = Rounds::new(&journal, settings.snapshot_every_bytes, span, thread.now());
    let mut wall = Wall { is_apart: false };
    // What fails is tried again each round, and said less often.
    let [failed_snapshots, failed_drops] = [(); 2].map(|()| Throttle::every(REPORT_EVERY));
    let mut round = tokio::time::interval(ROUND);
    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        round.tick().await;
        let (now, clocks) = (thread.now(), thread.clocks());
        if rounds.tick(&mut thread.engine.borrow_mut(), now, clocks) {
            thread.commit_soon();
        }
        wall.report(&thread);
        if thread.node.answers_wait() && rounds.wants_snapshot(&journal, thread.now()) {
            let (written, now) = (journal.stats().written_bytes, thread.now());
            let taken = snapshot(&thread, &journal).await;
            if taken.is_ok() {
                rounds.snapshot_taken(written, now);
            }
            report(&thread, "snapshot", taken, &failed_snapshots);
        }
        let dropped = drop_old(&thread, &journal, &mut rounds).await;
        report(&thread, "old segments", dropped, &failed_drops);
    }
}

/// What the log says of the wall clock.
struct Wall {
    /// It is reported to be elsewhere.
    is_apart: bool,
}

impl Wall {
    /// Says in the log when the wall clock is not where shard time is, and when it is again.
    fn report(&mut self, thread: &ShardThread) {
        if thread.node.shards().next() != Some(thread.id) {
            return;
        }
        let wall_ahead_ms = thread.clocks().wall_less_shard();
        let is_apart = wall_ahead_ms.unsigned_abs() > WALL_APART_WARNED.0;
        if is_apart && !self.is_apart {
            tracing::warn!(
                wall_ahead_ms,
                "the wall clock was set: it is not where this server's time is. Lockouts are as they \
                 should be; look-ups go by the wall clock"
            );
        } else if !is_apart && self.is_apart {
            tracing::info!(wall_ahead_ms, "the wall clock is where this server's time is");
        }
        self.is_apart = is_apart;
    }
}

fn report(thread: &ShardThread, what: &str, outcome: Result<(), Trouble>, throttle: &Throttle) {
    if let Err(trouble) = outcome
        && let Some(left_out) = throttle.pass(coarse_time())
    {
        tracing::warn!(shard = thread.id, trouble, left_out, "{what}: will be tried again");
    }
}

/// Takes a snapshot, piece by piece between batches.
///
/// # Errors
/// What could not be written. The one before stays.
pub(crate) async fn snapshot(
    thread: &Rc<ShardThread>,
    journal: &Rc<Journal>,
) -> Result<(), Trouble> {
    let _one = thread.snapshots.lock().await;
    let begun = Snapshot::begin(journal, &thread.engine.borrow(), thread.id);
    let mut snapshot = begun.map_err(|e| e.to_string())?;
    let mut is_whole = false;
    while !is_whole {
        is_whole = snapshot.piece(&mut thread.engine.borrow_mut());
        if snapshot.is_full() {
            snapshot = blocking(move || snapshot.write()).await?;
        }
        tokio::task::yield_now().await;
    }
    // What the snapshot knows must be in the journal before it counts.
    let through = snapshot.through(&thread.engine.borrow());
    thread.commit_soon();
    thread.commit.wait(through).await.map_err(|_| NO_WRITES)?;
    blocking(move || snapshot.publish(through)).await
}

/// Waits for the disk on another thread.
async fn blocking<T: Send + 'static, E: Display + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Trouble> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// Gives up segments beyond the limits of age and size, after copying what still matters.
async fn drop_old(
    thread: &Rc<ShardThread>,
    journal: &Rc<Journal>,
    rounds: &mut Rounds,
) -> Result<(), Trouble> {
    for _ in 0..SEGMENTS_A_ROUND {
        let Some(mut carry) = rounds.expired(journal, thread.now(), thread.clocks()) else { break };
        carry_segment(thread, journal, &mut carry).await?;
        if let Some(bytes) = rounds.carried(journal, &carry) {
            tracing::warn!(
                shard = thread.id,
                bytes,
                "most of the oldest history is still current: more than journal.history_bytes is \
                 kept, as the newest allocation of each number must be"
            );
        }
        let Some(dropped) = journal.drop_segment(carry.segment) else { return Ok(()) };
        // It waits for the directory to be on the disk: not on the shard's thread.
        blocking(move || dropped.put_away()).await?;
    }
    Ok(())
}

async fn carry_segment(
    thread: &Rc<ShardThread>,
    journal: &Rc<Journal>,
    carry: &mut Carry,
) -> Result<(), Trouble> {
    let next = |carry: &mut Carry| carry.next(&thread.engine.borrow(), &mut { u64::MAX });
    while let Some(n) = next(carry) {
        let reader = journal.reader();
        let group = blocking(move || reader.read_group(n)).await?;
        carry_group(thread, &group).await?;
    }
    let last = thread.engine.borrow().newest_group();
    thread.commit_soon();
    thread.commit.wait(last).await.map_err(|_| NO_WRITES.to_owned())
}

async fn carry_group(thread: &Rc<ShardThread>, group: &Group) -> Result<(), Trouble> {
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
            tokio::task::yield_now().await;
            return Ok(());
        }
        thread.commit.wait(gathering).await.map_err(|_| NO_WRITES)?;
    }
}
