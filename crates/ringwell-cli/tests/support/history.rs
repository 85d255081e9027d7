//! Checks the answers that clients received against the server's guarantees. Uses none of the
//! server's code.
//!
//! The exact time of an allocation is unknown: it is between the first byte of the request and the
//! last byte of the answer. There are no false alarms: events are reported only if they violate a
//! guarantee, whatever their exact times were.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::batch::{Ask, Row};
use crate::support::site::Pool;

/// The maximum difference between the server's readings of the wall clock and the test's, in
/// milliseconds.
const CLOCK_SLACK_MS: u64 = 5;

/// An allocation that a client received: a number that is not an overflow number.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) number: u64,
    pub(crate) pool: u64,
    /// The id that the client put into the parameters.
    pub(crate) id: String,
    /// The time just before the first byte was sent, in nanoseconds of a monotonic clock.
    pub(crate) invoked_ns: u64,
    /// The time just after the last byte arrived, on the same clock.
    pub(crate) returned_ns: u64,
    /// The same two times on the wall clock, in milliseconds since 1970.
    pub(crate) invoked_ms: u64,
    pub(crate) returned_ms: u64,
}

/// Finds pairs of events in which two rows got the same number within its lockout.
pub(crate) fn doubles(events: &[Event], pools: &BTreeMap<u64, Pool>) -> Vec<String> {
    let mut by_number: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
    for event in events {
        by_number.entry(event.number).or_default().push(event);
    }
    let mut found = Vec::new();
    for same in by_number.values_mut() {
        same.sort_by_key(|event| event.invoked_ns);
        for (place, first) in same.iter().enumerate() {
            let lockout = u64::try_from(pools[&first.pool].lifetime.as_nanos()).unwrap();
            for second in &same[place + 1..] {
                if second.invoked_ns >= first.invoked_ns + lockout {
                    break;
                }
                // If the two events overlap, their order is unknown. They are a violation only if
                // neither order is valid.
                let forward = second.returned_ns.saturating_sub(first.invoked_ns);
                let backward = first.returned_ns.saturating_sub(second.invoked_ns);
                if forward < lockout && backward < lockout {
                    found.push(describe_double(first, second, lockout));
                }
            }
        }
    }
    found
}

fn describe_double(first: &Event, second: &Event, lockout_ns: u64) -> String {
    let ms = |ns: u64| ns / 1_000_000;
    let describe = |event: &Event| {
        let Event { pool, id, invoked_ns, returned_ns, .. } = event;
        let (from, to) = (ms(*invoked_ns), ms(*returned_ns));
        format!("to {id:?} (pool {pool}) between {from} ms and {to} ms")
    };
    format!(
        "{} went {}, and again {}, within its lockout of {} ms",
        first.number,
        describe(first),
        describe(second),
        ms(lockout_ns)
    )
}

/// Finds faults in the rows of one answered batch.
pub(crate) fn rows(asks: &[Ask], rows: &[Row], pools: &BTreeMap<u64, Pool>) -> Vec<String> {
    if asks.len() != rows.len() {
        return vec![format!("{} rows were requested, {} returned", asks.len(), rows.len())];
    }
    let mut wrong = Vec::new();
    for (place, (ask, row)) in asks.iter().zip(rows).enumerate() {
        let pool = &pools[&ask.pool];
        let range = pool.first..pool.first + pool.numbers;
        if ask.id != row.id {
            wrong.push(format!("row {place} was {:?}, and {:?} was returned", ask.id, row.id));
        } else if row.overflow && row.number != pool.overflow {
            wrong.push(format!("{:?} got {} as overflow of pool {}", row.id, row.number, pool.id));
        } else if !row.overflow && !range.contains(&row.number) {
            wrong.push(format!("{:?} got {}, not of pool {}", row.id, row.number, pool.id));
        }
    }
    wrong
}

/// Returns a description of the fault if the server's attribution of an event is wrong.
pub(crate) fn attributed(
    event: &Event,
    found: &Value,
    pools: &BTreeMap<u64, Pool>,
) -> Option<String> {
    let Event { number, pool, id, invoked_ms, returned_ms, .. } = event;
    let wrong = |what: &str| {
        Some(format!(
            "{number} went to {id:?} (pool {pool}) between {invoked_ms} and {returned_ms}, \
             but {what}: {found}"
        ))
    };
    if found["outcome"] != "allocated" {
        return wrong("it is lost");
    }
    if found["parameters"]["id"] != id.as_str() {
        return wrong("it is attributed to another row");
    }
    if found["ring_pool_id"] != *pool {
        return wrong("another pool is named");
    }
    let (Some(at), Some(until)) = (moment(&found["allocated_at"]), moment(&found["locked_until"]))
    else {
        return wrong("its times cannot be read");
    };
    if at + CLOCK_SLACK_MS < *invoked_ms || at > returned_ms + CLOCK_SLACK_MS {
        return wrong("at another time");
    }
    if u128::from(until.saturating_sub(at)) < pools[pool].lifetime.as_millis() {
        return wrong("its lockout is too short");
    }
    None
}

