//! Rules that need only journals: lockouts according to the shard's clock, the order of frames, one
//! owner for each shard, and the final state.

use std::collections::{BTreeMap, HashMap};

use super::timeline::Timelines;
use crate::history::{Frame, HeldAtEnd, Journal, Kind, Owner, Part, Record, SourceLine, Whole};
use crate::verdict::{Findings, Rule};

/// C1, judged exactly by the shard's clock: an allocation never begins before the number's current
/// lockout ends. Allocations that no visitor saw are ignored.
pub(super) fn double(whole: &Whole, timelines: &Timelines<'_>, findings: &mut Findings) {
    for (number, allocations) in &timelines.numbers {
        let seen: Vec<_> = allocations.iter().filter(|allocation| !allocation.unseen).collect();
        for pair in seen.windows(2) {
            let [one, other] = pair else { continue };
            if other.at < one.until && !other.copy {
                let words = format!(
                    "{number:010} was allocated again after {} ms, {} ms before its lockout ended",
                    other.at - one.at,
                    one.until - other.at
                );
                let t = whole.mono(other.at);
                findings.add(Rule::Double, t, words, &[one.place, other.place]);
                break;
            }
        }
    }
}

/// C7: frames follow each other without a gap, epochs and times never decrease, and each frame
/// contains as many records as its header states.
pub(super) fn order(whole: &Whole, findings: &mut Findings) {
    for ((node, shard), journal) in &whole.journals {
        if let Some((words, at, places)) = disorder(journal) {
            let words = format!("the journal of node {node}, shard {shard}: {words}");
            findings.add(Rule::Order, whole.mono(at), words, &places);
        }
    }
}

type Disorder = (String, i64, Vec<SourceLine>);

fn disorder(journal: &Journal) -> Option<Disorder> {
    let of_frames = journal.frames.windows(2).find_map(|pair| between(&pair[0], &pair[1]));
    let backwards = journal.frames.iter().find(|frame| frame.last_at < frame.at).map(|frame| {
        (
            format!("frame {} ends at an earlier time than it begins", frame.number),
            frame.at,
            vec![frame.place],
        )
    });
    let of_records =
        journal.out_of_order.map(|(words, at, places)| (words.to_owned(), at, places.to_vec()));
    let of_counts = journal.frames.iter().find_map(|frame| {
        let count = journal.counts.get(&frame.number).copied().unwrap_or(0);
        let words = format!(
            "the header of frame {} states {} records, but the frame contains {count}",
            frame.number, frame.records
        );
        (count != frame.records).then(|| (words, frame.at, vec![frame.place]))
    });
    of_frames.or(backwards).or(of_records).or(of_counts)
}

fn between(one: &Frame, other: &Frame) -> Option<Disorder> {
    let words = if other.number != one.number + 1 {
        format!("frame {} follows frame {}", other.number, one.number)
    } else if other.epoch < one.epoch {
        format!(
            "the epoch decreases from {} to {} in frame {}",
            one.epoch, other.epoch, other.number
        )
    } else if other.at < one.last_at {
        format!("time goes back by {} ms before frame {}", one.last_at - other.at, other.number)
    } else if !other.names_the_one_before {
        format!("frame {} does not state the hash of the previous frame", other.number)
    } else {
        return None;
    };
    Some((words, other.at, vec![one.place, other.place]))
}

/// C8: each epoch of a shard has only one journal.
pub(super) fn owners(whole: &Whole, findings: &mut Findings) {
    let mut owners: BTreeMap<(u64, u64), (&Owner, &str, SourceLine)> = BTreeMap::new();
    for (owner, journal) in &whole.journals {
        for segment in &journal.segments {
            let key = (owner.1, segment.epoch);
            let entry = owners.entry(key).or_insert((owner, &segment.journal, segment.place));
            let (other, name, place) = *entry;
            if other != owner || name != segment.journal {
                let words = format!(
                    "epoch {} of shard {} has two journals: {name} on node {} and {} on node {}",
                    segment.epoch, owner.1, other.0, segment.journal, owner.0
                );
                let first = journal.first_at.and_then(|at| whole.mono(at));
                findings.add(Rule::Owner, first, words, &[place, segment.place]);
                break;
            }
        }
    }
}

/// A number's newest allocation in one journal.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Newest {
    place: SourceLine,
    pool: u64,
    allocated: i64,
    until: i64,
}

