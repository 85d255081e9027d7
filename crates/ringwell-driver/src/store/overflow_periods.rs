//! The periods in which numbers with a history were overflow numbers: `overflow-periods.json`.
//!
//! Many visitors see an overflow number. A call to it therefore cannot be attributed to a visitor
//! who received the number before it became an overflow number. The directory of pools contains
//! only the current overflow numbers.

use std::io;
use std::path::Path;

use ringwell_core::{Millis, PromoNumber};
use serde::{Deserialize, Serialize};

use super::dated::{Dated, Dating};
use super::files::{FileError, Files, read_json, read_whole, write_json, write_whole};

const FILE: &str = "overflow-periods.json";

/// Stands for every number. Used if it is unknown which numbers were overflow numbers.
const ANY: u64 = 0;

/// The maximum number of periods. If there are more, the oldest ones are dropped.
const PERIODS_MAX: usize = 10_000;

/// The maximum number of periods in the notes of a log. The newest ones are kept.
const NOTED_MAX: usize = 200;

/// A period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Period {
    /// The number's code, or [`ANY`].
    number: u64,
    from: Dated,
    /// Omitted while the period lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<Dated>,
}

/// The periods, in the order in which they began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OverflowPeriods(Vec<Period>);

impl OverflowPeriods {
    /// Reads the periods from their file in the directory `data`; there are none if the file does
    /// not exist. If the file cannot be parsed, it is moved away and an error is logged. In that
    /// case, any number may have been an overflow number until `now`.
    ///
    /// # Errors
    /// Returns [`FileError`] if the file exists but cannot be read or moved away.
    pub fn read(files: &impl Files, data: &Path, now: Dated) -> Result<Self, FileError> {
        let path = data.join(FILE);
        let error = match read_json(files, &path) {
            Ok(known) => return Ok(known.unwrap_or_default()),
            Err(error) if error.source.kind() == io::ErrorKind::InvalidData => error,
            Err(error) => return Err(error),
        };
        let aside = path.with_extension("bad");
        write_whole(files, &aside, &read_whole(files, &path)?.unwrap_or_default())?;
        let unknown = Self(vec![Period { number: ANY, from: Dated::default(), to: Some(now) }]);
        unknown.write(files, data)?;
        tracing::error!(
            %error,
            copy = %aside.display(),
            "the file of overflow periods could not be read, so it is unknown which numbers were \
             overflow numbers before this startup. If a number was handed out before this startup, \
             a call to it after the end of the lockout is attributed to no visitor"
        );
        Ok(unknown)
    }

    /// Writes the file durably.
    ///
    /// # Errors
    /// Returns [`FileError`]; the old file then remains.
    pub fn write(&self, files: &impl Files, data: &Path) -> Result<(), FileError> {
        write_json(files, data, FILE, self)
    }

    /// Records that the numbers in `begun` become overflow numbers at `now`, and that the numbers
    /// in `ended` are no longer overflow numbers.
    pub fn change(&mut self, begun: &[PromoNumber], ended: &[PromoNumber], now: impl Into<Dated>) {
        let now = now.into();
        for number in ended.iter().map(|number| number.to_code()) {
            let is_it = |period: &&mut Period| period.number == number && period.to.is_none();
            match self.0.iter_mut().rev().find(is_it) {
                Some(period) => period.to = Some(now),
                // The period began before the process started, so it is recorded as having lasted
                // since time 0.
                None => self.0.push(Period { number, from: Dated::default(), to: Some(now) }),
            }
        }
        let open = |number: &PromoNumber| Period { number: number.to_code(), from: now, to: None };
        self.0.extend(begun.iter().map(open));
        let surplus = self.0.len().saturating_sub(PERIODS_MAX);
        self.0.drain(..surplus);
    }

    /// Returns the newest periods, for the notes of a log.
    #[must_use]
    pub fn newest(&self) -> Self {
        Self(self.0[self.0.len().saturating_sub(NOTED_MAX)..].to_vec())
    }

