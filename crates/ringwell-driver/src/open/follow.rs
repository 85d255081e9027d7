//! A shard whose journal is in a log that several machines share. First, the files on this machine
//! are read, and then the part of the log that they lack. After that, the shard is taken over.
//!
//! The take-over is a group like any other, but with a higher epoch. Once this group is stored, the
//! previous owner is fenced, because the place of its next group is taken. Source:
//! docs/spec/log.md, "Taking over".

use std::ops::Range;
use std::time::Duration;

use ringwell_directory::{BUCKETS, Placement};
use ringwell_journal::{
    Author, Group, Record, Tip, Verdict, Writer, continues, decode_message, encode_message,
    message_number,
};

use super::ask::{PAUSE, answered_beside, ends, get};
use super::beginning::{
    Kept, begin_at_oldest, begin_copy, change_leader, changes_max, has_same_end, journal_of,
};
use super::copy_source::CopySource;
use super::follow_error::FollowError;
use super::lost::{report_foreign, report_lost, report_other, report_past, report_replacement};
use super::read::{KeptIn, Read};
use super::unfinished::{fetched, set_aside};
use crate::canary::{Bug, planted};
use crate::platform::{Moment, Platform};
use crate::store::{
    Before, Fate, Files, InlineJournal, Log, Prefix, STALE_MAX, SnapshotIndex, SnapshotStore,
    Unreached, append_to_log, snapshot_indexes,
};

/// The maximum time to wait for the servers of the log at startup.
const PATIENCE: Duration = Duration::from_mins(1);

/// The number of messages that are requested in advance.
const AHEAD: usize = 8;

/// The minimum number of messages for which it is worth preparing to read ahead.
const MANY: u64 = 64;

/// A shard that has been taken over.
#[derive(Debug)]
pub struct Followed<F: Files> {
    /// The state of the shard as read, including everything in the log.
    pub read: Read<F>,
    /// The identity that this process writes with.
    pub author: Author,
    /// The part of the log that is missing from the copy.
    pub prefix: Prefix,
    /// The snapshots that are stored beside the log, newest first.
    pub kept: Vec<(u64, SnapshotIndex)>,
    /// The number of groups that were read from the log, including the one that this process added.
    pub groups: u64,
}