/// The first difference between a state and the records. Differences are ordered by the state's
/// lines; numbers that are missing from the state come last.
type Deviation = (Option<SourceLine>, u64, String, Vec<SourceLine>);

/// C11: the final state is the result of the shard's records. Stores the first deviation of each
/// shard.
#[derive(Debug, Default)]
pub(super) struct Deviations {
    first: BTreeMap<u32, Deviation>,
}

impl Deviations {
    /// Compares the final states of a part's numbers with the records.
    pub(super) fn take(&mut self, whole: &Whole, part: &Part) {
        for (owner, index) in &whole.owners {
            let Some(journal) = whole.journals.get(owner) else { continue };
            if !whole.states.contains_key(owner) {
                continue;
            }
            let records = part.records.iter().filter(|record| record.owner == *index);
            let held = part.held.iter().filter(|held| held.owner == *index);
            if let Some(found) = deviation(journal, replayed(records), held) {
                let first = self.first.entry(*index).or_insert_with(|| found.clone());
                let rank = |it: &Deviation| (it.0.is_none(), it.0, it.1);
                if rank(&found) < rank(first) {
                    *first = found;
                }
            }
        }
    }

    /// Adds each shard's deviation, and any wrong count of numbers, to the findings.
    pub(super) fn judge(self, whole: &Whole, findings: &mut Findings) {
        for (owner, state) in &whole.states {
            let Some(journal) = whole.journals.get(owner) else { continue };
            let first = whole.owners.get(owner).and_then(|index| self.first.get(index));
            let found = first.map(|(_, _, words, places)| (words.clone(), places.clone()));
            let counted = || {
                let (place, count) = state.count?;
                let words = format!(
                    "the final state should contain {count} numbers, but contains {}",
                    state.there
                );
                (count != state.there).then(|| (words, vec![place]))
            };
            if let Some((words, places)) = found.or_else(counted) {
                let words = format!("node {}, shard {}: {words}", owner.0, owner.1);
                let last = journal.last.and_then(|last| whole.mono(last.at));
                findings.add(Rule::Recovery, last, words, &places);
            }
        }
    }
}

fn replayed<'a>(records: impl Iterator<Item = &'a Record>) -> HashMap<u64, Newest> {
    let mut numbers: HashMap<u64, Newest> = HashMap::new();
    for Record { place, at, number, kind, .. } in records {
        let place = *place;
        match *kind {
            Kind::Allocate { pool, lockout, .. } => {
                let until = at.saturating_add(lockout);
                numbers.insert(*number, Newest { place, pool, allocated: *at, until });
            }
            Kind::Carry { pool, allocated, until, .. } => {
                numbers.insert(*number, Newest { place, pool, allocated, until });
            }
            Kind::Until { until, restored, .. } => {
                if let Some(newest) = numbers.get_mut(number) {
                    newest.until = until;
                    newest.allocated = restored.unwrap_or(newest.allocated);
                }
            }
        }
    }
    numbers
}

fn deviation<'a>(
    journal: &Journal,
    mut expected: HashMap<u64, Newest>,
    state: impl Iterator<Item = &'a HeldAtEnd>,
) -> Option<Deviation> {
    for held in state {
        let number = held.number;
        match expected.remove(&number) {
            None if journal.is_whole() => {
                let words = format!(
                    "the final state contains {number:010}, but the journal has no record of it"
                );
                return Some((Some(held.place), number, words, vec![held.place]));
            }
            // The number's record was dropped with an old segment, but the number is still in the
            // snapshot.
            None => {}
            Some(newest) => {
                let pool = held.pool.is_none_or(|pool| pool == newest.pool);
                // If a server cannot determine at startup how long it was stopped, it lengthens
                // lockouts without writing records.
                let times = held.allocated == newest.allocated && held.until >= newest.until;
                if !(pool && times) {
                    let words = format!(
                        "according to the final state, {number:010} was allocated at {} and is \
                         locked until {}; according to the journal, it was allocated at {} and is \
                         locked until {}",
                        held.allocated, held.until, newest.allocated, newest.until
                    );
                    let places = vec![newest.place, held.place];
                    return Some((Some(held.place), number, words, places));
                }
            }
        }
    }
    let (number, newest) = expected.into_iter().min_by_key(|(number, _)| *number)?;
    let words = format!("the journal contains {number:010}, but the final state does not");
    Some((None, number, words, vec![newest.place]))
}
