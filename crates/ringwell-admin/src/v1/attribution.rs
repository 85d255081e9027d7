//! `GET /v1/attributions?number=…&at=…`: finds the visitor who held a number at a given time.
//!
//! The answer is the newest allocation that began at or before that time. Times in the request and
//! in the answer are wall-clock times.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use ringwell_calls::clock::moment;
use ringwell_core::{Millis, NumberError, PromoNumber};
use ringwell_engine::{Missing, Past, PastAllocation};
use ringwell_node::{Handle, Joined};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::problem::Problem;

/// A requested time may be at most this far ahead of the server's clock. Clocks differ by less than
/// this, so a time further in the future is a mistake.
const FUTURE_MAX: Millis = Millis(60_000);

#[derive(Deserialize)]
pub(crate) struct Wanted {
    number: Option<String>,
    at: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Attribution {
    number: String,
    at: String,
    /// `allocated`, `overflow`, `none`, `not_kept`, `too_long` or `damaged`.
    outcome: &'static str,
    #[serde(flatten)]
    allocation: Option<Allocation>,
    /// The pools that use the number as their overflow number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ring_pool_ids: Vec<u64>,
    /// Shards of other nodes that did not answer. They may have other allocations of the number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreachable_shards: Vec<u16>,
}

#[derive(Serialize)]
struct Allocation {
    ring_pool_id: Option<u64>,
    allocated_at: String,
    locked_until: String,
    /// The time at which the number was next handed out.
    next_allocated_at: Option<String>,
    /// Whether the lockout was over at the requested time, but no other visitor had the number yet.
    late: bool,
    parameters: Parameters,
}

/// The names and values of the parameters, in the order received.
struct Parameters(Vec<(String, String)>);

impl Serialize for Parameters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

pub(crate) async fn get(
    State(node): State<Handle>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Attribution>, Problem> {
    let Query(wanted) = wanted.map_err(|_| {
        Problem::bad_request(
            "the query must contain \"number\" exactly once, and \"at\" at most once, as in \
             number=8885550142&at=2026-11-21T06:30:00Z",
        )
    })?;
    let number = wanted.number.as_deref().filter(|number| !number.trim().is_empty());
    let number = parse_number(number.ok_or_else(|| {
        Problem::bad_request("number is missing: use number=8885550142 or number=%2B493012345678")
    })?)?;
    let now = Millis(u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default());
    let at = match wanted.at.as_deref() {
        None => now,
        Some(text) => {
            parse_moment(text).ok_or_else(|| Problem::bad_request(fault_of_moment(text)))?
        }
    };
    if at > now + FUTURE_MAX {
        return Err(Problem::bad_request(format!(
            "at: {} is in the future (the server's time is {}): check the offset, as in \
                2026-11-21T06:30:00-05:00",
            moment(at),
            moment(now)
        )));
    }
    let directory = node.directory();
    let Joined { past: Past { held, missing, .. }, unreachable } = node.holder(number, at).await?;
    // Whether the number was not yet an overflow number at the time `at`.
    let is_earlier = node.became_overflow(number).is_some_and(|since| at < since);
    let overflow = if is_earlier { Vec::new() } else { directory.overflow_pools(number) };
    // For an overflow number, an allocation counts only until the end of its lockout: after that,
    // many visitors share the number.
    let held = held.filter(|held| overflow.is_empty() || at < held.locked_until);
    let is_known = directory.pool_by_number(number).is_some() || is_earlier || !overflow.is_empty();
    if held.is_none() && missing.is_none() && !is_known && !has_history(&node, number).await? {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "the number is in no ring pool and has no history",
        ));
    }
    let outcome = match (&held, overflow.is_empty(), missing) {
        (Some(_), ..) => "allocated",
        (None, false, _) => "overflow",
        (None, true, None) => "none",
        (None, true, Some(Missing::NotKept)) => "not_kept",
        (None, true, Some(Missing::TooLong)) => "too_long",
        (None, true, Some(Missing::Damaged)) => "damaged",
    };
    let ring_pool_ids =
        if held.is_some() { Vec::new() } else { overflow.iter().map(|id| id.0).collect() };
    Ok(Json(Attribution {
        number: number.to_string(),
        at: moment(at),
        outcome,
        allocation: held.as_ref().map(|held| Allocation::new(held, at)),
        ring_pool_ids,
        unreachable_shards: unreachable,
    }))
}

/// Whether a visitor has held the number at any time, or may have held it.
async fn has_history(node: &Handle, number: PromoNumber) -> Result<bool, Problem> {
    let Past { held, missing, .. } = node.holder(number, Millis(u64::MAX)).await?.past;
    Ok(held.is_some() || missing.is_some())
}

