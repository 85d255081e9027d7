//! What a shard does beside answering: ticks, snapshots, and giving up old segments.

use std::rc::Rc;
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_driver::Throttle;
use ringwell_engine::SnapshotStep;
use ringwell_journal::{Group, SnapshotHeader, SnapshotWriter};

use crate::clock::{WALL_APART_WARNED, coarse_time};
use crate::conn::PhaseLimits;
use crate::disk::{Journal, SegmentRef};
use crate::shard::{HttpShard, ShardThread};

/// How often connections are swept and old segments looked for.
const ROUND: Duration = Duration::from_secs(1);

/// A shard that has been quiet for so long writes down what time it is; then twice as late each time.
const TICK: Millis = Millis(5_000);

/// Old segments that are given up in a round. Where most of what they hold must be kept, giving
/// them up frees nothing: the bound keeps that from becoming all that the shard does.
const SEGMENTS_A_ROUND: usize = 4;

/// Something that fails round after round is reported this often.
const REPORT_EVERY: Duration = Duration::from_mins(1);

/// Bytes of a snapshot that gather before they are written.
const SNAPSHOT_WRITE_BYTES: usize = 1 << 20;

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

/// What the rounds remember of those before.
#[derive(Debug)]
struct Rounds {
    /// What had been written when the last snapshot began, and when that was.
    snapshot_bytes: u64,
    snapshot_at: Millis,
    /// No segment is given up before the journal is as long as this.
    kept_bytes: u64,
    /// The group of the last tick, and how long the shard must be quiet until the next.
    tick_group: u64,
    tick_after: Millis,
    /// The wall clock is reported to be elsewhere.
    is_apart: bool,
    /// What fails is tried again each round, and said less often.
    failed_snapshots: Throttle,
    failed_drops: Throttle,
}

/// Ticks, takes snapshots and gives up old segments until the thread ends.
pub(crate) async fn run(thread: Rc<ShardThread>, journal: Rc<Journal>) {
    let mut rounds = Rounds {
        snapshot_bytes: journal.stats().written_bytes,
        snapshot_at: thread.now(),
        kept_bytes: 0,
        tick_group: 0,
        tick_after: TICK,
        is_apart: false,
        failed_snapshots: Throttle::every(REPORT_EVERY),
        failed_drops: Throttle::every(REPORT_EVERY),
    };
    let mut round = tokio::time::interval(ROUND);
    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        round.tick().await;
        rounds.tick(&thread);
        rounds.report_clock(&thread);
        if thread.node.answers_wait() && rounds.wants_snapshot(&thread, &journal) {
            let (written, now) = (journal.stats().written_bytes, thread.now());
            let taken = snapshot(&thread, &journal).await;
            if taken.is_ok() {
                (rounds.snapshot_bytes, rounds.snapshot_at) = (written, now);
            }
            report(&thread, "snapshot", taken, &rounds.failed_snapshots);
        }
        let dropped = drop_old(&thread, &journal, &mut rounds.kept_bytes).await;
        report(&thread, "old segments", dropped, &rounds.failed_drops);
    }
}

impl Rounds {
    /// Whether a snapshot is due: by what was written since, by time, or because more is kept than
    /// should be and the snapshots need it.
    fn wants_snapshot(&self, thread: &ShardThread, journal: &Journal) -> bool {
        let written = journal.stats().written_bytes - self.snapshot_bytes;
        let settings = &thread.node.config.journal;
        let span = Millis(settings.history_age.0 / 8);
        let is_old = thread.now().since(self.snapshot_at) >= span;
        written >= settings.snapshot_every_bytes
            || written > 0 && (is_old || journal.waits_for_snapshot())
    }

