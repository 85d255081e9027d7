//! `GET /v1/attributions?number=…&at=…`: who held a number when a call came in.
//!
//! Every shard is asked: a number may have moved between shards, and its history stays where it was
//! written. The answer is the newest allocation that began at or before that time. Times are those
//! of the wall clock, here and in the answer.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use ringwell_core::{Millis, NumberError, PromoNumber};
use ringwell_engine::{Missing, Moment, Past, PastAllocation};
use ringwell_node::Handle;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::problem::Problem;

/// A look-up for a moment further in the future than this is a mistake: clocks differ by less.
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
    /// The pools that an overflow number serves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ring_pool_ids: Vec<u64>,
    /// Shards of other nodes that did not answer: they may have older allocations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreachable_shards: Vec<u16>,
}

#[derive(Serialize)]
struct Allocation {
    ring_pool_id: Option<u64>,
    allocated_at: String,
    locked_until: String,
    /// The time when the number was handed out again.
    next_allocated_at: Option<String>,
    /// The lockout was over, but no other visitor had the number yet.
    late: bool,
    parameters: Parameters,
}

/// Name and value in the order in which they came.
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
    let Query(wanted) = wanted
        .map_err(|_| Problem::bad_request("the query is number=8885550142, with at once or not"))?;
    let number = wanted.number.as_deref().filter(|number| !number.trim().is_empty());
    let number = parse_number(number.ok_or_else(|| {
        Problem::bad_request("number is missing: write number=8885550142 or number=%2B493012345678")
    })?)?;
    let now = Millis(u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default());
    let at = match wanted.at.as_deref() {
        None => now,
        Some(text) => parse_moment(text).ok_or_else(|| {
            Problem::bad_request(
                "at: a point in time is RFC 3339 (2026-11-21T06:30:00Z), or seconds (10 digits) \
                 or milliseconds (13 digits) since 1970",
            )
        })?,
    };
    if at > now + FUTURE_MAX {
        return Err(Problem::bad_request(format!(
            "at: {} is in the future, because it is {} now: future holders of a number are \
                unknown; an offset may be missing, as in 2026-11-21T06:30:00-05:00",
            moment(at),
            moment(now)
        )));
    }
    let directory = node.directory();
    let (past, unreachable_shards) = holder(&node, number, at).await?;
    let Past { held, missing, .. } = past;
    let overflow = directory.overflow_pools(number);
    // The number belonged to one visitor before it became shared.
    let held = held.filter(|held| overflow.is_empty() || at < held.locked_until);
    let is_known = directory.pool_by_number(number).is_some() || !overflow.is_empty();
    if held.is_none() && missing.is_none() && !is_known {
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
        unreachable_shards,
    }))
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

