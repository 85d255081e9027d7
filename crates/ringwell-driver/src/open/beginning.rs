//! Determines where a copy of a log begins, and whether the log continues a copy.
//!
//! A message that one server has lost or damaged is read from another server. Source:
//! docs/spec/log.md, "Snapshots", "Lost groups".

use std::ops::Range;
use std::time::Duration;

use ringwell_journal::{Author, Group, Tip, decode_message};

use super::ask::{PATIENCE, get};
use super::copy_source::CopySource;
use super::fetch::{begin_anew, fetch};
use super::follow_error::FollowError;
use super::read::Read;
use crate::canary::{Bug, planted};
use crate::platform::{Moment, Platform};
use crate::store::{Dated, Files, Log, SnapshotIndex};

/// The number of a stream's leaders that are tried if one of them has lost a message. A stream has
/// three or five servers, and the client cannot choose which of them leads.
const LEADERS: u32 = 6;

/// The pause that gives another server time to become the leader.
const CHANGE_PAUSE: Duration = Duration::from_secs(1);

/// The snapshots that are stored beside the log, with their places.
pub(super) type Kept = Vec<(u64, SnapshotIndex)>;

/// Begins a copy with the newest snapshot that the log continues, or without a snapshot if there is
/// none. Snapshots that the log does not continue are removed from `kept` and returned.
pub(super) async fn begin_copy<F: Files, P: Platform>(
    platform: &P,
    files: &F,
    log: &impl Log,
    source: &CopySource<'_>,
    shard: u16,
    kept: &mut Kept,
    ends: &Range<u64>,
) -> Result<(Read<F>, Kept), FollowError> {
    let until = platform.moment() + PATIENCE;
    let mut others = Kept::new();
    while let Some(mut fetched) = fetch(platform, files, source, shard, kept, ends).await? {
        if begin_at(&mut fetched, platform, log, ends, until).await? {
            return Ok((fetched, others));
        }
        let from = fetched.recovered.tip.next_n;
        let at = kept.iter().position(|it| it.1.replay_from == from).unwrap_or(kept.len());
        others.extend(kept.drain(..(at + 1).min(kept.len())));
    }
    Ok((begin_anew(files, source, shard)?, others))
}

/// Corrects the time of a fetched snapshot. The snapshot was taken while records were being
/// written, so the group that follows it may have begun before the snapshot's time. Returns whether
/// the log continues the snapshot. If the log lost its end, other groups may have been stored in
/// place of the lost ones.
async fn begin_at<F: Files, P: Platform>(
    fetched: &mut Read<F>,
    platform: &P,
    log: &impl Log,
    ends: &Range<u64>,
    until: Moment,
) -> Result<bool, FollowError> {
    let (shard, tip) = (fetched.shard, &mut fetched.recovered.tip);
    let n = tip.next_n;
    if ends.contains(&n) {
        let (_, group) = read_intact(platform, log, shard, n, until).await?;
        tip.last_at = tip.last_at.min(group.header.at);
        return Ok(group.header.prev_hash == tip.prev_hash);
    }
    has_same_end(platform, log, shard, tip, ends, until).await
}

/// Begins an empty copy at the oldest group that the log has. The earlier state is unknown. Records
/// that were still needed were copied to later groups before the log was trimmed, but lockouts may
/// be missing. No number may be handed out for the duration of one lockout.
pub(super) async fn begin_at_oldest<F: Files, P: Platform>(
    begun: &mut Read<F>,
    platform: &P,
    log: &impl Log,
    ends: &Range<u64>,
) -> Result<(), FollowError> {
    let (shard, until) = (begun.shard, platform.moment() + PATIENCE);
    let (begins, wanted) = (ends.start, begun.recovered.tip.next_n);
    if ends.is_empty() {
        return Err(FollowError::LostHead { shard, begins, wanted });
    }
    let (author, group) = read_intact(platform, log, shard, begins, until).await?;
    let (at, clocks) = (group.header.at, group.header.clocks);
    begun.unknown_before = Some(Dated::new(at, clocks));
    begun.recovered.journal = Some(author.journal);
    begun.recovered.tip = Tip {
        next_n: begins,
        prev_hash: group.header.prev_hash,
        epoch: group.header.epoch,
        last_at: group.header.at,
        clocks: None,
    };
    Ok(())
}

/// Whether the log continues a copy that ends within the log. Returns `true` if no server can
/// return the group that is needed for the comparison.
pub(super) async fn has_same_end<P: Platform>(
    platform: &P,
    log: &impl Log,
    shard: u16,
    tip: &Tip,
    ends: &Range<u64>,
    until: Moment,
) -> Result<bool, FollowError> {
    let (last, next) = (tip.next_n.saturating_sub(1), tip.next_n);
    let same = if ends.contains(&last) {
        let read = read_intact(platform, log, shard, last, until).await;
        read.map(|(_, group)| Tip::after(&group.header).prev_hash == tip.prev_hash)
    } else if ends.contains(&next) {
        let read = read_intact(platform, log, shard, next, until).await;
        read.map(|(_, group)| group.header.prev_hash == tip.prev_hash)
    } else {
        Ok(true)
    };
    match same {
        // If the unreadable group differs from the copy's last group, reading the next group will
        // show this, because that group will not continue the copy.
        Err(error) if error.may_be_of_one_server() => Ok(true),
        same => same,
    }
}

/// Returns the identity of the journal in a log, or `None` if the log is empty.
pub(super) async fn journal_of<P: Platform>(
    shard: u16,
    platform: &P,
    log: &impl Log,
    ends: &Range<u64>,
    until: Moment,
) -> Result<Option<[u8; 16]>, FollowError> {
    if ends.is_empty() {
        return Ok(None);
    }
    let (author, _) = read_intact(platform, log, shard, ends.start, until).await?;
    Ok(Some(author.journal))
}

/// Reads group `n`, which must be in the log. If the leading server has lost or damaged the group,
/// other servers are tried.
async fn read_intact<P: Platform>(
    platform: &P,
    log: &impl Log,
    shard: u16,
    n: u64,
    until: Moment,
) -> Result<(Author, Group), FollowError> {
    let mut changes = 0;
    loop {
        let read = match get(platform, log, n, until).await? {
            Some(message) => {
                decode_message(&message).map_err(|fault| FollowError::Message { shard, n, fault })
            }
            None => Err(FollowError::Hole { shard, n }),
        };
        match read {
            Err(error) if error.may_be_of_one_server() && changes < changes_max() => {
                changes += 1;
                change_leader(platform, log, &error).await;
            }
            read => return read,
        }
    }
}

/// Returns the maximum number of leaders that are tried for a stream after one of them has lost a
/// message.
pub(super) fn changes_max() -> u32 {
    if planted(Bug::FewLeaders) { 1 } else { LEADERS }
}

/// Makes another server lead, because `error` occurred with the current leader.
pub(super) async fn change_leader<P: Platform>(platform: &P, log: &impl Log, error: &FollowError) {
    tracing::error!(
        %error,
        "a journal server has lost a message: trying another server. Check the disk of the \
        server that lost the message"
    );
    // The request may go unanswered, or there may be no other server; the next attempt shows which
    // server leads.
    let _ = log.change_leader().await;
    platform.sleep_until(platform.moment() + CHANGE_PAUSE).await;
}