    /// Adds the periods from another list for the same journals.
    pub fn merge(&mut self, other: &Self) {
        for period in &other.0 {
            let is_it = |own: &&mut Period| {
                own.number == period.number && own.from.is_same_record(&period.from)
            };
            match self.0.iter_mut().find(is_it) {
                Some(own) => own.to = own.to.or(period.to),
                None => self.0.push(period.clone()),
            }
        }
        self.0.sort_by_key(|period| period.from.recorded);
        let surplus = self.0.len().saturating_sub(PERIODS_MAX);
        self.0.drain(..surplus);
    }

    /// Returns the [`Self::newest`] periods as text for the metadata of a log. The format is that
    /// of the file; the text is empty if there are none.
    #[must_use]
    pub fn to_text(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        serde_json::to_string(&self.newest()).unwrap_or_default()
    }

    /// Parses text from [`Self::to_text`]. If this fails, an error is logged, and the periods are
    /// unknown.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text.is_empty() {
            return Self::default();
        }
        serde_json::from_str(text).unwrap_or_else(|error| {
            tracing::error!(
                %error,
                "the overflow periods in the notes of a journal's log could not be read: calls to \
                 former overflow numbers may be attributed to earlier visitors"
            );
            Self::default()
        })
    }

    /// Records the last settings of the wall clock, because the clocks in `dating` are dropped with
    /// old history. Returns whether this changed anything.
    pub fn settle(&mut self, dating: Dating<'_>) -> bool {
        let ends = self.0.iter_mut().flat_map(|it| [Some(&mut it.from), it.to.as_mut()]);
        // Every end is settled, even after one has changed.
        ends.flatten().filter_map(|end| end.settle(dating).then_some(())).count() > 0
    }

    /// Returns the beginning of the current period of `number`, if one is recorded.
    #[must_use]
    pub fn began(&self, number: PromoNumber, dating: Dating<'_>) -> Option<Millis> {
        let is_it = |period: &&Period| period.number == number.to_code() && period.to.is_none();
        self.0.iter().rev().find(is_it).map(|period| period.from.wall(dating))
    }

    /// Returns the end of the newest period of `number` that had begun by `at`, or the far future
    /// if that period still lasts. See
    /// [`Past::overflow_until`](ringwell_engine::Past::overflow_until).
    #[must_use]
    pub fn end(&self, number: PromoNumber, at: Millis, dating: Dating<'_>) -> Option<Millis> {
        let number = number.to_code();
        let is_of = |period: &&Period| period.number == number || period.number == ANY;
        // If the wall clock was wrong in an earlier boot, a period may seem to end before it
        // begins.
        let span = |period: &Period| {
            let from = period.from.wall(dating);
            let to = period.to.map_or(Millis(u64::MAX), |to| to.wall(dating));
            (from.min(to), from.max(to))
        };
        let begun = self.0.iter().filter(is_of).map(span).filter(|(from, _)| *from <= at);
        begun.map(|(_, to)| to).max()
    }
}

#[cfg(test)]
mod tests {
    use ringwell_journal::Clocks;

    use super::*;

    const MEMBER: &str = "2005550001";
    const CLOCKS: Clocks = Clocks { boot: 1, shard_offset: 0, wall_offset: 0 };
    /// The recorded times have no clocks, so any clocks will do.
    const ANY: Dating<'_> = Dating { now: CLOCKS, noted: &[] };