/// Returns a name for the placement of pools on several processes' shards.
#[must_use]
pub fn placement_name(placement: &Placement) -> String {
    let mut hasher = blake3::Hasher::new();
    for bucket in 0..BUCKETS {
        hasher.update(&placement.of_bucket(bucket).to_le_bytes());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

/// Continues from the copy on this machine, reads the part of the log that the copy lacks, and
/// takes the shard over. If there is no copy, or the log does not continue it, the shard begins
/// with a snapshot that is stored beside the log.
///
/// If the copy or a snapshot has groups that the log has lost, the shard continues at the end of
/// the log, but its history counts as in doubt. It must not hand out numbers for the duration of
/// one lockout. A copy with such groups is set aside.
///
/// # Errors
/// [`FollowError`]
pub async fn follow<F: Files, P: Platform>(
    platform: &P,
    files: &F,
    read: Read<F>,
    log: &impl Log,
    source: &CopySource<'_>,
) -> Result<Followed<F>, FollowError> {
    let copied_end = read.recovered.tip.next_n;
    let stale_until = platform.moment() + STALE_MAX;
    let mut state = state(platform, log, source.snapshots, copied_end, stale_until).await?;
    let mut until = platform.moment() + PATIENCE;
    let is_inside = (state.ends.start..=state.ends.end).contains(&copied_end);
    // Whether the log has lost groups whose places another process has filled since.
    let tip = read.recovered.tip;
    let mut is_other = !read.is_new()
        && is_inside
        && !has_same_end(platform, log, read.shard, &tip, &state.ends, until).await?;
    let is_anew = read.is_new() || !is_inside || is_other;
    let mut read = read;
    if is_anew {
        let shard = read.shard;
        if copied_end > state.ends.end || is_other {
            set_aside(files, source.settings, shard)?;
        }
        let begun = begin(platform, files, log, source, shard, &mut state, stale_until).await?;
        // If `begun.is_other` is set, a snapshot covers groups that were stored under an earlier
        // leader and are now lost.
        is_other |= begun.is_other;
        read = begun.read;
        until = platform.moment() + PATIENCE;
    }
    let State { ends, kept, ahead } = state;
    let Read { shard, kept: kept_in, restore, mut recovered, has_snapshot, unknown_before, .. } =
        read;
    let KeptIn::Files(store) = kept_in else {
        let reason = "this machine keeps no copy of the journal".to_owned();
        return Err(FollowError::NotTaken { shard, reason });
    };
    let directory = store.directory().to_owned();
    let journal = match recovered.journal {
        Some(journal) => Some(journal),
        None => journal_of(shard, platform, log, &ends, until).await?,
    };
    let journal = journal.map_or_else(|| files.random(&directory), Ok)?;
    recovered.journal = Some(journal);
    let author =
        Author { shard: u32::from(shard), journal, incarnation: files.random(&directory)? };
    let (tip, frames) = (recovered.tip, recovered.frames);
    let prefix = prefix(platform, &recovered, &ends, source).await?;
    let mirror = store.start_mirror(recovered)?;
    let mut following = Following { shard, author, mirror, restore, tip, frames };
    following.go_on(platform, log, ends.end, until).await?;
    following.take_over(platform, log, until).await?;
    let has_held = following.restore.holds().next().is_some();
    // The take-over is stored, so the end of the log was not reported by a leader without a quorum.
    let taken_n = following.tip.next_n - 1;
    let is_replacement = source.is_replacement || log.places().place(taken_n) < source.end;
    let is_in_doubt = report_lost(shard, taken_n, copied_end - 1, &ahead, is_other)
        || report_foreign(shard, taken_n, &log.places())
        || report_past(shard, unknown_before.map(|_| ends.start))
        || report_replacement(shard, is_replacement && !has_snapshot && !has_held)
        || report_other(shard, &following.tip, (source.reached, source.failed_at));
    let kept = if is_in_doubt {
        put_back(platform, source.snapshots, kept, &ahead).await?
    } else {
        answered_beside(platform, || snapshot_indexes(source.snapshots)).await?
    };
    if is_anew {
        fetched(files, &directory)?;
    }
    let groups = following.frames - frames;
    let read = Read { unknown_before, ..following.read(is_in_doubt, has_snapshot) };
    Ok(Followed { read, author, prefix, kept, groups })
}

/// The state of a log and the snapshots beside it.
struct State {
    /// The range of groups that the log has.
    ends: Range<u64>,
    /// The snapshots whose groups are all in the log, newest first.
    kept: Kept,
    /// Snapshots that are ahead of the log or contain groups that the log has lost.
    ahead: Kept,
}

/// Reads the state of the log and the snapshots beside it. A new leader may lack groups that the
/// copy or a snapshot has, so until `stale_until`, the log is read repeatedly.
async fn state<P: Platform>(
    platform: &P,
    log: &impl Log,
    snapshots: &dyn SnapshotStore,
    copied_end: u64,
    stale_until: Moment,
) -> Result<State, FollowError> {
    let until = platform.moment() + PATIENCE;
    let mut seen = Kept::new();
    loop {
        let ends = ends(platform, log, until).await?;
        let indexes = answered_beside(platform, || snapshot_indexes(snapshots)).await?;
        let (kept, mut ahead): (Kept, Kept) =
            indexes.into_iter().partition(|it| it.1.through < ends.end);
        // Even if a snapshot has been damaged since its index was read, the index proves that the
        // groups existed.
        seen.retain(|it| it.1.through >= ends.end && ahead.iter().all(|other| other.0 != it.0));
        ahead.append(&mut seen);
        let is_behind = copied_end > ends.end || !ahead.is_empty();
        if !is_behind || platform.moment() >= stale_until {
            return Ok(State { ends, kept, ahead });
        }
        seen = ahead;
        platform.sleep_until(platform.moment() + PAUSE).await;
    }
}

/// A copy that starts from scratch.
struct Begun<F: Files> {
    read: Read<F>,
    /// Whether any snapshot has groups that the log has lost.
    is_other: bool,
}

/// Begins the copy with a snapshot or with the start of the log.
async fn begin<F: Files, P: Platform>(
    platform: &P,
    files: &F,
    log: &impl Log,
    source: &CopySource<'_>,
    shard: u16,
    found: &mut State,
    stale_until: Moment,
) -> Result<Begun<F>, FollowError> {
    let mut is_other = false;
    loop {
        let State { ends, kept, .. } = found;
        let (mut read, others) =
            begin_copy(platform, files, log, source, shard, kept, ends).await?;
        is_other |= !others.is_empty();
        found.ahead.extend(others);
        if read.recovered.tip.next_n >= ends.start {
            return Ok(Begun { read, is_other });
        }
        if platform.moment() >= stale_until {
            begin_at_oldest(&mut read, platform, log, ends).await?;
            kept.clear();
            return Ok(Begun { read, is_other });
        }
        // The owner may have stored a newer snapshot in the meantime.
        platform.sleep_until(platform.moment() + PAUSE).await;
        *found = state(platform, log, source.snapshots, 0, stale_until).await?;
    }
}

/// Returns the part of the log before the copy.
async fn prefix<P: Platform>(
    platform: &P,
    recovered: &ringwell_journal::Recovered,
    ends: &Range<u64>,
    source: &CopySource<'_>,
) -> Result<Prefix, Unreached> {
    let oldest = recovered.segments.first().map_or(recovered.tip, |info| info.header.tip);
    let (first_n, copied_n) = (ends.start, oldest.next_n);
    let mut bytes = 0;
    if first_n < copied_n {
        let all = u128::from(answered_beside(platform, || source.snapshots.log_bytes()).await?);
        let groups = u128::from((ends.end - ends.start).max(1));
        bytes = u64::try_from(all * u128::from(copied_n - first_n) / groups).unwrap_or(u64::MAX);
    }
    Ok(Prefix { first_n, copied_n, bytes, last_at: oldest.last_at })
}

/// If `ahead` contains snapshots, adds another index of the newest snapshot in `kept`,
/// so that this snapshot is the newest one there again. If `kept` is empty, removes all snapshots
/// instead.
async fn put_back<P: Platform>(
    platform: &P,
    snapshots: &dyn SnapshotStore,
    kept: Vec<(u64, SnapshotIndex)>,
    ahead: &[(u64, SnapshotIndex)],
) -> Result<Vec<(u64, SnapshotIndex)>, Unreached> {
    let Some((newest, _)) = ahead.first() else { return Ok(kept) };
    let Some((_, index)) = kept.into_iter().next() else {
        answered_beside(platform, || snapshots.trim(newest + 1)).await?;
        return Ok(Vec::new());
    };
    let index = SnapshotIndex { before: 0, ..index };
    let place = answered_beside(platform, || snapshots.add_index(index.encode())).await?;
    Ok(vec![(place, index)])
}

struct Following<F: Files> {
    shard: u16,
    author: Author,
    mirror: InlineJournal<F>,
    restore: ringwell_engine::Restore,
    tip: Tip,
    frames: u64,
}

impl<F: Files> Following<F> {
    /// Returns the shard as it was read.
    fn read(self, is_in_doubt: bool, has_snapshot: bool) -> Read<F> {
        let Self { shard, author, mirror, restore, tip, frames } = self;
        // Damage at the copy's end does not matter, because the log has the damaged groups.
        let recovered = ringwell_journal::Recovered {
            tip,
            journal: Some(author.journal),
            verdict: Verdict::Clean,
            segments: Vec::new(),
            frames,
        };
        let kept = KeptIn::Mirror(mirror);
        Read { is_in_doubt, has_snapshot, ..Read::found(shard, kept, restore, recovered) }
    }

    /// Reads the log with read-ahead, up to `end`. Stops at the first message that does not
    /// continue the chain.
    async fn go_ahead(&mut self, log: &impl Log, end: u64) -> Result<(), FollowError> {
        let mut ahead = log.read_ahead(self.tip.next_n..end);
        while self.tip.next_n < end {
            let n = self.tip.next_n;
            let Some(message) = ahead.recv().await else { return Ok(()) };
            if message_number(&message).is_none_or(|number| number < n) {
                continue;
            }
            // Another server may have an intact copy of this message.
            let Ok(group) = self.next_group(n, &message) else { return Ok(()) };
            self.group(group)?;
        }
        Ok(())
    }

    /// Reads the log up to `end`, message by message.
    async fn go_on<P: Platform>(
        &mut self,
        platform: &P,
        log: &impl Log,
        end: u64,
        until: Moment,
    ) -> Result<(), FollowError> {
        let shard = self.shard;
        if end.saturating_sub(self.tip.next_n) >= MANY {
            self.go_ahead(log, end).await?;
        }
        let mut ahead = std::collections::VecDeque::new();
        let (mut next, mut changes) = (self.tip.next_n, 0);
        while self.tip.next_n < end {
            while next < end && ahead.len() < AHEAD {
                ahead.push_back(platform.task(log.read(next)));
                next += 1;
            }
            let n = self.tip.next_n;
            let asked = match ahead.pop_front() {
                Some(asked) => asked.await.ok(),
                None => None,
            };
            let message = match asked {
                Some(Ok(message)) => message,
                Some(Err(_)) | None => get(platform, log, n, until).await?,
            };
            let read = match message {
                Some(message) => self.next_group(n, &message),
                None => Err(FollowError::Hole { shard, n }),
            };
            match read {
                Err(error) if error.may_be_of_one_server() && changes < changes_max() => {
                    changes += 1;
                    change_leader(platform, log, &error).await;
                    ahead.clear();
                    next = n;
                }
                read => self.group(read?)?,
            }
        }
        Ok(())
    }

    /// Returns the group in a message, if it is the next group of the journal.
    fn next_group(&self, n: u64, message: &[u8]) -> Result<Group, FollowError> {
        let shard = self.shard;
        let read = decode_message(message);
        let (author, group) = read.map_err(|fault| FollowError::Message { shard, n, fault })?;
        if (author.shard, author.journal) != (self.author.shard, self.author.journal) {
            return Err(FollowError::Foreign { shard, n });
        }
        let follows = continues(&self.tip, &group.header);
        follows.map_err(|fault| FollowError::Chain { shard, n, fault })?;
        Ok(group)
    }

    /// Adds the next group to the shard's state and to the copy.
    fn group(&mut self, group: Group) -> Result<(), FollowError> {
        let (shard, n) = (self.shard, group.header.n);
        let fed = self.restore.group(&group.header, &group.body);
        fed.map_err(|fault| FollowError::Record { shard, n, fault })?;
        self.tip = Tip::after(&group.header);
        self.frames += 1;
        self.mirror.store(group).map_err(|unstored| unstored.error)?;
        Ok(())
    }

    /// Adds a group with a higher epoch to the log. If another process adds a group first, reads
    /// that group and takes the shard over from that process.
    async fn take_over<P: Platform>(
        &mut self,
        platform: &P,
        log: &impl Log,
        until: Moment,
    ) -> Result<(), FollowError> {
        let shard = self.shard;
        loop {
            let tip = if planted(Bug::EpochNotRaised) { self.tip } else { self.tip.raise_epoch() };
            let mut writer = Writer::new(tip);
            // The take-over repeats the newest recorded time and clocks. The time that has passed
            // since then is determined from the earlier groups.
            if let Some(clocks) = self.tip.clocks {
                writer.set_clocks(clocks);
            }
            writer.append(&Record::Tick { at: self.tip.last_at });
            let not_taken =
                |reason: &str| FollowError::NotTaken { shard, reason: reason.to_owned() };
            let is_empty = "internal error: the take-over message is empty";
            let group = writer.seal(Vec::new()).ok_or_else(|| not_taken(is_empty))?;
            let message = encode_message(&self.author, &group).into();
            let before = Before::OfAnother;
            let appended =
                append_to_log(platform, log, &self.author, &group.header, message, before);
            match platform.by(until, appended).await {
                Some(Fate::Stored) => return self.group(group),
                Some(Fate::Taken { .. }) => {
                    let end = ends(platform, log, until).await?.end;
                    self.go_on(platform, log, end.max(self.tip.next_n + 1), until).await?;
                }
                Some(Fate::Full) => return Err(not_taken("the log is full")),
                Some(Fate::Failed(why)) => return Err(not_taken(&why)),
                None => {
                    let why = "the journal's servers did not store a message in time";
                    return Err(not_taken(why));
                }
            }
        }
    }
}
