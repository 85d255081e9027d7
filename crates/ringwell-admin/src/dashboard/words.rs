//! Words and figures for people: reasons for overflow, counts, shares, times.
//!
//! Translates the implementation's terms, so that no page shows them.

use jiff::Timestamp;
use maud::{Markup, html};
use ringwell_core::Millis;
use ringwell_node::Reason;
use serde::Serialize;

/// The reason why a visitor got no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cause {
    PoolTooSmall,
    ServerTooSlow,
    Disk,
    OtherNode,
}

impl Cause {
    pub(super) const ALL: [Self; 4] =
        [Self::PoolTooSmall, Self::ServerTooSlow, Self::Disk, Self::OtherNode];

    pub(super) const fn of(reason: Reason) -> Self {
        match reason {
            Reason::Exhausted => Self::PoolTooSmall,
            Reason::Late | Reason::Busy => Self::ServerTooSlow,
            Reason::JournalFull | Reason::JournalFailed | Reason::JournalWaits => Self::Disk,
            Reason::Paced | Reason::Unreachable | Reason::Moved => Self::OtherNode,
        }
    }

    /// The overflow cause for the reason called `name` in the metrics.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Reason::ALL.into_iter().find(|reason| reason.name() == name).map(Self::of)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::PoolTooSmall => "pool too small",
            Self::ServerTooSlow => "server too slow",
            Self::Disk => "disk",
            Self::OtherNode => "other node",
        }
    }

    /// The advice to the operator.
    pub(super) const fn advice(self) -> &'static str {
        match self {
            Self::PoolTooSmall => "Add numbers to the pool; its page shows how many are needed.",
            Self::ServerTooSlow => {
                "Check whether another program is using the CPU. If not, add shards or a node."
            }
            Self::Disk => {
                "Free up space on the disk that contains the data directory. If the disk has \
                 failed, replace it and restart the server."
            }
            Self::OtherNode => "The Cluster page shows which node is slow or does not answer.",
        }
    }
}

/// Formats a count, such as `12,345`.
pub(super) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun, such as `1 pool` or `2 pools`.
pub(super) fn several(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Formats a rate, with one decimal place if it is below 10, such as `0.4`, `12` or `1,234`.
pub(super) fn rate(value: f64) -> String {
    if value >= 10.0 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
        return count(value.round() as u64);
    }
    if value > 0.0 { format!("{value:.1}") } else { "0".to_owned() }
}

/// Formats a share as a percentage, such as `1.2 %`.
pub(super) fn share(value: f64) -> String {
    match value * 100.0 {
        percent if percent >= 10.0 => format!("{percent:.0} %"),
        percent if percent >= 0.05 => format!("{percent:.1} %"),
        percent if percent > 0.0 => "< 0.1 %".to_owned(),
        _ => "0 %".to_owned(),
    }
}

/// Formats a number of bytes, such as `1.5 GB`.
pub(super) fn bytes(value: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "only a few digits are shown")]
    let value = value as f64;
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let unit = units.into_iter().find(|(size, _)| value >= *size);
    unit.map_or_else(|| format!("{value} B"), |(size, unit)| format!("{:.1} {unit}", value / size))
}

/// Formats a duration, such as `30 min`, `2 h 5 min`, `12 s` or `250 ms`.
pub(super) fn duration(value: Millis) -> String {
    let (ms, s) = (value.0, value.0 / 1000);
    let two = |large: u64, unit: &str, small: u64, of: &str| {
        if small == 0 { format!("{large} {unit}") } else { format!("{large} {unit} {small} {of}") }
    };
    match s {
        0 => format!("{ms} ms"),
        1..=119 => format!("{s} s"),
        120..=7199 => two(s / 60, "min", s % 60, "s"),
        7200..=172_799 => two(s / 3600, "h", s % 3600 / 60, "min"),
        _ => two(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

/// Formats a time for programs, such as `2026-11-21T06:30:00Z`.
pub(super) fn stamp(at: Millis) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    format!("{:.0}", Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX))
}

/// A time, which the script shows in the reader's time zone.
pub(super) fn moment(at: Millis) -> Markup {
    let stamp = stamp(at);
    let text = stamp.replace('T', " ").replace('Z', " UTC");
    html! { time datetime=(stamp) title=(text) { (text) } }
}

#[cfg(test)]
#[test]
fn figures_are_written_for_people() {
    assert_eq!(
        [count(0), count(999), count(1000), count(1_234_567)],
        ["0", "999", "1,000", "1,234,567"]
    );
    assert_eq!([rate(0.0), rate(0.25), rate(12.4), rate(1234.0)], ["0", "0.2", "12", "1,234"]);
    assert_eq!(
        [share(0.0), share(0.0001), share(0.012), share(0.5)],
        ["0 %", "< 0.1 %", "1.2 %", "50 %"]
    );
    let times = [250, 90_000, 1_800_000, 7_500_000, 200_000_000];
    let times = times.map(|ms| duration(Millis(ms)));
    assert_eq!(times, ["250 ms", "90 s", "30 min", "2 h 5 min", "2 d 7 h"]);
    assert_eq!([bytes(10), bytes(1_500_000_000)], ["10 B", "1.5 GB"]);
}
