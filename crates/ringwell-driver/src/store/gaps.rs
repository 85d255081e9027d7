//! The periods for which this data directory may lack answered allocations: `gaps.json`.
//!
//! If data was restored from a copy, or the damaged end of a journal was cut off, the journal lacks
//! the allocations that were answered after its newest record. Such a period, called a gap, ends at
//! the startup. No number is handed out twice, because all pools are held. But a call that belongs
//! to a lost allocation must not be attributed to an earlier visitor. Source: docs/spec/journal.md,
//! "History".

use std::collections::BTreeSet;
use std::path::Path;

use ringwell_core::Millis;
use ringwell_engine::{Missing, Moment, Past};
use serde::{Deserialize, Serialize};

use super::files::{FileError, Files, read_json, write_json};
use crate::canary::{Bug, planted};

const FILE: &str = "gaps.json";

/// The maximum number of gaps that are kept. If there are more, the two oldest gaps are merged.
const GAPS_MAX: usize = 100;

/// The time for which an allocation may be undone because its answer reached no client. Its number
/// then goes to the next visitor, although the record of the allocation shows a running lockout.
pub(crate) const UNDONE_MAX: Millis = Millis(2 * 60 * 1000);

/// A gap, in wall-clock milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    from: u64,
    to: u64,
    /// The buckets that the gap concerns, if it came with them from another node; `None` if the gap
    /// concerns all buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    buckets: Option<BTreeSet<u16>>,
    /// Whether the missing allocations were made by shards that are gone. The allocations of the
    /// shards that are still there are not missing, and neither are the records by which these
    /// shards undid allocations.
    #[serde(default, skip_serializing_if = "is_false")]
    is_of_others: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this form")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The gaps of a data directory, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gaps(Vec<Gap>);

impl Gaps {
    /// Reads the gaps in `data`; there are none if the file does not exist.
    ///
    /// # Errors
    /// Returns [`FileError`] if the file exists but cannot be read or parsed.
    pub fn read(files: &impl Files, data: &Path) -> Result<Self, FileError> {
        Ok(read_json(files, &data.join(FILE))?.unwrap_or_default())
    }

    /// Writes the gaps durably to `data`.
    ///
    /// # Errors
    /// Returns [`FileError`]; the old file then remains.
    pub fn write(&self, files: &impl Files, data: &Path) -> Result<(), FileError> {
        write_json(files, data, FILE, self)
    }

    /// Adds a gap.
    ///
    /// # Panics
    /// Panics if there are more gaps than allowed, which would be a bug.
    pub fn add(&mut self, from: Millis, to: Millis) {
        self.0.push(Gap { from: from.0, to: to.0.max(from.0), buckets: None, is_of_others: false });
        self.0.sort_unstable_by_key(|gap| (gap.from, gap.to));
        self.merge_oldest();
    }

    /// Adds gaps from the beginning until `to` because of shards that are gone. These shards last
    /// owned `buckets`, but every number may have been in one of their pools before.
    pub fn add_of_others(&mut self, to: Millis, buckets: BTreeSet<u16>) {
        let gap = Gap { from: 0, to: to.0, buckets: None, is_of_others: true };
        let of_buckets = Gap { buckets: Some(buckets), is_of_others: false, ..gap.clone() };
        let is_any = of_buckets.buckets.as_ref().is_some_and(|of| !of.is_empty());
        self.merge(&Self([gap].into_iter().chain(is_any.then_some(of_buckets)).collect()));
    }

    /// Merges the two oldest gaps if there are too many.
    fn merge_oldest(&mut self) {
        if self.0.len() > GAPS_MAX {
            let oldest = self.0.remove(0);
            let next = &mut self.0[0];
            let both = oldest.buckets.zip(next.buckets.take());
            let buckets = both.map(|(mut all, more)| {
                all.extend(more);
                all
            });
            *next = Gap {
                from: oldest.from.min(next.from),
                to: oldest.to.max(next.to),
                buckets,
                is_of_others: oldest.is_of_others && next.is_of_others,
            };
        }
        assert!(self.0.len() <= GAPS_MAX, "too many gaps");
    }

    /// Adds the gaps from another list for the same journals.
    pub fn merge(&mut self, other: &Self) {
        for gap in &other.0 {
            if !self.0.contains(gap) {
                self.0.push(gap.clone());
                self.merge_oldest();
            }
        }
        self.0.sort_unstable_by_key(|gap| (gap.from, gap.to));
    }

    /// Returns the gaps as text for the metadata of a log: `from-to`, separated by commas.
    #[must_use]
    pub fn to_text(&self) -> String {
        let texts = self.0.iter().map(|gap| format!("{}-{}", gap.from, gap.to));
        texts.collect::<Vec<_>>().join(",")
    }

