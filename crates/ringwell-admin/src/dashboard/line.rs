//! A ring pool's line in a list: its figures, its state, and its position in each sort order.

use std::cmp::Ordering;
use std::time::Duration;

use maud::{Markup, html};
use ringwell_core::{Millis, PoolId};
use serde::Serialize;

/// The state of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Health {
    /// The share of recent visitors who got no number exceeds `OVERFLOW_MAX`.
    TooSmall,
    /// If the present trend continues, the pool will be too small within an hour.
    Exhausting,
    Fine,
    Idle,
}

/// The data about a pool that is available without reading its numbers' states.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolLine {
    pub(super) id: PoolId,
    pub(super) numbers: u32,
    pub(super) lifetime: Millis,
    /// The mean lockout after an allocation, including keep-alives and releases.
    pub(super) lockout: Duration,
    /// The mean count of numbers that would be locked out if the pool never ran out.
    pub(super) load: f64,
    /// The load an hour from now, if the present trend continues.
    pub(super) load_in_an_hour: f64,
    /// The time over which the load was measured: the lifetime, or the server's uptime if that is
    /// shorter.
    pub(super) over: Millis,
    /// The share of visitors who got no number during `over`.
    pub(super) overflow: f64,
    /// The expected value of `overflow` an hour from now.
    pub(super) overflow_in_an_hour: f64,
    pub(super) health: Health,
    /// The time at which the pool will become too small, if that is within the next twelve hours.
    pub(super) tonight: Option<Tonight>,
}

impl Health {
    /// The state's name in page addresses, JSON and CSV.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::TooSmall => "too_small",
            Self::Exhausting => "exhausting",
            Self::Fine => "fine",
            Self::Idle => "idle",
        }
    }

    /// The state, as shown on the pages. The leading symbol has the same meaning as the text's
    /// color, for people who cannot see colors.
    pub(super) fn html(self) -> Markup {
        let text = match self {
            Self::TooSmall => "✖ too small",
            Self::Exhausting => "▲ exhausted soon",
            Self::Fine => "✔ fine",
            Self::Idle => "· idle",
        };
        html! { span class={ "state " (self.name()) } { (text) } }
    }
}

/// A forecast, based on the previous day, that a pool will be too small.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tonight {
    /// The beginning of the first clock hour in which the pool is too small.
    pub(super) at: Millis,
    /// The highest load within the next twelve hours.
    pub(super) load: f64,
}

pub(super) fn compare(order: &str, one: &PoolLine, other: &PoolLine) -> Ordering {
    let used = |line: &PoolLine| line.load / f64::from(line.numbers.max(1));
    let by = match order {
        "trouble" => trouble(other).total_cmp(&trouble(one)),
        "used" => used(other).total_cmp(&used(one)),
        "size" => other.numbers.cmp(&one.numbers),
        _ => Ordering::Equal,
    };
    by.then(used(other).total_cmp(&used(one)).then(Ordering::Equal)).then(one.id.cmp(&other.id))
}

/// The present or the predicted share of overflow, whichever is greater.
fn trouble(line: &PoolLine) -> f64 {
    line.overflow.max(line.overflow_in_an_hour)
}

/// The pools with the most overflow, now or within an hour, among those with any demand.
pub(super) fn by_trouble(pools: &[PoolLine], top: usize) -> Vec<PoolLine> {
    let mut found: Vec<PoolLine> =
        pools.iter().filter(|line| line.health != Health::Idle).copied().collect();
    let order = |one: &PoolLine, other: &PoolLine| compare("trouble", one, other);
    if found.len() > top {
        found.select_nth_unstable_by(top, order);
        found.truncate(top);
    }
    found.sort_by(order);
    found
}
