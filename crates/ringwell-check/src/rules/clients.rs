//! What clients alone can tell: doubles, wrong pools, answers, deadlines, look-ups.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::history::{Answer, Batch, End, History, MS, Row, What};
use crate::verdict::{Findings, Rule};

/// What a batch may take beyond its deadline: sending, receiving, and waiting for a turn.
const DEADLINE_SLACK: i64 = 50 * MS;

/// C1: two rows that got one number, although even by the widest reading of their times one got it
/// within the other's lockout.
pub(super) fn double(history: &History, findings: &mut Findings) {
    let mut numbers: BTreeMap<u64, Vec<Row<'_>>> = BTreeMap::new();
    for row in history.rows() {
        if let What::Own(number) = row.what {
            numbers.entry(*number).or_default().push(row);
        }
    }
    if history.pools.is_empty() {
        findings.not_judged.push((Rule::Double, "by clients: there are no `cfg` lines"));
    }
    for (number, mut rows) in numbers {
        rows.sort_by_key(|row| (row.batch.since, row.batch.place));
        let longest = rows.iter().map(|row| lifetime(history, row)).max().unwrap_or(0);
        for (index, later) in rows.iter().enumerate() {
            let earlier = rows[..index].iter().rev();
            // Whoever began longer ago cannot be within anybody's lockout.
            let near = earlier.take_while(|row| later.end.t - row.batch.since < longest);
            let mut clash = near.filter(|row| {
                let lockout = lifetime(history, row).min(lifetime(history, later));
                let close = later.end.t - row.batch.since < lockout
                    && row.end.t - later.batch.since < lockout;
                close && row.asked.rid != later.asked.rid
            });
            if let Some(row) = clash.next() {
                let gap = (later.end.t - row.batch.since) / MS;
                let words = format!(
                    "{number:010} went to {} and to {}: at most {gap} ms lie between, and its \
                     lockout is {} ms",
                    row.asked.rid,
                    later.asked.rid,
                    lifetime(history, row) / MS
                );
                findings.add(Rule::Double, Some(later.end.t), words, &proof(row, later));
                break;
            }
        }
    }
}

fn proof(one: &Row<'_>, other: &Row<'_>) -> [crate::history::Place; 4] {
    [one.batch.place, one.end.place, other.batch.place, other.end.place]
}

/// The shortest lifetime that a row's pool had while it was under way, in nanoseconds; 0 if
/// nobody says.
fn lifetime(history: &History, row: &Row<'_>) -> i64 {
    let versions = history.versions(row.asked.pool, row.batch.since, row.end.t);
    versions.map(|version| version.lifetime_ms * MS).min().unwrap_or(0)
}

/// C4: a number is of the pool that was asked, and no overflow number; an overflow number is that
/// pool's.
pub(super) fn pool(history: &History, findings: &mut Findings) {
    if history.pools.is_empty() {
        findings.not_judged.push((Rule::Pool, "no `cfg` lines"));
        return;
    }
    for row in history.rows() {
        let versions: Vec<_> =
            history.versions(row.asked.pool, row.batch.since, row.end.t).collect();
        if versions.is_empty() {
            findings.excuse(Rule::Pool, "rows of pools without a `cfg` line");
            continue;
        }
        let fault = match row.what {
            What::Own(number) => {
                let overflow = versions.iter().any(|version| version.overflow == Some(*number));
                let within = |(first, last): &(u64, u64)| (*first..=*last).contains(number);
                let member = versions.iter().any(|version| version.ranges.iter().any(within));
                match (overflow, member) {
                    (true, _) => Some(format!("{number:010}, the overflow number, as its own")),
                    (false, false) => Some(format!("{number:010}, which is none of its numbers")),
                    (false, true) => None,
                }
            }
            What::Overflow(number) => {
                let right = versions.iter().any(|version| version.overflow == Some(*number));
                (!right).then(|| format!("{number:010} as overflow, which is another number"))
            }
            What::Error(_) => None,
        };
        if let Some(fault) = fault {
            let words = format!("{} asked pool {} and got {fault}", row.asked.rid, row.asked.pool);
            let places = [row.batch.place, row.end.place];
            findings.add(Rule::Pool, Some(row.end.t), words, &places);
        }
    }
}

/// C5: one answer to each batch, with its rows in their order; attempts under one key agree.
pub(super) fn answers(history: &History, findings: &mut Findings) {
    let mut known = HashSet::new();
    for batch in &history.batches {
        if !known.insert(batch.id.as_str()) {
            let words = format!("two batches have the id {}", batch.id);
            findings.add(Rule::Answer, Some(batch.t), words, &[batch.place]);
        }
        if let Some([first, second, ..]) = history.ends.get(&batch.id).map(Vec::as_slice) {
            let words = format!("{} has two answers", batch.id);
            let places = [batch.place, first.place, second.place];
            findings.add(Rule::Answer, Some(second.t), words, &places);
        }
        if let Some((end, answer)) = history.answer(batch)
            && let Some(words) = misshapen(batch, answer)
        {
            findings.add(Rule::Answer, Some(end.t), words, &[batch.place, end.place]);
        }
    }
    for (id, ends) in &history.ends {
        if let [end, ..] = ends.as_slice()
            && !known.contains(id.as_str())
        {
            let words = format!("an answer to {id}, which nobody sent");
            findings.add(Rule::Answer, Some(end.t), words, &[end.place]);
        }
    }
    attempts(history, findings);
}

