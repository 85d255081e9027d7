//! The schedule of repeated delivery attempts, and the time after which a failing endpoint is
//! disabled.

use std::time::UNIX_EPOCH;

use ringwell_core::Millis;

/// The pauses between attempts, in seconds. They allow ten attempts over 75 hours, as suggested by
/// the Standard Webhooks specification.
const WAITS_S: [u64; 9] = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
/// The maximum number of attempts.
pub const ATTEMPTS_MAX: u32 = 10;
/// The longest pause that an endpoint may request.
const RETRY_AFTER_MAX: Millis = Millis(24 * 60 * 60 * 1000);
/// A failing endpoint is disabled after this time without a successful delivery.
pub const DISABLE_AFTER: Millis = Millis(5 * 24 * 60 * 60 * 1000);

/// The time of the next attempt, if `attempts` attempts were made and the last one ended at `now`.
/// `None` if no attempts are left. `random` varies the pause by up to 10 % in either direction.
/// `retry_after` is the pause that the endpoint requested.
#[must_use]
pub fn next(
    now: Millis,
    attempts: u32,
    random: u32,
    retry_after: Option<Millis>,
) -> Option<Millis> {
    let place = usize::try_from(attempts.checked_sub(1)?).ok()?;
    let wait = Millis(WAITS_S.get(place)? * 1000);
    // The random factor of the pause, in thousandths: from 900 to 1,100.
    let spread = 900 + u64::from(random % 201);
    let wait = Millis(wait.0 * spread / 1000);
    let asked = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
    Some(now + wait.max(asked))
}

/// Parses the header `Retry-After`, which contains a number of seconds or a date.
#[must_use]
pub fn retry_after(value: &str, now: Millis) -> Option<Millis> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|digit| digit.is_ascii_digit()) {
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Millis(seconds.saturating_mul(1000)));
    }
    let at = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Millis(u64::try_from(at.as_millis()).ok()?.saturating_sub(now.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_attempts_take_75_hours() {
        let (mut at, mut attempts) = (Millis(0), 1);
        while let Some(next) = next(at, attempts, 100, None) {
            at = next;
            attempts += 1;
        }
        assert_eq!((attempts, at), (ATTEMPTS_MAX, Millis((75 * 3600 + 35 * 60 + 5) * 1000)));
        assert_eq!(next(Millis(0), 0, 0, None), None);
    }

    #[test]
    fn attempts_are_spread_by_a_tenth() {
        let waits: Vec<u64> =
            (0..1000).map(|random| next(Millis(0), 2, random, None).unwrap().0).collect();
        assert_eq!((waits.iter().min(), waits.iter().max()), (Some(&270_000), Some(&330_000)));
    }

    #[test]
    fn a_receiver_may_ask_for_a_longer_pause_of_a_day_at_most() {
        let after =
            |asked: u64| next(Millis(0), 1, 100, Some(Millis(asked * 1000))).unwrap().0 / 1000;
        assert_eq!((after(1), after(60), after(1_000_000)), (5, 60, 86_400));
        let now = Millis(1_700_000_000_000);
        assert_eq!(retry_after("120", now), Some(Millis(120_000)));
        assert_eq!(retry_after("Tue, 14 Nov 2023 22:14:20 GMT", now), Some(Millis(60_000)));
        assert_eq!(retry_after("Tue, 14 Nov 2023 22:00:00 GMT", now), Some(Millis(0)));
        assert_eq!(retry_after("Tuesday, 14-Nov-23 22:14:20 GMT", now), Some(Millis(60_000)));
        assert_eq!(retry_after("Tue Nov 14 22:14:20 2023", now), Some(Millis(60_000)));
        for far in ["Fri, 31 Dec 9999 23:59:59 GMT", "999999999999999999999999999999"] {
            assert!(retry_after(far, now) > Some(RETRY_AFTER_MAX), "{far}");
        }
        assert_eq!(retry_after("soon", now), None);
    }
}