    /// Keeps the journal's newest time fresh: of use only where the machine is booted again. Less and
    /// less often, so that a server that has nothing to do writes nothing. And notes a wall clock that
    /// was set, for look-ups after another boot.
    fn tick(&mut self, thread: &ShardThread) {
        let (now, clocks) = (thread.now(), thread.clocks());
        let mut engine = thread.engine.borrow_mut();
        let tip = engine.tip();
        if engine.is_pending() || engine.refusal().is_some() {
            return;
        }
        if engine.newest_group() != self.tick_group {
            self.tick_after = TICK;
        }
        let was_set = tip.clocks.is_some_and(|noted| {
            noted.wall_offset.abs_diff(clocks.wall_offset) > WALL_APART_WARNED.0
        });
        if now.since(tip.last_at) >= self.tick_after || was_set {
            engine.tick(now);
            self.tick_group = engine.newest_group();
            self.tick_after = Millis(self.tick_after.0.saturating_mul(2));
            drop(engine);
            thread.commit_soon();
        }
    }

    /// Says in the log when the wall clock is not where shard time is, and when it is again.
    fn report_clock(&mut self, thread: &ShardThread) {
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
    let header = {
        let engine = thread.engine.borrow();
        let tip = engine.tip();
        SnapshotHeader {
            shard: u32::from(thread.id),
            journal: journal.id(),
            replay_from: tip.next_n,
            prev_hash: tip.prev_hash,
            epoch: tip.epoch,
            created_at: engine.now(),
            last_at: tip.last_at,
            numbers: engine.shard().number_count() as u64,
            clocks: engine.clocks(),
        }
    };
    let mut file = Some(journal.create_snapshot(header.replay_from).map_err(|e| e.to_string())?);
    let mut writer = SnapshotWriter::new(&header);
    let mut step = SnapshotStep::FIRST;
    while step != SnapshotStep::Done {
        step = thread.engine.borrow_mut().snapshot(step, &mut writer);
        if writer.ready_bytes() >= SNAPSHOT_WRITE_BYTES {
            let bytes = writer.take(Vec::new());
            file = Some(write(file, bytes).await?);
        }
        tokio::task::yield_now().await;
    }
    // What the snapshot knows must be in the journal before it counts.
    let through = thread.engine.borrow().newest_group();
    thread.commit_soon();
    thread.commit.wait(through).await.map_err(|_| NO_WRITES)?;
    let file = write(file, writer.finish(through)).await?;
    let publish = tokio::task::spawn_blocking(move || file.publish(through)).await;
    publish.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
}

async fn write(
    file: Option<crate::disk::SnapshotFile>,
    bytes: Vec<u8>,
) -> Result<crate::disk::SnapshotFile, Trouble> {
    let mut file = file.ok_or("the snapshot's file is gone")?;
    let written = tokio::task::spawn_blocking(move || file.write(&bytes).map(|()| file)).await;
    written.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
}

/// Gives up segments beyond the limits of age and size, after copying what still matters. Where that
/// was most of a segment, nothing is gained by giving up more before the journal has grown:
/// `kept_bytes` is until then.
async fn drop_old(
    thread: &Rc<ShardThread>,
    journal: &Rc<Journal>,
    kept_bytes: &mut u64,
) -> Result<(), Trouble> {
    for _ in 0..SEGMENTS_A_ROUND {
        if journal.stats().segment_bytes < *kept_bytes {
            break;
        }
        let Some(old) = journal.expired(thread.now(), thread.clocks()) else { break };
        let before = journal.stats().written_bytes;
        carry_segment(thread, journal, &old).await?;
        let written = journal.stats().written_bytes - before;
        if written > old.bytes / 2 {
            let bytes = journal.stats().segment_bytes;
            *kept_bytes = bytes + bytes / 4;
            tracing::warn!(
                shard = thread.id,
                bytes,
                "most of the oldest history is still current: more than journal.history_bytes is \
                 kept, as the newest allocation of each number must be"
            );
        }
        let Some(dropped) = journal.drop_segment(old) else { return Ok(()) };
        // It waits for the directory to be on the disk: not on the shard's thread.
        let put_away = tokio::task::spawn_blocking(move || dropped.put_away()).await;
        put_away.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    }
    Ok(())
}

async fn carry_segment(
    thread: &Rc<ShardThread>,
    journal: &Rc<Journal>,
    old: &SegmentRef,
) -> Result<(), Trouble> {
    for n in old.first_n..old.next_n {
        if !thread.engine.borrow().needs_group(n) {
            continue;
        }
        let reader = journal.reader();
        let read = tokio::task::spawn_blocking(move || reader.read_group(n)).await;
        let group = read.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
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
