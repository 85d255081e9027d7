//! Rules that need only the clients' lines: doubles, wrong pools, answers, deadlines, look-ups.

use std::collections::BTreeMap;

use crate::history::{Asked, Batch, End, Lookup, MS, Part, Row, SourceLine, What, Whole};
use crate::verdict::{Findings, Rule};

/// The extra time that a batch may take beyond its deadline, to allow for sending, receiving and
/// scheduling.
const DEADLINE_SLACK: i64 = 50 * MS;

/// Counts the rows and the numbers that the rules judge.
pub(super) fn count(whole: &Whole, part: &Part, findings: &mut Findings) {
    let mut numbers = Vec::new();
    for row in whole.answered(&part.rows) {
        findings.rows += 1;
        match row.what {
            What::Own(number) => numbers.push(*number),
            What::Overflow(_) => findings.overflow_rows += 1,
            What::Error(_) => {}
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    findings.numbers += numbers.len();
}

/// C1, according to clients: two rows must not get the same number if one of them gets it within
/// the other's lockout. The rows' times are interpreted in the server's favour.
pub(super) fn double(whole: &Whole, part: &Part, findings: &mut Findings) {
    let mut numbers: BTreeMap<u64, Vec<Row<'_>>> = BTreeMap::new();
    for row in whole.answered(&part.rows) {
        if let What::Own(number) = row.what {
            numbers.entry(*number).or_default().push(row);
        }
    }
    for (number, mut rows) in numbers {
        rows.sort_by_key(|row| (row.batch.since, row.batch.place));
        let longest = rows.iter().map(|row| lifetime(whole, row)).max().unwrap_or(0);
        for (index, later) in rows.iter().enumerate() {
            let earlier = rows[..index].iter().rev();
            // The search ends at a row whose lockout has ended, because the lockouts of earlier
            // rows have ended too.
            let near = earlier.take_while(|row| later.end.t - row.batch.since < longest);
            let mut clash = near.filter(|row| {
                let lockout = lifetime(whole, row).min(lifetime(whole, later));
                let close = later.end.t - row.batch.since < lockout
                    && row.end.t - later.batch.since < lockout;
                close && row.asked.rid != later.asked.rid
            });
            if let Some(row) = clash.next() {
                let gap = (later.end.t - row.batch.since) / MS;
                let words = format!(
                    "{number:010} was given to rows {} and {} within {gap} ms, but its lockout is \
                     {} ms",
                    row.asked.rid,
                    later.asked.rid,
                    lifetime(whole, row) / MS
                );
                findings.add(Rule::Double, Some(later.end.t), words, &proof(row, later));
                break;
            }
        }
    }
}

pub(super) fn proof(one: &Row<'_>, other: &Row<'_>) -> [SourceLine; 4] {
    [one.batch.place, one.end.place, other.batch.place, other.end.place]
}

/// The shortest lifetime of a row's pool while the row was in progress, in nanoseconds; 0 if it is
/// unknown.
fn lifetime(whole: &Whole, row: &Row<'_>) -> i64 {
    let versions = whole.versions(row.asked.pool, row.batch.since, row.end.t);
    versions.map(|version| version.lifetime_ms * MS).min().unwrap_or(0)
}

/// C4: a number belongs to the requested pool and is not an overflow number; an overflow row gets
/// the overflow number of the requested pool. Each attempt of a repeated row is judged by the pool
/// versions during that attempt.
pub(super) fn pool(whole: &Whole, part: &Part, findings: &mut Findings) {
    if whole.pools.is_empty() {
        return;
    }
    for row in whole.answered(&part.rows) {
        let versions: Vec<_> = whole.versions(row.asked.pool, row.batch.t, row.end.t).collect();
        if versions.is_empty() {
            findings.excuse(Rule::Pool, "rows of pools without a `cfg` line");
            // Without a `cfg` line, the duration of the number's lockout is also unknown.
            findings.excuse(Rule::Double, "rows of pools without a `cfg` line");
            continue;
        }
        let fault = match row.what {
            What::Own(number) => {
                let overflow = versions.iter().any(|version| version.overflow == Some(*number));
                let within = |(first, last): &(u64, u64)| (*first..=*last).contains(number);
                let member = versions.iter().any(|version| version.ranges.iter().any(within));
                match (overflow, member) {
                    (true, _) => Some(format!(
                        "{number:010}, which is the pool's overflow number but was not marked as \
                         overflow"
                    )),
                    (false, false) => Some(format!("{number:010}, which is not in that pool")),
                    (false, true) => None,
                }
            }
            What::Overflow(number) => {
                let right = versions.iter().any(|version| version.overflow == Some(*number));
                (!right).then(|| {
                    format!("{number:010} as overflow, but that is not the pool's overflow number")
                })
            }
            What::Error(_) => None,
        };
        if let Some(fault) = fault {
            let words = format!(
                "row {} requested a number of pool {} and got {fault}",
                row.asked.rid, row.asked.pool
            );
            let places = [row.batch.place, row.end.place];
            findings.add(Rule::Pool, Some(row.end.t), words, &places);
        }
    }
}

/// C5, for batches: each batch has exactly one answer, with the batch's rows in order.
pub(super) fn answers(whole: &Whole, findings: &mut Findings) {
    for index in &whole.doubled {
        let batch = &whole.batches[*index as usize];
        let words = format!("two batches have the id {}", batch.id);
        findings.add(Rule::Answer, Some(batch.t), words, &[batch.place]);
    }
    for batch in &whole.batches {
        if let (Some(first), Some((t, second))) = (&batch.end, batch.second) {
            let words = format!("batch {} has two answers", batch.id);
            findings.add(Rule::Answer, Some(t), words, &[batch.place, first.place, second]);
        }
        if let (Some(end), Some(words)) = (batch.answer(), &batch.misshapen) {
            let places = [batch.place, end.place];
            findings.add(Rule::Answer, Some(end.t), words.to_string(), &places);
        }
    }
    for (id, t, place) in &whole.strays {
        let words = format!("batch {id} has an answer, but was never sent");
        findings.add(Rule::Answer, Some(*t), words, &[*place]);
    }
}

/// C5, for rows that were sent more than once: attempts with the same key never get different
/// numbers. An attempt may get an overflow number instead, because the pool's shard was late or
/// another visitor now has the number.
pub(super) fn attempts(whole: &Whole, rows: &[Asked], findings: &mut Findings) {
    let mut attempts: BTreeMap<(&str, &str), Vec<Row<'_>>> = BTreeMap::new();
    for row in whole.answered(rows) {
        if let (Some(key), What::Own(_)) = (&row.batch.key, row.what) {
            attempts.entry((key, &row.asked.rid)).or_default().push(row);
        }
    }
    for ((key, rid), mut attempts) in attempts {
        attempts.sort_by_key(|row| row.end.t);
        let pair = attempts.windows(2).find(|pair| pair[0].what != pair[1].what);
        if let Some([one, other]) = pair {
            let words = format!(
                "attempts with the idempotency key {key} got two different numbers for row {rid}"
            );
            findings.add(Rule::Answer, Some(other.end.t), words, &proof(one, other));
        }
    }
}

/// C9: answers arrive before the deadline.
pub(super) fn deadline(whole: &Whole, findings: &mut Findings) {
    for batch in &whole.batches {
        let (Some(deadline), Some(end)) = (deadline_of(whole, batch), batch.answer()) else {
            continue;
        };
        if late(batch, end, deadline) {
            let words = format!(
                "batch {} took {} ms, but its deadline was {deadline} ms",
                batch.id,
                (end.t - batch.t) / MS
            );
            findings.add(Rule::Deadline, Some(end.t), words, &[batch.place, end.place]);
        }
    }
}

/// Whether there is a batch with a known deadline.
pub(super) fn tells_a_deadline(whole: &Whole) -> bool {
    whole.batches.iter().any(|batch| deadline_of(whole, batch).is_some())
}

fn deadline_of(whole: &Whole, batch: &Batch) -> Option<i64> {
    let run = batch.id.split_once('-').map_or(&*batch.id, |(run, _)| run);
    let server = whole.runs.get(run).copied().flatten();
    server.into_iter().chain(batch.deadline_ms).min()
}

fn late(batch: &Batch, end: &End, deadline_ms: i64) -> bool {
    end.t - batch.t > deadline_ms * MS + DEADLINE_SLACK
}

/// Checks a look-up against its row, if the row was found.
pub(super) fn looked_up(
    whole: &Whole,
    lookup: &Lookup,
    row: Option<&Asked>,
    findings: &mut Findings,
) {
    if lookup.status != 200 {
        findings.excuse(Rule::Attribution, "look-ups that were refused");
        return;
    }
    if lookup.outcome.as_deref() == Some("not_kept") && whole.is_damaged() {
        let why = "look-ups that named no visitor, because a journal is damaged";
        findings.excuse(Rule::Attribution, why);
        return;
    }
    let asked = row.map(|row| row.pool);
    let wrong = match (lookup.outcome.as_deref(), lookup.found.as_deref()) {
        (Some("allocated"), Some(found)) if found != &*lookup.rid => {
            Some(format!("found row {found}"))
        }
        (Some("allocated"), None) => Some("found an allocation without a row's id".to_owned()),
        (Some("allocated"), Some(_)) => {
            let other = lookup.pool.filter(|pool| asked.is_some_and(|asked| asked != *pool));
            other.map(|pool| format!("found that row in pool {pool}"))
        }
        (other, _) => Some(format!("returned the outcome {:?}", other.unwrap_or("none"))),
    };
    if let Some(wrong) = wrong {
        let words =
            format!("row {} held {:010}, but the look-up {wrong}", lookup.rid, lookup.number);
        let mut places = vec![lookup.place];
        places.extend(row.and_then(|row| whole.batch(row).answer()).map(|end| end.place));
        findings.add(Rule::Attribution, Some(lookup.t), words, &places);
    }
}
