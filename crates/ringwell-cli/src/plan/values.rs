//! Shares, amounts and durations: parses them, and formats them for people.

use std::io::{self, IsTerminal};
use std::time::Duration;

use ringwell_plan::Callers;

/// Parses a share from 0 to 1, such as `1%` or `0.01`.
pub(crate) fn parse_share(text: &str) -> Result<f64, &'static str> {
    let (digits, unit) = match text.strip_suffix('%') {
        Some(digits) => (digits, 0.01),
        None => (text, 1.0),
    };
    let share = digits.trim().parse::<f64>().ok().map(|value| value * unit);
    share.filter(|share| (0.0..=1.0).contains(share)).ok_or("must be a share, e.g. 1% or 0.01")
}

/// Parses an amount above 0, such as `127000`, `127k`, `5500M` or `5.5G`.
pub(super) fn parse_amount(text: &str) -> Result<f64, &'static str> {
    let units = [('k', 1e3), ('M', 1e6), ('G', 1e9)];
    let unit = units.into_iter().find(|(name, _)| text.ends_with(*name));
    let digits = unit.map_or(text, |(name, _)| text.trim_end_matches(name));
    let amount = digits.parse::<f64>().ok().map(|value| value * unit.map_or(1.0, |(_, by)| by));
    let above_0 = amount.filter(|amount| amount.is_finite() && *amount > 0.0);
    above_0.ok_or("must be an amount above 0, e.g. 80, 127k, 5500M or 5.5G")
}

/// Parses a duration above 0, such as `30m` or `1h 30m`.
pub(super) fn parse_lifetime(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| match error {
        humantime::DurationError::NumberOverflow => error.to_string(),
        _ if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("needs a unit, e.g. {text}s or {text}m")
        }
        _ => "must be a duration, e.g. 30s or 30m".to_owned(),
    })?;
    if duration.is_zero() { Err("must be longer than 0".to_owned()) } else { Ok(duration) }
}

/// The default delays of callers, as assumed in docs/spec/calls.md, "Confidence".
pub(crate) const USUAL_CALLERS: &str = "80%:3m,15%:30m,5%:6h";

/// Parses delays of callers, such as `80%:3m,20%:1h`.
pub(crate) fn parse_callers(text: &str) -> Result<Callers, String> {
    let part = |part: &str| {
        let (share, delay) = part.split_once(':').ok_or("must be SHARE:DELAY, e.g. 80%:3m")?;
        Ok((parse_share(share)?, parse_lifetime(delay)?))
    };
    let parts: Result<Vec<_>, String> = text.split(',').map(part).collect();
    Callers::new(&parts?).map_err(|error| error.to_string())
}

/// Formats a share for people, with three significant digits.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent >= 9.995 => format!("{percent:.1} %"),
        percent if percent >= 0.995 => format!("{percent:.2} %"),
        percent if percent >= 0.000_995 => format!("{percent:.3} %"),
        percent if percent > 0.0 => format!("{percent:.0e} %"),
        _ => "0 %".to_owned(),
    }
}

/// Formats an amount for people: large amounts as whole numbers with commas, small amounts with one
/// decimal.
pub(crate) fn amount(value: f64) -> String {
    if value < 99.95 {
        let text = format!("{value:.1}");
        return text.strip_suffix(".0").map_or(text.clone(), str::to_owned);
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a length of time in a suitable unit.
pub(crate) fn span(seconds: f64) -> String {
    let units = [(86_400.0, "days"), (3_600.0, "h"), (60.0, "min")];
    let fitting = units.into_iter().find(|(unit, _)| seconds >= 2.0 * unit);
    let (unit, name) = fitting.unwrap_or((1.0, "s"));
    format!("{} {name}", amount(seconds / unit))
}

/// Returns whether to print colors: stdout is a terminal, and the variable `NO_COLOR` is unset or
/// empty.
pub(super) fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
}
