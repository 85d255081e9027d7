//! Parses times in the formats that providers use.

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use jiff::fmt::temporal::Pieces;
use ringwell_core::Millis;
use ringwell_store::Repeated;

static NOT_BELIEVED: Repeated = Repeated::new();

/// A provider's clock may be at most this far ahead of the server's clock.
const AHEAD_MAX: Millis = Millis(60_000);
/// The longest accepted delay of a report. It is long because reports may wait at a switch. A call
/// must be attributed by its own time, not by its report's time of arrival.
const BEHIND_MAX: Millis = Millis(30 * 24 * 60 * 60 * 1000);
/// The maximum number of characters of an invalid time to log.
const SHOWN_MAX: usize = 40;

/// Parses a time in the format of RFC 2822 or RFC 3339, or in seconds or milliseconds since 1970.
pub(crate) fn parse(text: &str) -> Option<Millis> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        let value: u64 = text.parse().ok()?;
        return match text.len() {
            ..=10 => Some(Millis(value * 1000)),
            11..=13 => Some(Millis(value)),
            _ => None,
        };
    }
    let time: Timestamp = match text.parse() {
        Ok(time) => time,
        Err(_) => rfc2822::parse(text).ok()?.timestamp(),
    };
    u64::try_from(time.as_millisecond()).ok().map(Millis)
}

/// Whether `text` is an RFC 3339 time before 1970, which [`parse`] refuses.
pub(crate) fn is_before_1970(text: &str) -> bool {
    text.trim().parse::<Timestamp>().is_ok_and(|time| time.as_millisecond() < 0)
}

/// Whether `text` is an RFC 3339 time in the last days of the year 9999, which [`parse`] refuses.
pub(crate) fn is_too_late(text: &str) -> bool {
    let text = text.trim();
    let read = Pieces::parse(text).ok().filter(|_| text.parse::<Timestamp>().is_err());
    read.is_some_and(|it| it.time().is_some() && it.offset().is_some() && it.date().year() == 9999)
}

/// The time in `text`, if it can be parsed and is plausible, otherwise `received`.
pub(super) fn believed(text: Option<&str>, received: Millis, target: &str) -> Millis {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return received };
    let believed = parse(text).filter(|at| fits(*at, received));
    if believed.is_none()
        && let Some(left_out) = NOT_BELIEVED.pass()
    {
        let path = target.split('?').next();
        let time: String = text.chars().take(SHOWN_MAX).collect();
        tracing::warn!(
            path,
            time,
            left_out,
            "a report's time cannot be read, is more than a minute in the future, or is more than \
            30 days \
             old: the time of arrival is used instead, and the call may be attributed to a later \
             visitor"
        );
    }
    believed.unwrap_or(received)
}

fn fits(at: Millis, received: Millis) -> bool {
    at.0 <= received.0.saturating_add(AHEAD_MAX.0)
        && received.0 <= at.0.saturating_add(BEHIND_MAX.0)
}

#[cfg(test)]
#[test]
fn moments_are_read_in_each_form_and_believed_within_thirty_days() {
    let at = Some(Millis(1_700_000_000_000));
    for text in
        ["Tue, 14 Nov 2023 22:13:20 +0000", "2023-11-14T22:13:20Z", "1700000000", "1700000000000"]
    {
        assert_eq!(parse(text), at, "{text}");
    }
    for text in ["", "soon", "2023-11-14 22:13", "99999999999999"] {
        assert_eq!(parse(text), None, "{text}");
    }
    let status = "/t/main/status?x=1";
    for late in [1_000, BEHIND_MAX.0] {
        let received = Millis(1_700_000_000_000 + late);
        assert_eq!(Some(believed(Some("1700000000"), received, status)), at);
    }
    let received = Millis(1_700_000_001_000);
    for wrong in [None, Some(""), Some("soon"), Some("1"), Some("1700000070")] {
        assert_eq!(believed(wrong, received, status), received);
    }
}