/// Converts an RFC 3339 time to milliseconds since 1970.
fn moment(text: &Value) -> Option<u64> {
    let time: jiff::Timestamp = text.as_str()?.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn pools() -> BTreeMap<u64, Pool> {
        [Pool::new(1, 10, Duration::from_secs(2)), Pool::new(2, 10, Duration::from_secs(2))]
            .into_iter()
            .map(|pool| (pool.id, pool))
            .collect()
    }

    fn event(id: &str, number: u64, invoked_ms: u64, returned_ms: u64) -> Event {
        Event {
            number,
            pool: 1,
            id: id.to_owned(),
            invoked_ns: invoked_ms * 1_000_000,
            returned_ns: returned_ms * 1_000_000,
            invoked_ms,
            returned_ms,
        }
    }

    #[test]
    fn a_number_that_went_out_twice_within_its_lockout_is_found() {
        let twice = [event("b", 7, 1_000, 1_900), event("x", 8, 0, 1), event("a", 7, 0, 1)];
        let found = doubles(&twice, &pools());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("7 went to \"a\" (pool 1) between 0 ms and 1 ms"),
            "{found:?}"
        );
    }

    #[test]
    fn every_pair_is_compared_and_not_only_neighbours() {
        // The second event conflicts with neither of the others, because its interval is wide. The
        // first and the third event conflict.
        let three = [event("a", 7, 0, 1), event("b", 7, 1, 9_000), event("c", 7, 500, 600)];
        assert_eq!(doubles(&three, &pools()).len(), 1);
    }

    #[test]
    fn numbers_that_may_have_waited_long_enough_are_not_reported() {
        let late = [event("a", 7, 0, 1), event("b", 7, 100, 2_000), event("c", 7, 4_000, 4_001)];
        assert_eq!(doubles(&late, &pools()), Vec::<String>::new());
        let unsure_order = [event("a", 7, 0, 5_000), event("b", 7, 100, 200)];
        assert_eq!(doubles(&unsure_order, &pools()), Vec::<String>::new());
    }

    #[test]
    fn rows_in_the_wrong_order_or_of_the_wrong_pool_are_found() {
        let ask = |id: &str| Ask { pool: 1, id: id.to_owned() };
        let row = |id: &str, number, overflow| Row { id: id.to_owned(), number, overflow };
        let check = |ids: [Row; 2]| rows(&[ask("a"), ask("b")], &ids, &pools()).len();
        let (n, of) = (pools()[&1].first, pools()[&1].overflow);
        assert_eq!(check([row("a", n, false), row("b", of, true)]), 0);
        assert_eq!(check([row("b", n, false), row("a", n + 1, false)]), 2, "wrong order");
        assert_eq!(check([row("a", n + 10, false), row("b", of, true)]), 1, "not of the pool");
        assert_eq!(check([row("a", of, false), row("b", of, true)]), 1, "overflow as number");
        assert_eq!(check([row("a", n, false), row("b", of + 1, true)]), 1, "foreign overflow");
        assert_eq!(rows(&[ask("a")], &[], &pools()).len(), 1, "a row is missing");
    }

    #[test]
    fn a_lost_allocation_is_found() {
        let held = event("a", 7, 1_000, 1_010);
        let good = json!({
            "outcome": "allocated", "ring_pool_id": 1, "parameters": {"id": "a"},
            "allocated_at": "1970-01-01T00:00:01.005Z", "locked_until": "1970-01-01T00:00:03.005Z",
        });
        assert_eq!(attributed(&held, &good, &pools()), None);
        let bad = [
            ("outcome", json!("none")),
            ("parameters", json!({"id": "b"})),
            ("parameters", json!({})),
            ("ring_pool_id", json!(2)),
            ("allocated_at", json!("1970-01-01T00:00:00.900Z")),
            ("allocated_at", json!("1970-01-01T00:00:01.100Z")),
            ("locked_until", json!("1970-01-01T00:00:02.900Z")),
            ("locked_until", json!(null)),
        ];
        for (field, value) in bad {
            let mut found = good.clone();
            found[field] = value;
            assert!(attributed(&held, &found, &pools()).is_some(), "{found}");
        }
    }
}
