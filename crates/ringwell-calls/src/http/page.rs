//! The parameters of lists: pages and times.

use ringwell_core::Millis;

use super::problem::Problem;
use crate::provider::{is_before_1970, is_too_late, parse_moment};

/// The default and the maximum number of entries on one page of a list.
pub(super) const PAGE: (u32, u32) = (100, 1_000);

pub(super) fn time(name: &str, text: Option<&String>) -> Result<Option<Millis>, Problem> {
    let read = |text: &String| {
        // If the `+` of a UTC offset was not percent-encoded, it arrives as a space.
        let with_plus = text.replace(' ', "+");
        let at = parse_moment(text).or_else(|| parse_moment(&with_plus));
        at.ok_or_else(|| {
            Problem::bad_request(if is_before_1970(&with_plus) {
                format!("{name}: {with_plus} is before 1970: check the year")
            } else if is_too_late(&with_plus) {
                format!("{name}: {with_plus} is out of range: check the year")
            } else {
                format!("{name}: must be an RFC 3339 time, e.g. 2026-11-21T06:30:00Z")
            })
        })
    };
    text.map(read).transpose()
}

#[cfg(test)]
#[test]
fn a_time_out_of_range_is_named_as_such() {
    let of = |text: &str| time("at", Some(&text.to_owned()));
    assert_eq!(of("1970-01-01T00:00:00Z").unwrap(), Some(Millis(0)));
    assert_eq!(of("2026-11-21T07:30:00 01:00").unwrap(), of("2026-11-21T06:30:00Z").unwrap());
    for (text, wanted) in [
        ("1969-12-31T23:59:59Z", "at: 1969-12-31T23:59:59Z is before 1970: check the year"),
        ("9999-12-31T23:59:59Z", "at: 9999-12-31T23:59:59Z is out of range: check the year"),
        (
            "9999-12-31T23:59:59.5 01:00",
            "at: 9999-12-31T23:59:59.5+01:00 is out of range: check the year",
        ),
        ("9999-12-31", "at: must be an RFC 3339 time, e.g. 2026-11-21T06:30:00Z"),
        ("soon", "at: must be an RFC 3339 time, e.g. 2026-11-21T06:30:00Z"),
    ] {
        assert_eq!(of(text).unwrap_err().detail(), wanted);
    }
}