    #[test]
    fn the_newest_period_that_has_begun_counts() {
        let [number, other] = [MEMBER, "2005550002"].map(|text| PromoNumber::parse(text).unwrap());
        let mut periods = OverflowPeriods::default();
        let end = |periods: &OverflowPeriods, number, at| {
            periods.end(number, Millis(at), ANY).map(|end| end.0)
        };
        periods.change(&[number], &[], Millis(300));
        assert_eq!(end(&periods, number, 299), None);
        assert_eq!(periods.began(number, ANY), Some(Millis(300)));
        assert_eq!(periods.began(other, ANY), None);
        assert_eq!(end(&periods, number, 300), Some(u64::MAX));
        assert_eq!(end(&periods, other, 9_000), None);
        periods.change(&[], &[number, other], Millis(400));
        assert_eq!(end(&periods, number, 9_000), Some(400));
        assert_eq!(end(&periods, other, 0), Some(400), "since before the start");
        assert_eq!(periods.began(number, ANY), None);
        periods.change(&[number], &[], Millis(500));
        periods.change(&[], &[number], Millis(600));
        assert_eq!(end(&periods, number, 499), Some(400));
        assert_eq!(end(&periods, number, 500), Some(600));
    }

    /// The wall clock was an hour ahead, and was then corrected.
    #[test]
    fn a_period_moves_with_the_wall_clock_of_its_boot() {
        let number = PromoNumber::parse(MEMBER).unwrap();
        let wrong = Clocks { wall_offset: 3_600_000, ..CLOCKS };
        let mut periods = OverflowPeriods::default();
        periods.change(&[number], &[], Dated::new(Millis(300), Some(wrong)));
        assert_eq!(periods.began(number, ANY), Some(Millis(300)));
        periods.change(&[], &[number], Dated::new(Millis(400), Some(wrong)));
        for (now, ahead) in [(CLOCKS, 0), (wrong, 3_600_000)] {
            let dating = Dating { now, noted: &[] };
            let end = |at| periods.end(number, Millis(at + ahead), dating);
            assert_eq!((end(299), end(300)), (None, Some(Millis(400 + ahead))));
        }
        // The machine has been rebooted, with a right clock.
        periods.change(&[number], &[], Dated::new(Millis(500), Some(wrong)));
        let later = Clocks { boot: 2, ..CLOCKS };
        periods.change(&[], &[number], Dated::new(Millis(600), Some(later)));
        let end = periods.end(number, Millis(700), Dating { now: later, noted: &[] });
        assert_eq!(end, Some(Millis(3_600_500)), "it seems to end before it begins");
    }

    #[test]
    fn another_machine_continues_with_the_periods_in_the_notes() {
        let [number, other] = [MEMBER, "2005550002"].map(|text| PromoNumber::parse(text).unwrap());
        let at = |at| Dated::new(Millis(at), Some(CLOCKS));
        let mut periods = OverflowPeriods::default();
        assert_eq!(periods.to_text(), "");
        periods.change(&[number, other], &[], at(300));
        // This copy of the file is from before the end of the first period.
        let mut older = periods.clone();
        periods.change(&[], &[number], at(400));
        // The period's beginning was settled meanwhile.
        let mut noted = OverflowPeriods::parse(&periods.to_text());
        let ahead = Clocks { wall_offset: 70, ..CLOCKS };
        assert!(noted.settle(Dating { now: ahead, noted: &[] }));
        older.merge(&noted);
        let ended = older.0.iter().map(|period| (period.number, period.to.is_some()));
        assert!(ended.eq([(number.to_code(), true), (other.to_code(), false)]), "{older:?}");
        let mut empty = OverflowPeriods::default();
        empty.merge(&periods);
        assert_eq!(empty, periods);
        assert_eq!(OverflowPeriods::parse("garbage"), OverflowPeriods::default());
        for n in 0..NOTED_MAX as u64 {
            periods.change(&[number], &[number], Millis(1_000 + n));
        }
        let noted = OverflowPeriods::parse(&periods.to_text());
        assert_eq!((noted.0.len(), noted.0.last()), (NOTED_MAX, periods.0.last()));
    }

    #[test]
    fn periods_are_bounded() {
        let number = PromoNumber::parse(MEMBER).unwrap();
        let mut periods = OverflowPeriods::default();
        for n in 0..PERIODS_MAX as u64 + 5 {
            periods.change(&[number], &[number], Millis(n));
        }
        assert_eq!(periods.0.len(), PERIODS_MAX);
    }
}