impl Allocation {
    fn new(held: &PastAllocation, at: Millis) -> Self {
        Self {
            ring_pool_id: held.pool.map(|id| id.0),
            allocated_at: moment(held.allocated_wall),
            locked_until: moment(held.locked_until),
            next_allocated_at: held.next_allocated_at.map(moment),
            late: at >= held.locked_until,
            parameters: Parameters(ringwell_wire::params::decode(&held.params)),
        }
    }
}

/// The shard time of the newest allocation of `number`, if that allocation's wall-clock time is
/// `wall`.
pub(super) async fn newest_at(
    node: &Handle,
    number: PromoNumber,
    wall: Millis,
) -> Result<Option<Millis>, Problem> {
    let newest = node.holder(number, Millis(u64::MAX)).await?.past;
    let held = newest.held.filter(|held| held.allocated_wall == wall);
    Ok(held.map(|held| held.allocated_at))
}

/// Parses a promo number in any common notation: `2000000000`, `200-000-0000`, `+12000000000` or
/// `+49 30 123456`.
pub(crate) fn parse_number(text: &str) -> Result<PromoNumber, Problem> {
    let trimmed = text.trim();
    let digits: String =
        trimmed.chars().filter(|c| !matches!(c, ' ' | '-' | '.' | '(' | ')')).collect();
    let national = digits.strip_prefix('1').filter(|rest| rest.len() == 10).unwrap_or(&digits);
    let number = if trimmed.starts_with('+') || national.len() == PromoNumber::NANP_DIGITS {
        PromoNumber::parse(if trimmed.starts_with('+') { trimmed } else { national })
    } else if text.starts_with(' ') {
        // An unencoded `+` arrives as a space.
        PromoNumber::parse(&format!("+{trimmed}"))
    } else {
        PromoNumber::parse(&digits)
    };
    number.map_err(|error| {
        Problem::bad_request(match error {
            NumberError::Length { .. } if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let count = digits.len();
                format!(
                    "number: must have ten digits, or a + and a country code, but has {count} \
                    digits"
                )
            }
            error => format!("number: {error}"),
        })
    })
}

/// Parses a time in the format of RFC 3339, or in seconds or milliseconds since 1970.
pub(crate) fn parse_moment(text: &str) -> Option<Millis> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        let value = text.parse::<u64>().ok()?;
        return match text.len() {
            10 => Some(Millis(value * 1000)),
            13 => Some(Millis(value)),
            _ => None,
        };
    }
    // If the `+` of an offset was not encoded, it arrives as a space.
    let time: Timestamp = text.replace(' ', "+").parse().ok()?;
    u64::try_from(time.as_millisecond()).ok().map(Millis)
}

/// Says why [`parse_moment`] refuses `text`.
pub(crate) fn fault_of_moment(text: &str) -> String {
    let text = text.replace(' ', "+");
    if text.parse::<Timestamp>().is_ok() {
        return format!("at: {text} is before 1970: check the year");
    }
    "at: must be an RFC 3339 time (2026-11-21T06:30:00Z), or seconds (10 digits) or milliseconds \
     (13 digits) since 1970"
        .to_owned()
}

#[cfg(test)]
#[test]
fn a_printed_time_can_be_read_back() {
    let at = Millis(1_763_707_803_042);
    assert_eq!(moment(at), "2025-11-21T06:50:03.042Z");
    for text in ["2025-11-21T06:50:03.042Z", "2025-11-21T07:50:03.042 01:00", "1763707803042"] {
        assert_eq!(parse_moment(text), Some(at), "{text}");
    }
    assert_eq!(parse_moment("1763707803"), Some(Millis(1_763_707_803_000)));
    for text in ["", "yesterday", "17637078030", "-1"] {
        assert_eq!(parse_moment(text), None, "{text}");
        assert!(fault_of_moment(text).starts_with("at: must be an RFC 3339 time"), "{text}");
    }
    assert_eq!(parse_moment("1969-12-31T23:59:59Z"), None);
    let fault = fault_of_moment("1969-12-31T23:59:59Z");
    assert_eq!(fault, "at: 1969-12-31T23:59:59Z is before 1970: check the year");
}

#[cfg(test)]
#[test]
fn a_number_may_be_written_in_usual_forms() {
    let wanted = PromoNumber::parse("2005550142").unwrap();
    for text in [
        "2005550142",
        "200-555-0142",
        "+12005550142",
        " 12005550142",
        "1 (200) 555-0142",
        "200.555.0142",
    ] {
        assert_eq!(parse_number(text).ok(), Some(wanted), "{text}");
    }
    let german = PromoNumber::parse("+493012345678").unwrap();
    for text in ["+493012345678", " 493012345678", "00493012345678", "+49 30 1234-5678"] {
        assert_eq!(parse_number(text).ok(), Some(german), "{text}");
    }
    for text in ["", "+", "200555014", "22005550142", "200555014x", "++12005550142"] {
        assert!(parse_number(text).is_err(), "{text}");
    }
}
