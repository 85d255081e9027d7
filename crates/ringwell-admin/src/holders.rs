//! Looks up the holders of a number, for example to attribute a call.

use ringwell_calls::{History, HolderError, KeepAlives, ReportedAllocation};
use ringwell_core::{Millis, PromoNumber};
use ringwell_engine::{KEEP_ALIVES_MAX, Missing, Moment, Past};
use ringwell_node::Handle;

/// If data was lost, holders are searched for within this period before the call. Almost no caller
/// waits longer.
const HORIZON: Millis = Millis(24 * 3_600_000);
/// The maximum number of holders to examine between two gaps in the history.
const LATER_MAX: usize = 32;
/// The largest difference, in milliseconds, between the times that two look-ups return for the same
/// allocation.
const STEP_MAX: u64 = 1_024;

/// Returns the holder of `number` at `at` and the earlier holders, newest first. Returns at most
/// `most` holders. If data was lost in the last day before the newest holder, continues with the
/// newest holder before that.
///
/// # Errors
/// [`HolderError`] if no holder can be found because of an error. If the error concerns only older
/// holders, the others are returned.
pub async fn holders(
    node: &Handle,
    number: PromoNumber,
    at: Millis,
    most: usize,
) -> Result<History, HolderError> {
    let oldest = Millis(at.0.saturating_sub(HORIZON.0));
    let (mut found, mut unknown, mut gaps, mut at) = (Vec::new(), None, 0, at);
    let (mut newer, mut step) = (None, 1);
    while found.len() < most {
        let past = match node.holder(number, at).await {
            Ok(joined) => match joined.lacks().filter(|_| found.is_empty()) {
                Some(shard) => {
                    let problem = format!(
                        "shard {shard} cannot be reached, and its history may contain the \
                            allocation"
                    );
                    return Err(HolderError::Unavailable(problem));
                }
                None => joined.past,
            },
            Err(_) if !found.is_empty() => break,
            Err(error) => return Err(HolderError::Unavailable(error.to_string())),
        };
        let held = match (past.held, past.missing) {
            // A slow disk did not return the record with the parameters in time.
            (Some(_), Some(Missing::TooLong)) if found.is_empty() => {
                let problem = "the record of the allocation could not be read in time";
                return Err(HolderError::Unavailable(problem.to_owned()));
            }
            (Some(held), _) => held,
            (None, Some(missing)) if found.is_empty() => return Err(gap(missing)),
            (None, _) => {
                let lost_until = past.lost_until.filter(|until| *until > oldest && gaps < most);
                let Some(lost_until) = lost_until else { break };
                unknown = unknown.or_else(|| found.last().map(|it| before(it).min(lost_until)));
                gaps += 1;
                match before_gap(node, number, (oldest, at)).await {
                    Some(before) => at = before,
                    None => break,
                }
                continue;
            }
        };
        // If the clocks of two nodes differ, two look-ups may return different times for the same
        // allocation.
        if newer == Some(held.allocated_at) && step < STEP_MAX {
            step *= 4;
            at = Millis(at.0.saturating_sub(step));
            continue;
        }
        (newer, step) = (Some(held.allocated_at), 1);
        at = Millis(held.allocated_wall.0.saturating_sub(1));
        found.push(ReportedAllocation {
            pool: held.pool,
            allocated_at: held.allocated_wall,
            locked_until: held.locked_until,
            parameters: ringwell_wire::params::decode_each(&held.params),
            // The call log adds the time of the visitor's last tap on the number.
            tapped_at: None,
        });
    }
    Ok(History { allocations: found, unknown })
}

/// Returns the latest time at which another visitor could have received the number before `newer`,
/// if both lockouts are equally long.
fn before(newer: &ReportedAllocation) -> Millis {
    let lockout = newer.locked_until.since(newer.allocated_at);
    Millis(newer.allocated_at.0.saturating_sub(lockout.0))
}

/// Returns the time of the newest known allocation of `number` between `oldest` and `gap`. At the
/// time `gap`, the history is missing. `None` if there is no such allocation.
async fn before_gap(
    node: &Handle,
    number: PromoNumber,
    (oldest, gap): (Millis, Millis),
) -> Option<Millis> {
    let past = async |at: Millis| node.holder(number, at).await.ok().map(|joined| joined.past);
    let is_before = |next: &Millis| *next < gap;
    let (mut at, mut step) = (gap, 1_000);
    let mut found = loop {
        if at <= oldest {
            return None;
        }
        at = Millis(gap.0.saturating_sub(step)).max(oldest);
        step *= 4;
        let Past { held, next, .. } = past(at).await?;
        let held = held.filter(|held| held.allocated_wall >= oldest);
        let first = held.map(|held| held.allocated_wall).or(next.filter(is_before));
        if let Some(first) = first {
            break first;
        }
    };
    // The history may be missing at several times between `found` and `gap`.
    for _ in 0..LATER_MAX {
        let next = past(found).await?.held.and_then(|held| held.next_allocated_at);
        match next.filter(|next| is_before(next) && found < *next) {
            Some(next) => found = next,
            None => break,
        }
    }
    Some(found)
}

/// Returns the keep-alives, up to the time `at`, for the allocation of `number` that was made at
/// `allocated_at`. Merges the answers of all shards, because the number may have moved. `None` if
/// the allocation is no longer in the history.
pub async fn keep_alives(
    node: &Handle,
    number: PromoNumber,
    (allocated_at, at): (Millis, Millis),
) -> Option<KeepAlives> {
    let answers = node.attribution_with_keep_alives(number, Moment::Wall(at)).await.ok()?;
    let held = answers.into_iter().filter_map(|(_, past)| past.ok()?.held);
    let mut found: Option<KeepAlives> = None;
    for kept in held.filter_map(|held| held.keep_alives) {
        let found = found.get_or_insert_default();
        found.at.extend(kept.at.into_iter().filter(|it| (allocated_at..=at).contains(it)));
        found.is_part |= kept.is_part;
    }
    let mut found = found?;
    found.at.sort_unstable();
    found.at.dedup();
    found.is_part |= found.at.len() > KEEP_ALIVES_MAX;
    let surplus = found.at.len().saturating_sub(KEEP_ALIVES_MAX);
    found.at.drain(..surplus);
    Some(found)
}

fn gap(missing: Missing) -> HolderError {
    let reason = match missing {
        Missing::NotKept => "the history does not go back that far",
        Missing::TooLong => {
            "the number has been handed out too often since then to search back to that time"
        }
        Missing::Damaged => "the history for that time is damaged",
    };
    HolderError::Gone(reason.to_owned())
}
