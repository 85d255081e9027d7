//! What journals alone can tell: lockouts by the clock of the shard, their own order, one owner,
//! and the state that they amount to.

use std::collections::{BTreeMap, HashMap};

use super::timeline::Timelines;
use crate::history::{Frame, History, Journal, Kind, Owner, Place, State};
use crate::verdict::{Findings, Rule};

/// C1, exactly: an allocation does not begin before the lockout ends that stands then.
pub(super) fn double(history: &History, timelines: &Timelines<'_>, findings: &mut Findings) {
    if history.journals.is_empty() {
        findings.not_judged.push((Rule::Double, "by the journal: there are no `jrn` lines"));
    }
    for (number, allocations) in &timelines.numbers {
        for pair in allocations.windows(2) {
            let [one, other] = pair else { continue };
            if other.at < one.until && !other.copy {
                let words = format!(
                    "{number:010} was allocated {} ms after it was allocated before, and its \
                     lockout ended {} ms later still",
                    other.at - one.at,
                    one.until - other.at
                );
                let t = history.mono(other.at);
                findings.add(Rule::Double, t, words, &[one.place, other.place]);
                break;
            }
        }
    }
}

/// C7: frames follow each other without a gap, epochs and times never fall, records stand where
/// their frames say.
pub(super) fn order(history: &History, findings: &mut Findings) {
    if history.journals.is_empty() {
        findings.not_judged.push((Rule::Order, "no `jrn` lines"));
    }
    for ((node, shard), journal) in &history.journals {
        if let Some((words, at, places)) = disorder(journal) {
            let words = format!("the journal of {node} shard {shard}: {words}");
            findings.add(Rule::Order, history.mono(at), words, &places);
        }
    }
}

type Disorder = (String, i64, Vec<Place>);

fn disorder(journal: &Journal) -> Option<Disorder> {
    let of_frames = journal.frames.windows(2).find_map(|pair| between(&pair[0], &pair[1]));
    let backwards = journal.frames.iter().find(|frame| frame.last_at < frame.at).map(|frame| {
        (format!("time falls within frame {}", frame.number), frame.at, vec![frame.place])
    });
    let mut counts: HashMap<u64, u64> = HashMap::new();
    for record in &journal.records {
        *counts.entry(record.frame).or_default() += 1;
    }
    let of_records = journal.records.windows(2).find_map(|pair| {
        let (one, other) = (&pair[0], &pair[1]);
        let words = if other.position <= one.position {
            "a record lies before the one that stands before it"
        } else if other.at < one.at {
            "time falls from one record to the next"
        } else {
            return None;
        };
        Some((words.to_owned(), other.at, vec![one.place, other.place]))
    });
    let of_counts = journal.frames.iter().find_map(|frame| {
        let count = counts.get(&frame.number).copied().unwrap_or(0);
        let words =
            format!("frame {} says {} records, {count} are there", frame.number, frame.records);
        (count != frame.records).then(|| (words, frame.at, vec![frame.place]))
    });
    of_frames.or(backwards).or(of_records).or(of_counts)
}

fn between(one: &Frame, other: &Frame) -> Option<Disorder> {
    let words = if other.number != one.number + 1 {
        format!("frame {} follows frame {}", other.number, one.number)
    } else if other.epoch < one.epoch {
        format!("the epoch falls from {} to {} in frame {}", one.epoch, other.epoch, other.number)
    } else if other.at < one.last_at {
        format!("time falls by {} ms before frame {}", one.last_at - other.at, other.number)
    } else if !other.names_the_one_before {
        format!("frame {} does not name the hash of the one before", other.number)
    } else {
        return None;
    };
    Some((words, other.at, vec![one.place, other.place]))
}

/// C8: one journal for a shard and epoch.
pub(super) fn owners(history: &History, findings: &mut Findings) {
    if !history.journals.values().any(|journal| !journal.segments.is_empty()) {
        findings.not_judged.push((Rule::Owner, "no `jrn` lines of segments"));
        return;
    }
    let mut owners: BTreeMap<(u64, u64), (&Owner, &str, Place)> = BTreeMap::new();
    for (owner, journal) in &history.journals {
        for segment in &journal.segments {
            let key = (owner.1, segment.epoch);
            let entry = owners.entry(key).or_insert((owner, &segment.journal, segment.place));
            let (other, name, place) = *entry;
            if other != owner || name != segment.journal {
                let words = format!(
                    "epoch {} of shard {} has two journals: {name} on {} and {} on {}",
                    segment.epoch, owner.1, other.0, segment.journal, owner.0
                );
                let first = journal.records.first().and_then(|record| history.mono(record.at));
                findings.add(Rule::Owner, first, words, &[place, segment.place]);
                break;
            }
        }
    }
}

/// A number's newest allocation in one journal.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Newest {
    place: Place,
    pool: u64,
    allocated: i64,
    until: i64,
}

/// C11: the state at the end is what the records of the shard amount to.
pub(super) fn recovery(history: &History, findings: &mut Findings) {
    if history.states.is_empty() {
        findings.not_judged.push((Rule::Recovery, "no `fin` lines"));
        return;
    }
    for (owner, state) in &history.states {
        let Some(journal) = history.journals.get(owner) else {
            findings.not_judged.push((Rule::Recovery, "a state has no journal beside it"));
            continue;
        };
        if let Some((words, places)) = deviation(journal, state) {
            let words = format!("{} shard {}: {words}", owner.0, owner.1);
            let last = journal.records.last().and_then(|record| history.mono(record.at));
            findings.add(Rule::Recovery, last, words, &places);
        }
    }
}

fn replayed(journal: &Journal) -> BTreeMap<u64, Newest> {
    let mut numbers: BTreeMap<u64, Newest> = BTreeMap::new();
    for record in &journal.records {
        let place = record.place;
        match record.kind {
            Kind::Allocate { number, pool, lockout, .. } => {
                let until = record.at.saturating_add(lockout);
                numbers.insert(number, Newest { place, pool, allocated: record.at, until });
            }
            Kind::Carry { number, pool, allocated, until, .. } => {
                numbers.insert(number, Newest { place, pool, allocated, until });
            }
            Kind::Until { number, until, .. } => {
                if let Some(newest) = numbers.get_mut(&number) {
                    newest.until = until;
                }
            }
            Kind::Hold { .. } | Kind::Other => {}
        }
    }
    numbers
}

fn deviation(journal: &Journal, state: &State) -> Option<(String, Vec<Place>)> {
    let mut expected = replayed(journal);
    for held in &state.numbers {
        let number = held.number;
        match expected.remove(&number) {
            None if journal.is_whole() => {
                let words = format!("the state has {number:010}, of which there is no record");
                return Some((words, vec![held.place]));
            }
            // Its record was dropped, and the snapshot knows it.
            None => {}
            Some(newest) => {
                let pool = held.pool.is_none_or(|pool| pool == newest.pool);
                let times = (held.allocated, held.until) == (newest.allocated, newest.until);
                if !(pool && times) {
                    let words = format!(
                        "the state has {number:010} allocated at {} until {}, the records at {} \
                         until {}",
                        held.allocated, held.until, newest.allocated, newest.until
                    );
                    return Some((words, vec![newest.place, held.place]));
                }
            }
        }
    }
    if let Some((number, newest)) = expected.first_key_value() {
        let words = format!("the records have {number:010}, the state does not");
        return Some((words, vec![newest.place]));
    }
    let (place, count) = state.count?;
    let there = u64::try_from(state.numbers.len()).unwrap_or(u64::MAX);
    let words = format!("the state says {count} numbers, {there} are there");
    (count != there).then(|| (words, vec![place]))
}
