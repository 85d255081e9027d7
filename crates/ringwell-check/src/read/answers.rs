//! Joins each batch with its answer as soon as both have been read.
//!
//! Owns the batches that have no answer yet, and the answers that have no batch yet. Invariant:
//! each sent row is stored once.

use std::collections::HashMap;
use std::io;

use super::members::{digits, need, put};
use crate::history::{Asked, Batch, End, Fact, SourceLine, What, Whole};
use crate::line::{Line, Row};
use crate::spill::Spill;

/// Batches whose answers have not been read yet, and answers whose batches have not been read yet.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Every batch by its id.
    ids: HashMap<Box<str>, u32>,
    /// Rows of batches whose answers have not been read yet, by the index of the batch.
    waiting: HashMap<u32, Vec<Asked>>,
    /// Answers whose batches have not been read yet or do not exist.
    early: HashMap<String, Vec<(End, Option<AnsweredBatch>)>>,
}

/// The contents of a `ret` line.
#[derive(Debug)]
struct AnsweredBatch {
    status: u16,
    bad: Option<String>,
    rows: Vec<Got>,
}

#[derive(Debug)]
struct Got {
    rid: Option<String>,
    what: What,
}

impl Answers {
    /// Reads a line about a batch that was sent.
    pub(super) fn asked(
        &mut self,
        whole: &mut Whole,
        spill: &mut Spill,
        place: SourceLine,
        line: Line,
    ) -> Result<(), String> {
        let index = u32::try_from(whole.batches.len()).map_err(|_| "too many batches")?;
        let asked = |row: Row| {
            let pool = need(row.pool, "rows[].pool")?;
            let rid = need(row.rid, "rows[].rid")?.into();
            Ok(Asked { batch: index, pool, rid, what: None })
        };
        let rows: Result<Vec<_>, String> =
            need(line.rows, "rows")?.into_iter().map(asked).collect();
        let (t, id) = (need(line.t, "t")?, need(line.id, "id")?);
        whole.batches.push(Batch {
            place,
            id: id.as_str().into(),
            t,
            since: t,
            key: line.key.map(Box::from),
            deadline_ms: line.deadline_ms,
            end: None,
            second: None,
            misshapen: None,
        });
        if self.ids.contains_key(id.as_str()) {
            whole.doubled.push(index);
            return put_all(whole, spill, rows?);
        }
        self.ids.insert(id.as_str().into(), index);
        self.waiting.insert(index, rows?);
        for (end, answer) in self.early.remove(&id).unwrap_or_default() {
            self.join(whole, spill, index, end, answer)?;
        }
        Ok(())
    }

    /// Reads a line about a batch that was answered or has an unknown outcome.
    pub(super) fn ended(
        &mut self,
        whole: &mut Whole,
        spill: &mut Spill,
        place: SourceLine,
        line: Line,
    ) -> Result<(), String> {
        let is_answer = line.k == "ret";
        let answer = if is_answer { Some(answer(&line)?) } else { None };
        let end = End { place, t: need(line.t, "t")?, is_answer };
        let id = need(line.id, "id")?;
        if let Some(index) = self.ids.get(id.as_str()) {
            return self.join(whole, spill, *index, end, answer);
        }
        self.early.entry(id).or_default().push((end, answer));
        Ok(())
    }

    fn join(
        &mut self,
        whole: &mut Whole,
        spill: &mut Spill,
        index: u32,
        end: End,
        answer: Option<AnsweredBatch>,
    ) -> Result<(), String> {
        let batch = &mut whole.batches[index as usize];
        if batch.end.is_some() {
            batch.second = batch.second.or(Some((end.t, end.place)));
            return Ok(());
        }
        batch.end = Some(end);
        let mut rows = self.waiting.remove(&index).unwrap_or_default();
        if let Some(answer) = answer {
            batch.misshapen = misshapen(&batch.id, &rows, &answer).map(Box::from);
            for (row, got) in rows.iter_mut().zip(answer.rows) {
                row.what = Some(got.what);
            }
        }
        put_all(whole, spill, rows)
    }

    /// Stores batches without an answer, and reports answers without a batch.
    pub(super) fn finish(self, whole: &mut Whole, spill: &mut Spill) -> io::Result<()> {
        let mut waiting: Vec<_> = self.waiting.into_iter().collect();
        waiting.sort_unstable_by_key(|(index, _)| *index);
        for (_, rows) in waiting {
            put_all(whole, spill, rows).map_err(io::Error::other)?;
        }
        for (id, ends) in self.early {
            if let [(end, _), ..] = ends.as_slice() {
                whole.strays.push((id, end.t, end.place));
            }
        }
        whole.strays.sort_by_key(|(_, _, place)| *place);
        Ok(())
    }
}

fn put_all(whole: &mut Whole, spill: &mut Spill, rows: Vec<Asked>) -> Result<(), String> {
    for row in rows {
        let by = match row.what {
            Some(What::Own(number)) => number,
            Some(What::Overflow(number)) => {
                whole.overflowing.insert(row.pool);
                number
            }
            // Rows without a number may be in any part; the batch's index spreads them evenly.
            Some(What::Error(_)) | None => u64::from(row.batch),
        };
        put(spill, by, &Fact::Row(row))?;
    }
    Ok(())
}

fn answer(line: &Line) -> Result<AnsweredBatch, String> {
    let got = |row: &Row| {
        let what = match (&row.num, &row.err) {
            (Some(number), _) if row.ovf => What::Overflow(digits(number)?),
            (Some(number), _) => What::Own(digits(number)?),
            (None, Some(error)) => What::Error(error.as_str().into()),
            (None, None) => return Err("a row has neither `num` nor `err`".to_owned()),
        };
        Ok(Got { rid: row.rid.clone(), what })
    };
    let rows: Result<Vec<_>, String> = line.rows.iter().flatten().map(got).collect();
    Ok(AnsweredBatch { status: need(line.st, "st")?, bad: line.bad.clone(), rows: rows? })
}

/// The reason why an answer is malformed (C5). The numbers in the answer are not checked.
fn misshapen(id: &str, asked: &[Asked], answer: &AnsweredBatch) -> Option<String> {
    if let Some(why) = &answer.bad {
        return Some(format!("the answer to batch {id} cannot be read: {why}"));
    }
    if answer.status != 200 {
        return None;
    }
    if answer.rows.len() != asked.len() {
        return Some(format!(
            "batch {id} has {} rows, but its answer has {}",
            asked.len(),
            answer.rows.len()
        ));
    }
    asked.iter().zip(&answer.rows).enumerate().find_map(|(index, (asked, got))| {
        let rid = got.rid.as_deref().unwrap_or("none");
        if rid != &*asked.rid {
            return Some(format!(
                "row {index} of batch {id} has the rid {}, but that row of the answer has the rid \
                 {rid}",
                asked.rid
            ));
        }
        let neither = got.what == What::Error("?".into());
        neither.then(|| {
            format!("the answer has neither a number nor an error for row {index} of batch {id}")
        })
    })
}
