//! Formats the results of a run as text: a line while the run is in progress, and a table at the
//! end.

use std::fmt::Write as _;

use crate::outcome::{Latency, Outcome, Setting};
use crate::plan::Progress;
use crate::request::Spread;
use crate::tally::Counts;

/// The width of the bar in the progress line, in characters.
const BAR: usize = 16;

impl Outcome {
    /// The table of requests, answers and times.
    #[must_use]
    pub fn table(&self) -> String {
        let Self { counts, setting, .. } = self;
        let mut text = format!("{}\n", setting.sentence());
        if self.interrupted {
            let seconds = self.seconds;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "ended early: the figures cover only the first {seconds:.2} s");
        }
        let rows = counts.rows + counts.error_rows;
        let share = percent(counts.overflow_rows, rows);
        let lines = [
            (
                "batches",
                format!("{} of {} answered 200", grouped(counts.ok()), grouped(counts.sent)),
            ),
            (
                "rate",
                format!(
                    "{} batches/s, {} rows/s",
                    round(self.batches_per_second),
                    round(self.rows_per_second)
                ),
            ),
            (
                "rows",
                format!(
                    "{} with a number, including {} with overflow numbers ({share}); {} errors",
                    grouped(counts.rows),
                    grouped(counts.overflow_rows),
                    grouped(counts.error_rows)
                ),
            ),
            ("failures", failures(counts)),
            ("latency ms", latency(&self.latency)),
            ("counted", counted(setting).to_owned()),
            (
                "generator",
                format!(
                    "{:.2} of a core, {:.1} us CPU per batch",
                    self.generator_cores, self.generator_cpu_us_per_answer
                ),
            ),
        ];
        for (name, value) in lines {
            let _ = writeln!(text, "  {name:<11}{value}");
        }
        text
    }
}

impl Setting {
    /// Describes the requested run in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mode = match self.rate {
            Some(rate) => format!("open loop at {} batches/s", round(rate)),
            None => "closed loop".to_owned(),
        };
        let ramp = match self.ramp_seconds {
            ramp if ramp > 0.0 => format!(", ramp {ramp} s"),
            _ => String::new(),
        };
        let spikes = match self.spikes {
            0 => String::new(),
            count => format!(", {}", counted_noun(count, "spike")),
        };
        let spread = match self.spread {
            Spread::Pools => format!("spread over {}", counted_noun(self.pools, "pool")),
            Spread::One => "all on one pool".to_owned(),
        };
        let history = if self.history { ", with a history" } else { "" };
        format!(
            "{mode}{ramp}{spikes}, {} s, {} on {}, to {}; {} per batch, {spread}{history}",
            self.duration_seconds,
            counted_noun(self.connections, "connection"),
            counted_noun(self.threads, "thread"),
            self.targets.join(" and "),
            counted_noun(self.rows, "row"),
        )
    }
}

impl Progress {
    /// The progress as one line without a line break. It is at most 98 characters wide unless
    /// counts are huge.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { elapsed, duration, latency, counts, .. } = self;
        let done = (elapsed / duration).clamp(0.0, 1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "0 to BAR"
        )]
        let full = (done * BAR as f64) as usize;
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(BAR - full));
        let rows = counts.rows + counts.error_rows;
        format!(
            "{:>3.0}/{duration:.0}s [{bar}] {}/s  ms {} {} {} {}  overflow {}  errors {}",
            elapsed.min(*duration),
            round(self.batches_per_second),
            ms(latency.p50_us),
            ms(latency.p90_us),
            ms(latency.p99_us),
            ms(latency.p999_us),
            percent(counts.overflow_rows, rows),
            grouped(counts.error_rows + counts.failures()),
        )
    }
}

fn counted(setting: &Setting) -> &'static str {
    match setting.mode.as_str() {
        "open" => "from the time at which a batch was due",
        _ => {
            "from the time at which a batch was sent (closed loop: a stall counts once per \
             connection)"
        }
    }
}

fn latency(latency: &Latency) -> String {
    let Latency { min_us, p50_us, p90_us, p99_us, p999_us, max_us, .. } = *latency;
    format!(
        "min {}  p50 {}  p90 {}  p99 {}  p99.9 {}  max {}",
        ms(min_us),
        ms(p50_us),
        ms(p90_us),
        ms(p99_us),
        ms(p999_us),
        ms(max_us)
    )
}

/// The counts of all failures, by kind.
pub(crate) fn failures(counts: &Counts) -> String {
    let named = [
        (counts.refused, "connections refused"),
        (counts.reset, "reset"),
        (counts.timeouts, "timed out"),
        (counts.bad_answers, "not HTTP"),
        (counts.unanswered, "unanswered at the end of the run"),
        (counts.unsent, "never sent: no connection was free"),
    ];
    let named = named.iter().filter(|(count, _)| *count > 0);
    let mut parts: Vec<String> =
        named.map(|(count, what)| format!("{} {what}", grouped(*count))).collect();
    let other = counts.statuses.iter().filter(|(status, _)| **status != 200);
    parts.extend(other.map(|(status, count)| format!("{} status {status}", grouped(*count))));
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

fn counted_noun(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Milliseconds with about three significant digits.
pub(crate) fn ms(us: f64) -> String {
    let ms = us / 1e3;
    match ms {
        ms if ms < 10.0 => format!("{ms:.3}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

fn percent(part: u64, all: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    let share = if all == 0 { 0.0 } else { 100.0 * part as f64 / all as f64 };
    format!("{share:.2} %")
}

/// A rate as text, without decimals if it is 100 or more.
pub(crate) fn round(rate: f64) -> String {
    if rate < 100.0 {
        return format!("{rate:.1}");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "far below 2^64")]
    let whole = rate.round() as u64;
    grouped(whole)
}

/// A count with commas between thousands.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!((round(25_012.4), round(7.25)), ("25,012".to_owned(), "7.2".to_owned()));
        assert_eq!(
            (ms(352.0), ms(93_400.0), ms(1_002_000.0)),
            ("0.352".into(), "93.4".into(), "1002".into())
        );
        assert_eq!(percent(1, 0), "0.00 %");
        assert_eq!(percent(1, 40), "2.50 %");
    }

    #[test]
    fn failures_are_named_by_kind() {
        assert_eq!(failures(&Counts::default()), "none");
        let statuses = [(200, 9), (503, 1200)].into();
        let counts = Counts { statuses, reset: 2, timeouts: 1, ..Counts::default() };
        assert_eq!(failures(&counts), "2 reset, 1 timed out, 1,200 status 503");
    }
}
