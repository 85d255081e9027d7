//! The parameters of lists: pages and times.

use ringwell_core::Millis;

use super::problem::Problem;
use crate::provider::parse_moment;

/// The default and the maximum number of entries on one page of a list.
pub(super) const PAGE: (u32, u32) = (100, 1_000);

pub(super) fn time(name: &str, text: Option<&String>) -> Result<Option<Millis>, Problem> {
    let read = |text: &String| {
        // If the `+` of a UTC offset was not percent-encoded, it arrives as a space.
        parse_moment(&text.replace(' ', "+")).ok_or_else(|| {
            Problem::bad_request(format!(
                "{name}: must be an RFC 3339 time, e.g. \
                2026-11-21T06:30:00Z"
            ))
        })
    };
    text.map(read).transpose()
}
