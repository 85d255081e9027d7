//! Periods in which numbers with a history were overflow numbers: `overflow-periods.json`.
//!
//! Many visitors see an overflow number, so a call to it belongs to none of those who had the number
//! before. The directory only knows the present overflow numbers.

use std::path::Path;

use ringwell_core::{Millis, PromoNumber};
use ringwell_engine::{Missing, Past};
use serde::{Deserialize, Serialize};

use super::files::{FileError, Files, read_json, write_json};

const FILE: &str = "overflow-periods.json";

/// The maximum number of periods; beyond this the oldest are forgotten.
const PERIODS_MAX: usize = 10_000;

/// A period, in milliseconds of the wall clock since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Period {
    /// The number's code.
    number: u64,
    from: u64,
    /// Absent while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<u64>,
}

/// The periods, in the order of their beginnings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OverflowPeriods(Vec<Period>);

impl OverflowPeriods {
    /// The periods in `data`; none if there is no such file.
    ///
    /// # Errors
    /// [`FileError`] if there is a file that cannot be read or understood.
    pub fn read(files: &impl Files, data: &Path) -> Result<Self, FileError> {
        Ok(read_json(files, &data.join(FILE))?.unwrap_or_default())
    }

    /// Writes the file durably.
    ///
    /// # Errors
    /// [`FileError`]; then the old file stays.
    pub fn write(&self, files: &impl Files, data: &Path) -> Result<(), FileError> {
        write_json(files, data, FILE, self)
    }

    /// Notes that numbers become overflow numbers `now`, and that others are none any more.
    pub fn change(&mut self, begun: &[PromoNumber], ended: &[PromoNumber], now: Millis) {
        for number in ended.iter().map(|number| number.to_code()) {
            let is_it = |period: &&mut Period| period.number == number && period.to.is_none();
            match self.0.iter_mut().rev().find(is_it) {
                Some(period) => period.to = Some(now.0),
                // The beginning was before the start of the process.
                None => self.0.push(Period { number, from: 0, to: Some(now.0) }),
            }
        }
        let open =
            |number: &PromoNumber| Period { number: number.to_code(), from: now.0, to: None };
        self.0.extend(begun.iter().map(open));
        let surplus = self.0.len().saturating_sub(PERIODS_MAX);
        self.0.drain(..surplus);
    }

    /// Adapts the result of a look-up of `number` at `at`: a visitor whose lockout was over when the
    /// number was, or became, an overflow number is not named.
    #[must_use]
    pub fn judge(&self, number: PromoNumber, at: Millis, past: Past) -> Past {
        let Some(held) = &past.held else { return past };
        let number = number.to_code();
        let is_between = |period: &&Period| {
            let to = period.to.unwrap_or(u64::MAX);
            let is_after = held.allocated_wall.0 < to && held.locked_until.0 <= at.0;
            period.number == number && period.from <= at.0 && is_after
        };
        match self.0.iter().find(is_between) {
            Some(_) => Past { missing: Some(Missing::NotKept), ..Past::default() },
            None => past,
        }
    }
}

#[cfg(test)]
mod tests {
    use ringwell_core::PoolId;
    use ringwell_engine::PastAllocation;

    use super::*;

    const MEMBER: &str = "2005550001";

    fn held() -> Past {
        let held = PastAllocation {
            pool: Some(PoolId(1)),
            allocated_at: Millis(100),
            allocated_wall: Millis(100),
            locked_until: Millis(200),
            params: Vec::new(),
            next_allocated_at: None,
            keep_alives: None,
        };
        Past { held: Some(held), ..Past::default() }
    }

    #[test]
    fn a_visitor_is_not_named_while_and_after_the_number_was_an_overflow_number() {
        let [number, other] = [MEMBER, "2005550002"].map(|text| PromoNumber::parse(text).unwrap());
        let mut periods = OverflowPeriods::default();
        let names = |periods: &OverflowPeriods, at, number| {
            periods.judge(number, Millis(at), held()).held.is_some()
        };
        periods.change(&[number], &[], Millis(300));
        for (at, is_named) in [(150, true), (250, true), (299, true), (300, false), (9_000, false)]
        {
            assert_eq!(names(&periods, at, number), is_named, "{at}");
            assert!(names(&periods, at, other));
        }
        periods.change(&[], &[number, other], Millis(400));
        // It went on to no visitor since.
        for (at, is_named) in [(299, true), (350, false), (9_000, false)] {
            assert_eq!(names(&periods, at, number), is_named, "{at}");
        }
        assert!(names(&periods, 199, other), "its lockout ran");
        assert!(!names(&periods, 200, other), "an overflow number since before the start");
        // Allocated after the period.
        let mut later = held();
        let held = later.held.as_mut().unwrap();
        (held.allocated_wall, held.locked_until) = (Millis(400), Millis(500));
        assert!(periods.judge(number, Millis(9_000), later).held.is_some());
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
