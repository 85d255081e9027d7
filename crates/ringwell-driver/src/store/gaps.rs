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
use ringwell_journal::{Clocks, Noted};
use serde::{Deserialize, Serialize};

use super::dated::{Dated, Dating};
use super::files::{FileError, Files, read_json, write_json};
use crate::canary::{Bug, planted};

const FILE: &str = "gaps.json";

/// The maximum number of gaps that are kept. If there are more, the two oldest gaps are merged.
const GAPS_MAX: usize = 100;

/// The time within which an allocation may be undone because its answer reached no client. Its
/// number then goes to the next visitor, although the record of the allocation shows a running
/// lockout.
pub(crate) const UNDONE_MAX: Millis = Millis(2 * 60 * 1000);

/// A gap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    from: Dated,
    to: Dated,
    /// The buckets that the gap concerns, if it came with them from another node; `None` if the gap
    /// concerns all buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    buckets: Option<BTreeSet<u16>>,
    /// Whether the missing allocations were made by shards that are gone. The remaining shards'
    /// allocations are not missing, and neither are these shards' records of undone allocations.
    #[serde(default, skip_serializing_if = "is_false")]
    is_of_others: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this form")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl Gap {
    fn key(&self) -> (Millis, Millis) {
        (self.from.recorded, self.to.recorded)
    }

    /// Whether both are the same gap. The clocks in one of them may be unknown or older.
    fn is_same(&self, other: &Self) -> bool {
        let of = |gap: &Self| (gap.key(), gap.is_of_others);
        of(self) == of(other) && self.buckets == other.buckets
    }

    /// Returns the gap in wall-clock time.
    fn span(&self, dating: Dating<'_>) -> Span<'_> {
        let (from, to) = (self.from.wall(dating).0, self.to.wall(dating).0);
        let is_inverted = to < from && !planted(Bug::GapsNotDated);
        let (from, to) = if is_inverted { (to, from) } else { (from, to.max(from)) };
        let (buckets, is_of_others) = (self.buckets.as_ref(), self.is_of_others);
        Span { from, to, is_inverted, buckets, is_of_others }
    }
}

