//! The plan for one pool: compares sizes, and formats them as a table.

use std::fmt::Write as _;

use anyhow::Context;
use ringwell_plan::{Callers, Demand, Forecast, Sizes};
use serde_json::{Value, json};

use super::curve::{self, Curve};
use super::values::{amount, percent, span};

/// The maximum count of numbers in a pool, which is the server's limit.
const POOL_NUMBERS_MAX: u32 = 100_000;
/// The shares of overflow at the left and right ends of the curves.
const LEFT: f64 = 0.5;
const RIGHT: f64 = 0.0001;

/// The size that a pool needs, and forecasts for other sizes.
#[derive(Debug)]
pub(super) struct PoolPlan {
    demand: Demand,
    target: f64,
    callers: Callers,
    /// The size that meets the target.
    pub(super) numbers: u32,
    /// The size that the user asked about.
    pub(super) asked: Option<u32>,
    forecasts: Vec<Forecast>,
}

impl PoolPlan {
    /// # Errors
    /// If no pool is large enough for the target.
    pub(super) fn new(
        demand: Demand,
        target: f64,
        asked: Option<u32>,
        callers: Callers,
    ) -> anyhow::Result<Self> {
        let sizes = demand.sizes(target, asked, &callers).with_context(|| {
            format!("no pool is large enough for an overflow of {}", percent(target))
        })?;
        let Sizes { numbers, forecasts } = sizes;
        Ok(Self { demand, target, callers, numbers, asked, forecasts })
    }

    /// Computes the curves over all relevant sizes, with `points` points.
    pub(super) fn curve(&self, points: u32) -> Curve {
        let left = self.demand.numbers_for(LEFT).unwrap_or(1);
        let right = self.demand.numbers_for(RIGHT).unwrap_or(self.numbers);
        let shown = self.forecasts.iter().map(|forecast| forecast.numbers);
        let right = shown.chain([right, left + 1]).max().unwrap_or(right);
        let left = self.asked.map_or(left, |asked| asked.min(left));
        curve::Curve::new(left, right, points, |size| self.demand.forecast(size, &self.callers))
    }

    /// Returns the title, as one line.
    pub(super) fn title(&self) -> String {
        format!(
            "load {}, lifetime {}: {} numbers for an overflow of {}",
            amount(self.demand.load()),
            span(self.demand.lifetime().as_secs_f64()),
            amount(f64::from(self.numbers)),
            percent(self.target)
        )
    }

    /// Formats the table and the plot for people.
    pub(super) fn text(&self, colours: bool) -> String {
        let mut text = format!("{}\n\n", self.title());
        text += "  numbers   overflow    in use   reused after   wrong caller   not attributed\n";
        for forecast in &self.forecasts {
            let line = format!(
                "{:>9} {:>10} {:>9} {:>14} {:>14} {:>16}  {}",
                amount(f64::from(forecast.numbers)),
                percent(forecast.overflow),
                amount(forecast.locked),
                forecast.reuse.map_or("never".to_owned(), |reuse| span(reuse.as_secs_f64())),
                percent(forecast.misattributed),
                percent(forecast.lost()),
                self.mark(forecast.numbers)
            );
            let strong = colours && forecast.numbers == self.numbers;
            let (on, off) = if strong { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
            let _ = writeln!(text, "{on}{}{off}", line.trim_end());
        }
        text += "\n";
        text += &self.curve(curve::COLUMNS).plot(self.numbers, colours);
        text += "\n";
        text += &self.notes();
        text
    }

    fn mark(&self, numbers: u32) -> String {
        let mut marks = Vec::new();
        if numbers == self.numbers {
            marks.push(format!("<- {} target", percent(self.target)));
        }
        if self.asked == Some(numbers) {
            marks.push("<- --numbers".to_owned());
        }
        marks.join(" ")
    }

    /// Formats notes that explain the figures and their basis.
    fn notes(&self) -> String {
        let random = self.demand.forecast(self.numbers, &self.callers).misattributed_random;
        let late = self.callers.later_than(self.demand.lifetime());
        let mut text = format!(
            "wrong caller: the share of calls made after the caller's number was given to\n\
             another visitor. The number that has been free longest is handed out next; with a\n\
             random choice, this share would be {} at {} numbers. {} of all callers call\n\
             after the lifetime.\n\
             not attributed: overflow and wrong callers together.\n\
             The counts exclude the overflow number: a pool that has one needs 1 more.\n",
            percent(random),
            amount(f64::from(self.numbers)),
            percent(late)
        );
        if self.numbers > POOL_NUMBERS_MAX {
            text += "A ring pool has at most 100,000 numbers: this load needs several pools.\n";
        }
        text
    }

    /// Returns all results as JSON: shares from 0 to 1, and times in seconds.
    pub(super) fn json(&self) -> Value {
        let forecasts: Vec<_> = self.forecasts.iter().map(of_forecast).collect();
        json!({
            "load": self.demand.load(),
            "lifetime_seconds": self.demand.lifetime().as_secs_f64(),
            "allocations_per_second": self.demand.per_second(),
            "target": self.target,
            "numbers": self.numbers,
            "callers_after_lifetime": self.callers.later_than(self.demand.lifetime()),
            "forecasts": forecasts,
        })
    }
}

fn of_forecast(forecast: &Forecast) -> Value {
    json!({
        "numbers": forecast.numbers,
        "overflow": forecast.overflow,
        "locked": forecast.locked,
        "reuse_seconds": forecast.reuse.map(|reuse| reuse.as_secs_f64()),
        "misattributed": forecast.misattributed,
        "misattributed_random": forecast.misattributed_random,
        "not_attributed": forecast.lost(),
    })
}
