//! The node's tasks for journals in a log that several machines share, at startup and while
//! serving. Each such log has *notes*, for example about periods in which allocations may be
//! missing.

use std::future::pending;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use ringwell_config::{Config, Durability};
use ringwell_directory::Directory;
use ringwell_driver::Platform;
use ringwell_driver::membership::Membership;
use ringwell_driver::node::{JournalState, Node, Phase};
use ringwell_driver::open::placement_name;
use ringwell_driver::store::{
    Fenced, KeptNotes, LastHeartbeat, LastOwner, LogEnd, Logs, OverflowPeriods, Sign,
};
use ringwell_os::clock::{Clock, reading};

use crate::directories::Check;
use crate::platform::Tokio;
use crate::{ServeError, disk};

/// The error for a durability that cannot be combined with journals in a shared log.
const LOG_ON_DISK: &str = "durability must be \"disk\" with `engine = \"nats\"` in [journal]";

/// The interval between two checks of whether another process has taken over this process's shards.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The time limit for recording in the logs' notes that a journal has failed.
const NOTES_MAX: Duration = Duration::from_secs(3);

/// The interval between two checks of a standby's configuration.
const CHECK_EVERY: Duration = Duration::from_secs(30);

/// Adapts the settings of the journal files, because these files become a copy of the shared log.
/// If standbys are configured, waits while another process serves, and returns the last known state
/// of that process.
///
/// # Errors
/// Returns [`ServeError::Log`] if the settings contradict each other.
pub(crate) fn prepare(
    logs: Option<&dyn Logs>,
    config: &Config,
    membership: Option<&Membership>,
    settings: &mut disk::Settings,
    check: Option<&Check>,
) -> Result<Option<LastOwner>, ServeError> {
    let Some(logs) = logs else { return Ok(None) };
    if settings.durability != Durability::Disk {
        return Err(ServeError::Log(LOG_ON_DISK.to_owned()));
    }
    settings.durability = Durability::Os;
    if let Some(replicated) = &config.journal.replicated {
        // The history may take up three quarters of the NATS stream. This limit applies to the
        // uncompressed size of the copy in files. In the stream, the same groups are never larger.
        // The remaining quarter is for records that are written while the oldest part of the stream
        // is being removed.
        let bytes_max = replicated.stream_bytes / 4 * 3;
        settings.history_bytes = settings.history_bytes.min(bytes_max);
        settings.segment_bytes = settings.segment_bytes.min(segment_bytes_max(bytes_max));
    }
    let first = first_shard(membership);
    let last_heartbeat = if stands_by(config) { stand_by(logs, first, check)? } else { None };
    logs.starting(first);
    Ok(last_heartbeat.map(|last_heartbeat| last_heartbeat.owner(&reading())))
}

/// Waits as a standby, and logs errors of the configuration in the meantime.
fn stand_by(
    logs: &dyn Logs,
    first: u16,
    check: Option<&Check>,
) -> Result<Option<LastHeartbeat>, ServeError> {
    let (waiting, over) = channel();
    std::thread::scope(|scope| {
        let watch = move || check.iter().for_each(|check| check_until(check, &over));
        let thread = std::thread::Builder::new().name("standby".to_owned());
        thread.spawn_scoped(scope, watch).map_err(ServeError::Thread)?;
        let last_heartbeat = logs.stand_by(first);
        drop(waiting);
        Ok(last_heartbeat)
    })
}

/// Checks the configuration repeatedly until the sender of `over` is dropped, and logs its errors.
fn check_until(check: &Check, over: &Receiver<()>) {
    let mut known = Vec::new();
    while over.recv_timeout(CHECK_EVERY) == Err(RecvTimeoutError::Timeout) {
        let faults: Vec<String> = check().iter().map(ToString::to_string).collect();
        if faults == known {
            continue;
        }
        for fault in &faults {
            tracing::error!("{fault}");
        }
        if faults.is_empty() {
            tracing::info!("the configuration of this standby no longer has errors");
        } else {
            tracing::error!(
                faults = faults.len(),
                "the configuration of this standby has errors: until they are corrected, a \
                 take-over serves the pools, web sites, [calls] and management tokens that were \
                 read at the beginning of the wait"
            );
        }
        known = faults;
    }
}

/// Returns the maximum segment size for a copy whose history may be at most `bytes` bytes long. The
/// newest segment counts toward the history's limit at its full size, even if it is empty.
fn segment_bytes_max(bytes: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    (bytes / 16 / MIB * MIB).max(MIB)
}

