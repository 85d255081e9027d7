//! Reads the lines of journals and final states.
//!
//! Owns the checks made while lines are read: the order of records, and their count in each frame.

use super::members::{digits, need, put};
use crate::history::{
    Fact, Frame, HeldAtEnd, Journal, Kind, Last, Owner, Record, Segment, SourceLine, Whole,
};
use crate::line::Line;
use crate::spill::Spill;

/// The node and the shard that a line names, and their index in `Whole::owners`.
fn owner(whole: &mut Whole, line: &mut Line) -> Result<(Owner, u32), String> {
    let owner = (line.node.take().unwrap_or_default(), need(line.shard, "shard")?);
    let next = u32::try_from(whole.owners.len()).map_err(|_| "too many shards")?;
    let index = match whole.owners.get(&owner) {
        Some(index) => *index,
        None => *whole.owners.entry(owner.clone()).or_insert(next),
    };
    Ok((owner, index))
}

/// Takes a `jrn` line.
pub(super) fn journal(
    whole: &mut Whole,
    spill: &mut Spill,
    place: SourceLine,
    mut line: Line,
) -> Result<(), String> {
    let (owner, index) = owner(whole, &mut line)?;
    let journal = whole.journals.entry(owner).or_default();
    if line.record.is_some() {
        let at = need(line.at_ms, "at_ms")?;
        let last = Last { place, position: need(line.position, "position")?, at };
        follow(journal, need(line.frame, "frame")?, last);
        return record(whole, spill, &line, index, last);
    }
    if let Some(number) = line.frame {
        let at = need(line.at_ms, "at_ms")?;
        journal.frames.push(Frame {
            place,
            number,
            epoch: need(line.epoch, "epoch")?,
            at,
            last_at: line.last_at_ms.unwrap_or(at),
            records: need(line.records, "records")?,
            names_the_one_before: line.previous_hash.is_some_and(|hash| hash.len() == 16),
        });
    } else if line.segment.is_some() && line.first_frame.is_some() {
        journal.segments.push(Segment {
            place,
            journal: need(line.journal, "journal")?,
            first_frame: need(line.first_frame, "first_frame")?,
            epoch: need(line.epoch, "epoch")?,
        });
    } else {
        // The only other kind of line in a journal's dump reports damage that ends the dump early,
        // and the position of the damage.
        journal.damaged = true;
    }
    Ok(())
}

/// Counts a record, and compares it with its predecessor.
fn follow(journal: &mut Journal, frame: u64, record: Last) {
    if let Some(before) = journal.last
        && journal.out_of_order.is_none()
    {
        let words = if record.position <= before.position {
            Some("a record's position is not after that of the previous record")
        } else if record.at < before.at {
            Some("a record's time is before that of the previous record")
        } else {
            None
        };
        let places = [before.place, record.place];
        journal.out_of_order = words.map(|words| (words, record.at, places));
    }
    *journal.counts.entry(frame).or_default() += 1;
    journal.records += 1;
    journal.first_at = journal.first_at.or(Some(record.at));
    journal.last = Some(record);
}

fn record(
    whole: &mut Whole,
    spill: &mut Spill,
    line: &Line,
    owner: u32,
    Last { place, at, .. }: Last,
) -> Result<(), String> {
    let rid = || line.params.as_deref().and_then(rid_in).map(Box::from);
    let until = || need(line.until_ms, "until_ms");
    let kind = match line.record.as_deref() {
        Some("allocate") => Kind::Allocate {
            pool: need(line.pool, "pool")?,
            lockout: need(line.lockout_ms, "lockout_ms")?,
            rid: rid(),
        },
        Some("extend") => Kind::Until { until: until()?, ends: false, restored: None },
        Some("release") => {
            Kind::Until { until: until()?, ends: true, restored: line.allocated_at_ms }
        }
        Some("carry") => Kind::Carry {
            pool: need(line.pool, "pool")?,
            allocated: need(line.allocated_at_ms, "allocated_at_ms")?,
            until: need(line.locked_until_ms, "locked_until_ms")?,
            rid: rid(),
        },
        Some("hold") => {
            whole.holds.push((line.pool, at, until()?));
            return Ok(());
        }
        _ => return Ok(()),
    };
    let number = digits(line.number.as_deref().ok_or("`number` is missing")?)?;
    put(spill, number, &Fact::Record(Record { owner, place, at, number, kind }))
}

/// The parameter `rid` of an encoded query.
fn rid_in(params: &str) -> Option<&str> {
    params.split('&').find_map(|part| part.strip_prefix("rid="))
}

/// Takes a `fin` line.
pub(super) fn state(
    whole: &mut Whole,
    spill: &mut Spill,
    place: SourceLine,
    mut line: Line,
) -> Result<(), String> {
    let (owner, index) = owner(whole, &mut line)?;
    let state = whole.states.entry(owner).or_default();
    let Some(number) = line.number else {
        let count = line.numbers.and_then(|numbers| numbers.as_u64());
        state.count = Some((place, need(count, "numbers")?));
        return Ok(());
    };
    state.there += 1;
    let held = HeldAtEnd {
        owner: index,
        place,
        number: digits(&number)?,
        pool: line.pool,
        allocated: need(line.allocated_at_ms, "allocated_at_ms")?,
        until: need(line.locked_until_ms, "locked_until_ms")?,
    };
    put(spill, held.number, &Fact::Held(held))
}