/// What is wrong with an answer, beside its numbers.
fn misshapen(batch: &Batch, answer: &Answer) -> Option<String> {
    let id = &batch.id;
    if let Some(why) = &answer.bad {
        return Some(format!("the answer to {id} cannot be read: {why}"));
    }
    if answer.status != 200 {
        return None;
    }
    if answer.rows.len() != batch.rows.len() {
        let (asked, got) = (batch.rows.len(), answer.rows.len());
        return Some(format!("{id} has {asked} rows, its answer {got}"));
    }
    batch.rows.iter().zip(&answer.rows).enumerate().find_map(|(index, (asked, got))| {
        let rid = got.rid.as_deref().unwrap_or("none");
        if rid != asked.rid {
            return Some(format!("row {index} of {id} is {}, its answer's is {rid}", asked.rid));
        }
        let neither = got.what == What::Error("?".to_owned());
        neither.then(|| format!("row {index} of {id} is answered by neither number nor error"))
    })
}

/// Two attempts under one key never get two numbers for one row. One of them may overflow: its
/// shard was late, or somebody else has the number by now.
fn attempts(history: &History, findings: &mut Findings) {
    let mut rows: HashMap<(&str, &str), Vec<Row<'_>>> = HashMap::new();
    for row in history.rows() {
        if let (Some(key), What::Own(_)) = (&row.batch.key, row.what) {
            rows.entry((key, &row.asked.rid)).or_default().push(row);
        }
    }
    for ((key, rid), mut attempts) in rows {
        attempts.sort_by_key(|row| row.end.t);
        let pair = attempts.windows(2).find(|pair| pair[0].what != pair[1].what);
        if let Some([one, other]) = pair {
            let words = format!("attempts under the key {key} got two numbers for {rid}");
            findings.add(Rule::Answer, Some(other.end.t), words, &proof(one, other));
        }
    }
}

/// C9: what was answered was answered in time.
pub(super) fn deadline(history: &History, findings: &mut Findings) {
    let mut judged = false;
    for batch in &history.batches {
        let run = batch.id.split_once('-').map_or(batch.id.as_str(), |(run, _)| run);
        let server = history.runs.get(run).copied().flatten();
        let Some(deadline) = server.into_iter().chain(batch.deadline_ms).min() else { continue };
        judged = true;
        let Some((end, _)) = history.answer(batch) else { continue };
        if late(batch, end, deadline) {
            let words = format!(
                "{} took {} ms, its deadline was {deadline} ms",
                batch.id,
                (end.t - batch.t) / MS
            );
            findings.add(Rule::Deadline, Some(end.t), words, &[batch.place, end.place]);
        }
    }
    if !judged {
        findings.not_judged.push((Rule::Deadline, "no line of `run` or `inv` tells a deadline"));
    }
}

fn late(batch: &Batch, end: &End, deadline_ms: i64) -> bool {
    end.t - batch.t > deadline_ms * MS + DEADLINE_SLACK
}

/// C10: a look-up finds the row that held the number.
pub(super) fn attribution(history: &History, findings: &mut Findings) {
    if history.lookups.is_empty() {
        findings.not_judged.push((Rule::Attribution, "no `att` lines"));
        return;
    }
    let pools: HashMap<_, _> = history
        .batches
        .iter()
        .flat_map(|batch| &batch.rows)
        .map(|asked| (asked.rid.as_str(), asked.pool))
        .collect();
    for lookup in &history.lookups {
        if lookup.status != 200 {
            findings.excuse(Rule::Attribution, "look-ups that were refused");
            continue;
        }
        let asked = pools.get(lookup.rid.as_str()).copied();
        let number = lookup.number;
        let wrong = match (lookup.outcome.as_deref(), lookup.found.as_deref()) {
            (Some("allocated"), Some(found)) if found != lookup.rid => {
                Some(format!("found {found}"))
            }
            (Some("allocated"), None) => Some("found an allocation without its row".to_owned()),
            (Some("allocated"), Some(_)) => {
                let other = lookup.pool.filter(|pool| asked.is_some_and(|asked| asked != *pool));
                other.map(|pool| format!("found it in pool {pool}"))
            }
            (other, _) => Some(format!("said {:?}", other.unwrap_or("nothing"))),
        };
        if let Some(wrong) = wrong {
            let words = format!("{} held {number:010}, and the look-up {wrong}", lookup.rid);
            let row = history.rows().find(|row| row.asked.rid == lookup.rid);
            let mut places = vec![lookup.place];
            places.extend(row.map(|row| row.end.place));
            findings.add(Rule::Attribution, Some(lookup.t), words, &places);
        }
    }
}