/// Whether this process waits while another process serves its shards.
pub(crate) fn stands_by(config: &Config) -> bool {
    config.journal.replicated.as_ref().is_some_and(|replicated| replicated.standby)
}

/// Returns the number of the process's first shard. All processes that can serve the same shards
/// share this number.
fn first_shard(membership: Option<&Membership>) -> u16 {
    membership.and_then(|membership| membership.own().shards.first().copied()).unwrap_or(0)
}

/// Returns the name of the placement that the logs belong to.
pub(crate) fn placement(directory: &Directory, membership: Option<&Membership>) -> String {
    match membership {
        // A process that has all logs can pass each lockout on to the number's current owner. The
        // logs can therefore be used with every placement, so all placements get the same name.
        None => "one process".to_owned(),
        Some(_) => placement_name(directory.placement()),
    }
}

/// Announces to other processes that this process has stored everything and no longer serves.
pub(crate) fn end(logs: Option<&dyn Logs>, node: &Node) {
    let is_own = node.journals().all(|(_, state)| state != JournalState::Taken);
    // If another process has already taken over, there is nothing to announce.
    if let Some(logs) = logs.filter(|_| is_own) {
        logs.ended(first_shard(node.membership.as_ref()));
    }
}

/// Announces to other processes that this process serves. While the process serves, it also records
/// gaps and failures of its journals, and overflow periods, in the notes of the logs.
pub(crate) fn report(logs: Option<&dyn Logs>, node: &Arc<Node>, clock: Clock, epochs: Vec<u64>) {
    let Some(logs) = logs else { return };
    let first = first_shard(node.membership.as_ref());
    let (serving, noted) = (Arc::clone(node), epochs.clone());
    let sign = move || {
        let is_own = |state| !matches!(state, JournalState::Taken | JournalState::Failed);
        let is_serving = serving.phase() != Phase::Starting
            && serving.journals().all(|(_, state)| is_own(state));
        is_serving.then(|| {
            let stored = serving.stored().collect();
            Sign { at: clock.now(), epochs: epochs.clone(), stored }
        })
    };
    let of = Arc::clone(node);
    let kept = move || {
        let has_failed = of.journals().any(|(_, state)| state == JournalState::Failed);
        let ends = of.shards().zip(noted.iter().zip(of.stored()));
        let failed_at = ends.filter(|_| has_failed);
        let failed_at = failed_at.map(|(shard, (&epoch, group))| (shard, LogEnd { epoch, group }));
        let overflow = of.overflow_periods(OverflowPeriods::newest);
        KeptNotes { gaps: of.gaps(), overflow, failed_at: failed_at.collect() }
    };
    logs.keep_notes(node.shards().collect(), Box::new(kept));
    logs.serving(first, Box::new(sign));
}

/// Waits until this process should end so that its supervisor restarts it, and logs the reason.
/// Either a journal in a log has failed, or other processes have taken over some of this process's
/// shards. In the latter case, this process should become a standby.
pub(crate) async fn is_over(node: &Node) {
    let Some(replicated) = &node.config.journal.replicated else { return pending().await };
    // Without standbys, an operator decides which of two processes serves, so this process does not
    // end when its shards are taken over.
    let counts = |state: &JournalState| replicated.standby || *state != JournalState::Taken;
    let states = || node.journals().map(|(_, state)| state).filter(counts);
    let mut fenced = Fenced::default();
    while !fenced.is_final(states(), Tokio.moment()) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    if states().any(|state| state == JournalState::Failed) {
        // Leaves time to write the notes of the logs. On a machine that has no copy of the log,
        // only these notes show that the journal has failed.
        tokio::time::sleep(NOTES_MAX).await;
        tracing::error!(
            "a journal has failed: stopping; after a restart, the journal is read again"
        );
    } else if states().all(|state| state == JournalState::Taken) {
        tracing::error!(
            "another process has taken over all of this process's shards: stopping; after a \
            restart, this process will be a standby"
        );
    } else {
        tracing::error!(
            "another process has taken over some of this process's shards: stopping; after a \
            restart, this process will be a standby"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_segment_of_a_copy_is_a_small_part_of_its_history() {
        for stream_mib in [16, 64, 80, 1 << 14] {
            let history = (stream_mib << 20) / 4 * 3;
            let segment = segment_bytes_max(history);
            assert!(segment >= 1 << 20 && segment <= history / 12, "{stream_mib}: {segment}");
        }
    }
}