/// The combined state of the shards, and the shards of other nodes that could not be reached. The
/// number's owner must be among the shards that answer. With a holder, [`Missing::TooLong`] means
/// that its record could not be read in time.
pub(crate) async fn holder(
    node: &Handle,
    number: PromoNumber,
    at: Millis,
) -> Result<(Past, Vec<u16>), Problem> {
    let directory = node.directory();
    let pool = directory.pool_by_number(number).and_then(|pool| directory.lookup(pool));
    let owner = pool.map(ringwell_directory::Entry::shard);
    let (mut answers, unreachable) = ask_all(node, number, Moment::Wall(at), owner).await?;
    let later: Vec<Later> = answers.iter_mut().filter_map(|(_, past)| Later::take(past)).collect();
    // If an allocation is known without its record, its time is still known.
    let is_unread = |past: &Past| past.held.is_some() && past.missing == Some(Missing::TooLong);
    let mut certain = answers.iter().filter(|(_, past)| !is_unread(past));
    let missing = certain.find_map(|(_, past)| past.missing);
    let mut took_long = answers.iter().any(|(_, past)| past.missing == Some(Missing::TooLong));
    let held = |(shard, past): (u16, Past)| past.held.map(|held| (shard, held));
    let answers: Vec<(u16, PastAllocation)> = answers.into_iter().filter_map(held).collect();
    let is_foreign =
        |(shard, held): &&(u16, PastAllocation)| owner == Some(*shard) && held.pool.is_none();
    let held = if let Some((_, foreign)) = answers.iter().find(is_foreign) {
        // Clocks of nodes differ, but the owner knows which allocation is the newest.
        let made = record(node, number, foreign.allocated_at, owner).await?;
        took_long = made.took_long;
        Some(made.found.map_or_else(
            || foreign.clone(),
            |made| PastAllocation {
                pool: made.pool,
                params: made.params,
                // The owner only knows when the number arrived.
                allocated_wall: made.allocated_wall.min(foreign.allocated_wall),
                ..foreign.clone()
            },
        ))
    } else {
        // A shard that received a number and passed it on has no additional facts.
        let has_record = |(_, held): &&(u16, PastAllocation)| held.pool.is_some();
        let joined = |all: &mut dyn Iterator<Item = &(u16, PastAllocation)>| {
            all.map(|(_, held)| held.clone()).fold(None, |one, other| join(one, Some(other)))
        };
        let records = joined(&mut answers.iter().filter(has_record));
        records.or_else(|| joined(&mut answers.iter()))
    };
    // A missing allocation may have been later, but not while a lockout ran.
    let held = held.filter(|held| missing.is_none() || at < held.locked_until);
    let is_unread = held.as_ref().is_some_and(|held| held.pool.is_none() && took_long);
    let unread = is_unread.then_some(Missing::TooLong);
    let missing = if held.is_some() { unread } else { missing };
    let past = Past { held, missing, later: None };
    Ok((before(node, number, (at, owner), past, later).await?, unreachable))
}

/// An allocation after the one that a shard has named.
struct Later {
    /// Its time at the shard that made it.
    made_at: Millis,
    /// The time of its arrival at the shard that answers, if that is known.
    arrived: Option<Millis>,
}

impl Later {
    fn take(past: &mut Past) -> Option<Self> {
        let made_at = past.later.take()?;
        let arrived = past.held.as_mut().and_then(|held| held.next_allocated_at.take());
        Some(Self { made_at, arrived })
    }
}

/// Corrects `past` by allocations that came later, whose times only the shards that made them know:
/// if a record is gone, or its node is, the number may have been that visitor's at `at`.
async fn before(
    node: &Handle,
    number: PromoNumber,
    (at, owner): (Millis, Option<u16>),
    mut past: Past,
    later: Vec<Later>,
) -> Result<Past, Problem> {
    for Later { made_at, arrived } in later {
        let is_before = |held: &PastAllocation| {
            held.allocated_at != made_at && arrived.is_none_or(|it| it > held.allocated_wall)
        };
        if !past.held.as_ref().is_none_or(is_before) {
            continue;
        }
        let made = record(node, number, made_at, owner).await?.found;
        if made.is_none() && past.held.as_ref().is_none_or(|held| at >= held.locked_until) {
            return Ok(Past { missing: Some(Missing::NotKept), ..Past::default() });
        }
        let then = made.map(|made| made.allocated_wall).or(arrived);
        if let Some(held) = &mut past.held {
            held.next_allocated_at = held.next_allocated_at.into_iter().chain(then).min();
        }
    }
    Ok(past)
}

/// The record of an allocation at the shard that made it.
struct Made {
    found: Option<PastAllocation>,
    /// Whether a shard could not read its records in time.
    took_long: bool,
}

/// The record of the allocation that was made at `made_at` by the clock of its node.
async fn record(
    node: &Handle,
    number: PromoNumber,
    made_at: Millis,
    owner: Option<u16>,
) -> Result<Made, Problem> {
    let (there, _) = ask_all(node, number, Moment::Shard(made_at), owner).await?;
    let took_long = there.iter().any(|(_, past)| past.missing == Some(Missing::TooLong));
    let is_it = |held: &PastAllocation| held.pool.is_some() && held.allocated_at == made_at;
    Ok(Made { found: there.into_iter().filter_map(|(_, past)| past.held).find(is_it), took_long })
}