/// A gap in wall-clock time, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Span<'a> {
    from: u64,
    to: u64,
    /// Whether the gap seems to end before it begins. The wall clock was then wrong in one of the
    /// two boots, and the gap's length is unknown.
    is_inverted: bool,
    buckets: Option<&'a BTreeSet<u16>>,
    /// See [`Gap::is_of_others`].
    is_of_others: bool,
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
    pub fn add(&mut self, from: impl Into<Dated>, to: impl Into<Dated>) {
        let (from, to) = (from.into(), to.into());
        self.push(Gap { from, to, buckets: None, is_of_others: false });
    }

    /// Adds gaps from the beginning of time until `to`, because of shards that are gone. These
    /// shards last owned `buckets`, but every number may have been in one of their pools before.
    pub fn add_of_others(&mut self, to: impl Into<Dated>, buckets: BTreeSet<u16>) {
        let (from, to) = (Dated::default(), to.into());
        let mut gaps = vec![Gap { from, to, buckets: None, is_of_others: true }];
        if !buckets.is_empty() {
            gaps.push(Gap { from, to, buckets: Some(buckets), is_of_others: false });
        }
        self.merge(&Self(gaps));
    }

    fn push(&mut self, gap: Gap) {
        self.0.push(gap);
        self.0.sort_by_key(Gap::key);
        self.merge_oldest();
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
            // The recorded times may be in the wrong order, because a clock may have been wrong.
            let order = |one: &Dated, other: &Dated| match (one.noted, other.noted) {
                (Some(one), Some(other)) => one.at.cmp(&other.at),
                _ => one.recorded.cmp(&other.recorded),
            };
            *next = Gap {
                from: std::cmp::min_by(oldest.from, next.from, order),
                to: std::cmp::max_by(oldest.to, next.to, order),
                buckets,
                is_of_others: oldest.is_of_others && next.is_of_others,
            };
        }
        assert!(self.0.len() <= GAPS_MAX, "too many gaps");
    }

    /// Adds the gaps from another list for the same journals. If both lists have a gap, the clocks
    /// in the `other` list count.
    pub fn merge(&mut self, other: &Self) {
        for gap in &other.0 {
            match self.0.iter_mut().find(|known| known.is_same(gap)) {
                Some(known) => {
                    known.from.noted = gap.from.noted.or(known.from.noted);
                    known.to.noted = gap.to.noted.or(known.to.noted);
                }
                None => self.push(gap.clone()),
            }
        }
    }

    /// Records the last settings of the wall clock, because the clocks in `dating` are dropped with
    /// old history. Returns whether this changed anything.
    pub fn settle(&mut self, dating: Dating<'_>) -> bool {
        let ends = self.0.iter_mut().flat_map(|gap| [&mut gap.from, &mut gap.to]);
        // Every end is settled, even after one has changed.
        ends.filter_map(|end| end.settle(dating).then_some(())).count() > 0
    }

    /// Returns the gaps as text for the metadata of a log, separated by commas: `from-to`. If the
    /// clocks are known, `from-to/from/to` follows, which earlier versions ignore.
    #[must_use]
    pub fn to_text(&self) -> String {
        let text = |gap: &Gap| {
            let (Millis(from), Millis(to)) = gap.key();
            let plain = format!("{from}-{to}");
            let (from, to) = (clocks_text(gap.from.noted), clocks_text(gap.to.noted));
            if from.is_empty() && to.is_empty() {
                return plain;
            }
            format!("{plain},{plain}/{from}/{to}")
        };
        self.0.iter().map(text).collect::<Vec<_>>().join(",")
    }

    /// Parses text from [`Self::to_text`]; parts that are not gaps are ignored.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let gap = |part: &str| {
            let mut parts = part.split('/');
            let (from, to) = parts.next()?.split_once('-')?;
            let mut end = |wall: &str| {
                let recorded = Millis(wall.parse().ok()?);
                Some(Dated { recorded, noted: parts.next().and_then(parse_clocks) })
            };
            Some(Gap { from: end(from)?, to: end(to)?, buckets: None, is_of_others: false })
        };
        let mut gaps = Self::default();
        gaps.merge(&Self(text.split(',').filter_map(gap).collect()));
        gaps
    }

    /// Returns these buckets' gaps in wall-clock time, for the buckets' next owner.
    #[must_use]
    pub fn of(&self, buckets: &[u16], dating: Dating<'_>) -> Vec<Gap> {
        let wanted: BTreeSet<u16> = buckets.iter().copied().collect();
        let of = |gap: &Gap| {
            let Span { from, to, buckets, .. } = gap.span(dating);
            let own = buckets.map(|of| of.intersection(&wanted).copied().collect());
            let buckets = Some(own.unwrap_or_else(|| wanted.clone()));
            let (from, to) = (Millis(from).into(), Millis(to).into());
            Gap { from, to, buckets, is_of_others: gap.is_of_others }
        };
        let concerns = |gap: &Gap| gap.buckets.as_ref().is_some_and(|of| !of.is_empty());
        self.0.iter().map(of).filter(concerns).collect()
    }

    /// Whether answers from the time `at` may be missing.
    #[must_use]
    pub fn contain(&self, at: Millis, dating: Dating<'_>) -> bool {
        let mut spans = self.0.iter().map(|gap| gap.span(dating));
        spans.any(|gap| gap.from < at.0 && at.0 <= gap.to)
    }

    /// Corrects the result of a look-up. Another visitor may have received the number in a gap
    /// before `at`, after the lockout in `past` had ended, or after the allocation in `past` had
    /// been undone. If so, the result records that history is missing. `bucket` is the bucket of
    /// the number's pool, if the number is in a pool. A gap that concerns all buckets matters only
    /// if `is_here` is set: this shard owns the number or has handed it out. Otherwise, the result
    /// contains only the end of the gap, because this shard may have handed the number out without
    /// having a record of it now.
    #[must_use]
    pub fn judge(
        &self,
        past: Past,
        at: Moment,
        dating: Dating<'_>,
        (bucket, is_here): (Option<u16>, bool),
    ) -> Past {
        let Moment::Wall(Millis(at)) = at else { return past };
        let free_from = past.held.as_ref().map_or(0, |held| held.locked_until.0);
        let since = past.held.as_ref().map_or(0, |held| held.allocated_wall.0);
        let concerns = |gap: &Span<'_>| {
            let is_in = |of: &BTreeSet<u16>| bucket.is_some_and(|bucket| of.contains(&bucket));
            gap.buckets.map_or(is_here, is_in)
        };
        // Other shards' allocations are not undone here, and no allocation is undone before it is
        // made.
        let may_be_undone =
            past.held.as_ref().is_some_and(|held| held.pool.is_some()) && since < at;
        let is_undone = |gap: &Span<'_>| {
            may_be_undone && !gap.is_of_others && gap.from < since.saturating_add(UNDONE_MAX.0)
        };
        let is_free = |gap: &Span<'_>| {
            let end = if gap.is_inverted { u64::MAX } else { gap.to };
            let is_over = free_from < at.min(end);
            is_over || is_undone(gap) && !planted(Bug::UndoneInGap)
        };
        let is_between = |gap: &Span<'_>| since < gap.to && gap.from < at && is_free(gap);
        let end = |gaps: &[Span<'_>]| gaps.iter().map(|gap| Millis(gap.to)).max();
        let spans = self.0.iter().map(|gap| gap.span(dating));
        let (own, others): (Vec<Span<'_>>, Vec<Span<'_>>) =
            spans.filter(is_between).partition(concerns);
        let others: Vec<Span<'_>> =
            others.into_iter().filter(|gap| gap.buckets.is_none()).collect();
        // A later gap of all buckets may also hide an allocation.
        match end(&own).map(|until| until.max(end(&others).unwrap_or_default())) {
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
            None => Past { lost_until: end(&others), ..past },
        }
    }
}

/// Returns the shard time and the clocks as text, separated by colons.
fn clocks_text(noted: Option<Noted>) -> String {
    noted.map_or_else(String::new, |Noted { at: Millis(at), clocks }| {
        let Clocks { boot, shard_offset, wall_offset } = clocks;
        format!("{at}:{boot}:{shard_offset}:{wall_offset}")
    })
}

/// Parses text from [`clocks_text`].
fn parse_clocks(text: &str) -> Option<Noted> {
    let mut parts = text.split(':');
    let at = Millis(parts.next()?.parse().ok()?);
    let boot = parts.next()?.parse().ok()?;
    let [shard_offset, wall_offset] = [parts.next()?.parse().ok()?, parts.next()?.parse().ok()?];
    Some(Noted { at, clocks: Clocks { boot, shard_offset, wall_offset } })
}

impl From<Vec<Gap>> for Gaps {
    fn from(gaps: Vec<Gap>) -> Self {
        Self(gaps)
    }
}

#[cfg(test)]
mod tests;