    /// Parses text from [`Self::to_text`]; parts that are not gaps are ignored.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let gap = |part: &str| {
            let (from, to) = part.split_once('-')?;
            let (from, to) = (from.parse().ok()?, to.parse().ok()?);
            Some(Gap { from, to, buckets: None, is_of_others: false })
        };
        let mut gaps = Self::default();
        gaps.merge(&Self(text.split(',').filter_map(gap).collect()));
        gaps
    }

    /// Returns the gaps of these buckets, for their next owner.
    #[must_use]
    pub fn of(&self, buckets: &[u16]) -> Vec<Gap> {
        let wanted: BTreeSet<u16> = buckets.iter().copied().collect();
        let of = |gap: &Gap| {
            let own = gap.buckets.as_ref().map(|of| of.intersection(&wanted).copied().collect());
            Gap { buckets: Some(own.unwrap_or_else(|| wanted.clone())), ..*gap }
        };
        let concerns = |gap: &Gap| gap.buckets.as_ref().is_some_and(|of| !of.is_empty());
        self.0.iter().map(of).filter(concerns).collect()
    }

    /// Whether answers from the time `at` may be missing.
    #[must_use]
    pub fn contain(&self, at: Millis) -> bool {
        self.0.iter().any(|gap| gap.from < at.0 && at.0 <= gap.to)
    }

    /// Corrects the result of a look-up. Another visitor may have received the number in a gap
    /// before `at`, after the lockout in `past` had ended, or after the allocation in `past` had
    /// been undone. If so, the result records that history is missing. `bucket` is the bucket of the
    /// number's pool, if the number is in a pool. Gaps that concern all buckets concern the number
    /// only if `is_here` is set, which means that this shard owns the number or has handed it out.
    /// Otherwise, the result contains only the end of the gap: this shard may have handed the
    /// number out without knowing the number now.
    #[must_use]
    pub fn judge(&self, past: Past, at: Moment, (bucket, is_here): (Option<u16>, bool)) -> Past {
        let Moment::Wall(Millis(at)) = at else { return past };
        let free_from = past.held.as_ref().map_or(0, |held| held.locked_until.0);
        let since = past.held.as_ref().map_or(0, |held| held.allocated_wall.0);
        let concerns = |gap: &Gap| {
            let is_in = |of: &BTreeSet<u16>| bucket.is_some_and(|bucket| of.contains(&bucket));
            gap.buckets.as_ref().map_or(is_here, is_in)
        };
        // Other shards' allocations are not undone here, and none is undone before it is made.
        let may_be_undone =
            past.held.as_ref().is_some_and(|held| held.pool.is_some()) && since < at;
        let is_undone = |gap: &Gap| {
            may_be_undone && !gap.is_of_others && gap.from < since.saturating_add(UNDONE_MAX.0)
        };
        let is_free = |gap: &Gap| {
            let is_over = free_from < at.min(gap.to);
            is_over || is_undone(gap) && !planted(Bug::UndoneInGap)
        };
        let is_between = |gap: &&Gap| since < gap.to && gap.from < at && is_free(gap);
        let end = |gaps: &[&Gap]| gaps.iter().map(|gap| Millis(gap.to)).max();
        let (own, others): (Vec<&Gap>, Vec<&Gap>) =
            self.0.iter().filter(is_between).partition(|gap| concerns(gap));
        match end(&own) {
            // The holder is already unknown, perhaps for a reason other than this gap. The end of
            // the gap is recorded as well. Otherwise, an allocation that was made in the gap could
            // be overlooked.
            Some(until) if past.held.is_none() && past.missing.is_some() => {
                Past { lost_until: past.later.map(|_| until), ..past }
            }
            Some(until) => Past {
                missing: Some(Missing::NotKept),
                later: past.later.filter(|_| !planted(Bug::LostWithGaps)),
                is_later_sure: past.later.is_some(),
                lost_until: Some(until),
                is_doubted: past.is_doubted,
                was_doubted: past.was_doubted,
                next: past.next,
                ..Past::default()
            },
            None if planted(Bug::LostUnknown) || planted(Bug::OwnGapsForgotten) => past,
            None => {
                let others: Vec<&Gap> =
                    others.into_iter().filter(|gap| gap.buckets.is_none()).collect();
                Past { lost_until: end(&others), ..past }
            }
        }
    }
}

impl From<Vec<Gap>> for Gaps {
    fn from(gaps: Vec<Gap>) -> Self {
        Self(gaps)
    }
}

#[cfg(test)]
mod tests;