/// The answer of each shard, and the shards of other nodes that could not be reached.
async fn ask_all(
    node: &Handle,
    number: PromoNumber,
    at: Moment,
    owner: Option<u16>,
) -> Result<(Vec<(u16, Past)>, Vec<u16>), Problem> {
    let (mut answers, mut unreachable) = (Vec::new(), Vec::new());
    for (shard, answer) in node.attribution(number, at).await? {
        match answer {
            Ok(past) => answers.push((shard, past)),
            Err(reason) if node.is_own(shard) || owner == Some(shard) => {
                return Err(Problem::unavailable(reason));
            }
            Err(_) => unreachable.push(shard),
        }
    }
    Ok((answers, unreachable))
}

/// The time of the newest allocation of `number`, in its node's shard time, if a look-up reported
/// it as `wall`.
pub(super) async fn newest_at(
    node: &Handle,
    number: PromoNumber,
    wall: Millis,
) -> Result<Option<Millis>, Problem> {
    let (past, _) = holder(node, number, Millis(u64::MAX)).await?;
    let held = past.held.filter(|held| held.allocated_wall == wall);
    Ok(held.map(|held| held.allocated_at))
}

/// The newer of two; if both are the same allocation, the combination of both.
fn join(one: Option<PastAllocation>, other: Option<PastAllocation>) -> Option<PastAllocation> {
    let (Some(one), Some(other)) = (&one, &other) else { return one.or(other) };
    let is_same = one.allocated_at == other.allocated_at;
    let rank = |held: &PastAllocation| {
        let when = if is_same { Millis::ZERO } else { held.allocated_wall };
        (when, held.pool.is_some())
    };
    let (older, newer) = if rank(one) < rank(other) { (one, other) } else { (other, one) };
    let mut joined = newer.clone();
    if is_same {
        // The shard that took the number over knows how long its lockout is now.
        joined.locked_until = joined.locked_until.max(older.locked_until);
    }
    // Each shard reports the next allocation of its own.
    joined.next_allocated_at =
        [joined.next_allocated_at, older.next_allocated_at].into_iter().flatten().min();
    Some(joined)
}

/// A promo number in any usual form: `2000000000`, `200-000-0000`, `+12000000000`, `+49 30 123456`.
pub(crate) fn parse_number(text: &str) -> Result<PromoNumber, Problem> {
    let trimmed = text.trim();
    let digits: String =
        trimmed.chars().filter(|c| !matches!(c, ' ' | '-' | '.' | '(' | ')')).collect();
    let national = digits.strip_prefix('1').filter(|rest| rest.len() == 10).unwrap_or(&digits);
    let number = if trimmed.starts_with('+') || national.len() == PromoNumber::NANP_DIGITS {
        PromoNumber::parse(if trimmed.starts_with('+') { trimmed } else { national })
    } else if text.starts_with(' ') {
        // A `+` that was not encoded arrives as a space.
        PromoNumber::parse(&format!("+{trimmed}"))
    } else {
        PromoNumber::parse(&digits)
    };
    number.map_err(|error| {
        Problem::bad_request(match error {
            NumberError::Length { .. } if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let count = digits.len();
                format!("number: has ten digits, not {count} digits, or a + and its country code")
            }
            error => format!("number: {error}"),
        })
    })
}

/// A time in UTC, readable for people and programs.
fn moment(at: Millis) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

/// RFC 3339, or seconds or milliseconds since 1970.
pub(crate) fn parse_moment(text: &str) -> Option<Millis> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        let value = text.parse::<u64>().ok()?;
        return match text.len() {
            10 => Some(Millis(value * 1000)),
            13 => Some(Millis(value)),
            _ => None,
        };
    }
    // A `+` of an offset that was not encoded arrives as a space.
    let time: Timestamp = text.replace(' ', "+").parse().ok()?;
    u64::try_from(time.as_millisecond()).ok().map(Millis)
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
    }
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
