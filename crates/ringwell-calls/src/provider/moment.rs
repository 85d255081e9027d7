//! Times in the forms that providers use.

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use ringwell_core::Millis;

/// The largest accepted lead of a provider's clock over ours.
const AHEAD_MAX: Millis = Millis(60_000);
/// The longest accepted delay of a report. A report that waited at a switch must not be attributed to
/// the visitor of the time when it arrives.
const BEHIND_MAX: Millis = Millis(30 * 24 * 60 * 60 * 1000);

/// Reads RFC 2822, RFC 3339, or seconds or milliseconds since 1970.
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

/// The time of a report: the provider's, unless its clock cannot be right.
pub(super) fn believed(provider: Option<Millis>, received: Millis) -> Millis {
    let fits = |at: &Millis| {
        at.0 <= received.0.saturating_add(AHEAD_MAX.0)
            && received.0 <= at.0.saturating_add(BEHIND_MAX.0)
    };
    provider.filter(fits).unwrap_or(received)
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
    for late in [1_000, BEHIND_MAX.0] {
        assert_eq!(Some(believed(at, Millis(1_700_000_000_000 + late))), at);
    }
    let received = Millis(1_700_000_001_000);
    for wrong in [None, Some(Millis(1)), Some(Millis(1_700_000_070_000))] {
        assert_eq!(believed(wrong, received), received);
    }
}
