//! What a shard does beside answering: ticks, snapshots, and giving up old segments.

use std::rc::Rc;
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_engine::SnapshotStep;
use ringwell_journal::{Group, SnapshotHeader, SnapshotWriter};

use crate::conn::PhaseLimits;
use crate::disk::{Journal, SegmentRef};
use crate::shard::ShardThread;

/// How often connections are swept and old segments looked for.
const ROUND: Duration = Duration::from_secs(1);

/// A quiet shard writes down what time it is this often.
const TICK: Millis = Millis(5_000);

/// Old segments that are given up in a round. Where most of what they hold must be kept, giving
/// them up frees nothing: the bound keeps that from becoming all that the shard does.
const SEGMENTS_A_ROUND: usize = 4;

/// Bytes of a snapshot that gather before they are written.
const SNAPSHOT_WRITE_BYTES: usize = 1 << 20;

/// Why something beside answering failed. The shard goes on without it.
type Trouble = String;

const NO_WRITES: &str = "the journal takes no writes";

/// Keeps the limits of connections' phases until the thread ends: a task of its own, so that a disk
/// that hangs does not keep slow clients.
pub(crate) async fn sweep(thread: Rc<ShardThread>) {
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
    let snapshot_every = thread.node.config.journal.snapshot_every_bytes;
    let mut snapshot_at = journal.stats().body_bytes;
    let mut kept_bytes = 0;
    let mut round = tokio::time::interval(ROUND);
    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        round.tick().await;
        tick(&thread);
        let written = journal.stats().body_bytes;
        if thread.node.answers_wait() && written - snapshot_at >= snapshot_every {
            let taken = snapshot(&thread, &journal).await;
            if taken.is_ok() {
                snapshot_at = written;
            }
            report(&thread, "snapshot", taken);
        }
        report(&thread, "old segments", drop_old(&thread, &journal, &mut kept_bytes).await);
    }
}

fn report(thread: &ShardThread, what: &str, outcome: Result<(), Trouble>) {
    if let Err(trouble) = outcome {
        tracing::warn!(shard = thread.id, trouble, "{what}: will be tried again");
    }
}

/// Keeps the journal's newest time fresh.
fn tick(thread: &ShardThread) {
    let now = thread.now();
    let mut engine = thread.engine.borrow_mut();
    let is_quiet = now.since(engine.tip().last_at) >= TICK && !engine.is_pending();
    if is_quiet && engine.refusal().is_none() {
        engine.tick(now);
        drop(engine);
        thread.commit_soon();
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
        let Some(old) = journal.expired(thread.now()) else { break };
        let before = journal.stats().body_bytes;
        carry_segment(thread, journal, &old).await?;
        let written = journal.stats().body_bytes - before;
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
            let carried = engine.carry(now, &mut records);
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
