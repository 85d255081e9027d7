use ringwell_store::Location;

use super::*;
use crate::log::EndpointCounts;
use crate::webhook::{DeliveryResult, Made, NewEndpoint, Replay, Replayed, Rotated, Which};

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

async fn log() -> (Log, tempfile::TempDir) {
    let folder = tempfile::TempDir::new().unwrap();
    let location = Location::File(folder.path().join("calls.sqlite"));
    (Log::open(&location).await.unwrap(), folder)
}

fn to(url: &str) -> NewEndpoint {
    NewEndpoint { url: url.to_owned(), ..NewEndpoint::default() }
}

/// Writes an event in the same way as the code that changes a call.
async fn event(log: &Log, kind: &'static str, at: Millis) {
    let mut tx = log.database().write().await.unwrap();
    let data = serde_json::json!({ "at": at.0 });
    let event = crate::log::NewEvent { kind, call: None, at, data };
    crate::log::publish(&mut tx, vec![event]).await.unwrap();
    tx.commit().await.unwrap();
}

/// The time at which the next delivery is due.
async fn next_due(log: &Log) -> Option<Millis> {
    let mut tx = log.database().read().await.unwrap();
    let query = "SELECT MIN(next_ms) FROM webhook_deliveries WHERE state = 'pending'";
    let row = sqlx::query(query).fetch_one(&mut *tx).await.unwrap();
    row.try_get::<Option<i64>, _>(0).unwrap().map(from_ms)
}

/// Delivers all events that become due from `from` to `until`, in virtual time. Endpoints answer
/// with the status that `status` returns. Returns the number of delivery attempts.
async fn run(log: &Log, from: Millis, until: Millis, status: impl Fn(&Due) -> u16) -> usize {
    let (mut now, mut attempts) = (from, 0);
    while let Some(next) = next_due(log).await.filter(|next| *next < until) {
        now = now.max(next);
        let mut results = Vec::new();
        for endpoint in log.due_endpoints(now).await.unwrap() {
            for due in log.claim(&endpoint, now, 1000).await.unwrap() {
                let ended = Ended::Answered { status: status(&due), retry_after: None };
                let attempts = due.attempts + 1;
                results.push(Result {
                    endpoint: due.endpoint,
                    place: due.place,
                    attempts,
                    ended,
                    random: 100,
                });
            }
        }
        attempts += results.len();
        log.record(&results, now, now).await.unwrap();
    }
    attempts
}

/// Like [`run`], for the deliveries that are due at `now`. The worker also looks for deliveries
/// that were planned before the clock was set back.
async fn run_at(log: &Log, now: Millis, status: u16) -> usize {
    log.plan_again(now).await.unwrap();
    run(log, now, now + Millis(1), |_| status).await
}

async fn states(log: &Log, endpoint: &str) -> (bool, u64, u64) {
    let all = log.endpoints().await.unwrap();
    let one = all.into_iter().find(|one| one.id == endpoint).unwrap();
    (one.is_enabled, one.pending, one.failed)
}

#[tokio::test]
async fn a_receiver_that_is_down_for_six_days_is_disabled_and_gets_everything_by_a_replay() {
    let (log, _folder) = log().await;
    let away = log.create_endpoint(&to("https://away.example/"), Millis(0)).await.unwrap();
    let well = log.create_endpoint(&to("https://well.example/"), Millis(0)).await.unwrap();
    let status = |due: &Due| if due.url.contains("away") { 500 } else { 204 };
    // Writes one event an hour, for six days.
    for hour in 0..6 * 24 {
        let now = Millis(hour * HOUR);
        event(&log, "call.completed", now).await;
        run(&log, now, now + Millis(HOUR), status).await;
    }
    assert!(!states(&log, &away.id).await.0);
    assert_eq!(states(&log, &well.id).await, (true, 0, 0));
    let events = log.events(0, 1000).await.unwrap();
    let disabled: Vec<_> = events.iter().filter(|it| it.kind == "endpoint.disabled").collect();
    assert_eq!(disabled.len(), 1);
    assert_eq!(disabled[0].at.0 / DAY, 5);

    assert!(log.enable_endpoint(&away.id).await.unwrap());
    let replay = Replay::default();
    let now = Millis(7 * DAY);
    let count = log.replay(&away.id, &replay, now).await.unwrap();
    assert_eq!(count, Some(Replayed { count: 6 * 24 + 1, is_enabled: true }));
    assert_eq!(run(&log, now, now + Millis(HOUR), |_| 200).await, 6 * 24 + 1);
    assert_eq!(states(&log, &away.id).await, (true, 0, 0));
    assert_eq!(log.replay(&away.id, &replay, now).await.unwrap().unwrap().count, 0);
    let all = Replay { which: Which::All, ..replay };
    assert_eq!(log.replay(&well.id, &all, now).await.unwrap().unwrap().count, 6 * 24 + 1);
    assert_eq!(log.replay("we_none", &all, now).await.unwrap(), None);
}

#[tokio::test]
async fn ten_attempts_are_made_and_then_the_delivery_has_failed() {
    let (log, _folder) = log().await;
    let made = log.create_endpoint(&to("https://a.example/"), Millis(0)).await.unwrap();
    event(&log, "call.started", Millis(0)).await;
    assert_eq!(run(&log, Millis(0), Millis(30 * DAY), |_| 302).await, 10);
    assert_eq!(states(&log, &made.id).await, (true, 0, 1));
    assert_eq!(run(&log, Millis(0), Millis(30 * DAY), |_| 200).await, 0);
}

#[tokio::test]
async fn a_replay_does_not_wait_for_the_next_attempt() {
    let (log, _folder) = log().await;
    let made = log.create_endpoint(&to("https://a.example/"), Millis(0)).await.unwrap();
    event(&log, "call.started", Millis(0)).await;
    assert!(run(&log, Millis(0), Millis(4 * HOUR), |_| 500).await > 2);
    event(&log, "call.completed", Millis(4 * HOUR)).await;
    let now = Millis(4 * HOUR);
    let count = log.replay(&made.id, &Replay::default(), now).await.unwrap();
    assert_eq!(count.unwrap().count, 1, "the second event has not been sent yet");
    assert_eq!(run(&log, now, now + Millis(1), |_| 200).await, 2);
    assert_eq!(states(&log, &made.id).await, (true, 0, 0));
}

/// The guide says to repeat a replay until nothing is pending, failed or held.
#[tokio::test]
async fn a_replay_also_sends_tests_that_the_endpoint_has_not_accepted() {
    let (log, _folder) = log().await;
    let away = NewEndpoint { types: vec!["call.completed".to_owned()], ..to("https://a.example/") };
    let away = log.create_endpoint(&away, Millis(0)).await.unwrap();
    let well = log.create_endpoint(&to("https://b.example/"), Millis(1)).await.unwrap();
    for (at, status) in [(0, 503), (1, 410)] {
        log.test_endpoint(&away.id, Millis(at)).await.unwrap();
        let status = |due: &Due| if due.url.contains("//a.") { status } else { 200 };
        run(&log, Millis(at), Millis(at + 1), status).await;
    }
    assert_eq!(log.endpoints().await.unwrap()[0].held, 2);
    assert!(log.enable_endpoint(&away.id).await.unwrap());
    let now = Millis(DAY);
    let replayed = log.replay(&away.id, &Replay::default(), now).await.unwrap();
    assert_eq!(replayed.unwrap().count, 2);
    assert_eq!(run(&log, now, now + Millis(1), |_| 200).await, 2);
    assert_eq!(log.endpoints().await.unwrap()[0].held, 0);
    assert_eq!(states(&log, &away.id).await, (true, 0, 0));
    // No endpoint gets another endpoint's tests.
    let all = Replay { which: Which::All, ..Replay::default() };
    let replayed = log.replay(&well.id, &all, now).await.unwrap().unwrap();
    let events = log.events(0, 100).await.unwrap();
    let others = events.iter().filter(|it| it.kind != "webhook.test").count();
    assert_eq!(replayed.count, others as u64);
}

#[tokio::test]
async fn a_removed_endpoint_is_disabled_at_once() {
    let (log, _folder) = log().await;
    let made = log.create_endpoint(&to("https://a.example/"), Millis(0)).await.unwrap();
    event(&log, "call.started", Millis(0)).await;
    assert_eq!(run(&log, Millis(0), Millis(DAY), |_| 410).await, 1);
    assert!(!states(&log, &made.id).await.0);
    assert_eq!(log.endpoints().await.unwrap()[0].failing_since, Some(Millis(0)));
    event(&log, "call.answered", Millis(DAY)).await;
    assert_eq!(run(&log, Millis(DAY), Millis(2 * DAY), |_| 200).await, 0);
    assert_eq!(log.endpoints().await.unwrap()[0].held, 3);
    assert_eq!(log.count_endpoints().await.unwrap().disabled, 1);
    // A replay sends the events that were held back, but later events are still held.
    let replayed = log.replay(&made.id, &Replay::default(), Millis(2 * DAY)).await.unwrap();
    assert_eq!(replayed, Some(Replayed { count: 3, is_enabled: false }));
    assert_eq!(run(&log, Millis(2 * DAY), Millis(3 * DAY), |_| 200).await, 3);
    event(&log, "call.completed", Millis(3 * DAY)).await;
    assert_eq!(run(&log, Millis(3 * DAY), Millis(4 * DAY), |_| 200).await, 0);
    assert!(!states(&log, &made.id).await.0);
}

#[tokio::test]
async fn an_endpoint_gets_the_types_that_it_selected() {
    let (log, _folder) = log().await;
    let types = vec!["call.completed".to_owned()];
    let made = NewEndpoint { types, ..to("https://a.example/") };
    let made = log.create_endpoint(&made, Millis(0)).await.unwrap();
    event(&log, "call.started", Millis(0)).await;
    event(&log, "call.completed", Millis(0)).await;
    assert_eq!(run(&log, Millis(0), Millis(1), |_| 200).await, 1);
    assert!(log.test_endpoint(&made.id, Millis(1)).await.unwrap().is_some());
    assert_eq!(run(&log, Millis(1), Millis(2), |_| 200).await, 1);
    let all = Replay { which: Which::All, ..Replay::default() };
    assert_eq!(log.replay(&made.id, &all, Millis(2)).await.unwrap().unwrap().count, 1);
    assert_eq!(run(&log, Millis(2), Millis(3), |_| 200).await, 1);
    let replay = Replay { types: vec!["call.started".to_owned()], ..all };
    assert_eq!(log.replay(&made.id, &replay, Millis(3)).await.unwrap().unwrap().count, 1);
    assert!(log.remove_endpoint(&made.id).await.unwrap());
    assert!(!log.remove_endpoint(&made.id).await.unwrap());
    assert_eq!(next_due(&log).await, None);
}

#[tokio::test]
async fn after_a_rotation_two_secrets_sign_for_a_day() {
    let (log, _folder) = log().await;
    let made = log.create_endpoint(&to("https://a.example/"), Millis(0)).await.unwrap();
    for at in 0..3 {
        event(&log, "call.started", Millis(at)).await;
    }
    let new = rotate(&log, &made.id, 0).await;
    let secrets = async |now| log.claim(&made.id, Millis(now), 1).await.unwrap()[0].secrets.clone();
    assert_eq!(secrets(DAY - 1).await, [new.secret.clone(), made.secret.clone()]);
    assert_eq!(secrets(DAY).await, std::slice::from_ref(&new.secret));
    let due = &log.claim(&made.id, Millis(DAY), 1).await.unwrap()[0];
    assert!(!format!("{due:?}").contains("whsec"));
}

async fn rotate(log: &Log, id: &str, at: u64) -> Made {
    match log.rotate_secret(id, Millis(at)).await.unwrap() {
        Rotated::Made(made) => made,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn no_rotation_ends_a_secret_before_its_day() {
    let (log, _folder) = log().await;
    let made = log.create_endpoint(&to("https://a.example/"), Millis(0)).await.unwrap();
    for at in 0..4 {
        event(&log, "call.started", Millis(at)).await;
    }
    let second = rotate(&log, &made.id, 100).await;
    let third = rotate(&log, &made.id, 5_000).await;
    let secrets = async |now| log.claim(&made.id, Millis(now), 1).await.unwrap()[0].secrets.clone();
    let all = [third.secret.clone(), second.secret.clone(), made.secret.clone()];
    assert_eq!(secrets(DAY + 99).await, all);
    let refused = log.rotate_secret(&made.id, Millis(DAY + 99)).await.unwrap();
    assert_eq!(refused, Rotated::TooSoon(Millis(DAY + 100)));
    assert_eq!(secrets(DAY + 100).await, all[..2]);
    let fourth = rotate(&log, &made.id, DAY + 100).await;
    let all = [fourth.secret, third.secret.clone(), second.secret];
    assert_eq!(secrets(DAY + 4_999).await, all);
    let unknown = log.rotate_secret("we_none", Millis(0)).await.unwrap();
    assert_eq!(unknown, Rotated::Unknown);
}

#[tokio::test]
async fn a_failing_endpoint_shows_why_until_it_accepts_an_event() {
    let (log, _folder) = log().await;
    let made = log.create_endpoint(&to("https://a.example/"), Millis(0)).await.unwrap();
    event(&log, "call.started", Millis(0)).await;
    let answered = |status| Ended::Answered { status, retry_after: None };
    let failed = Ended::Failed("TLS: the certificate has expired".to_owned());
    let all = [
        (failed, Some("TLS: the certificate has expired")),
        (answered(503), Some("the endpoint answered 503")),
        (answered(302), Some("the endpoint answered 302; redirects are not followed")),
        (answered(204), None),
    ];
    for (attempts, (ended, reason)) in (1..).zip(all) {
        let (endpoint, place) = (made.id.clone(), 1);
        let result = DeliveryResult { endpoint, place, attempts, ended, random: 0 };
        log.record(&[result], Millis(1), Millis(1)).await.unwrap();
        assert_eq!(log.endpoints().await.unwrap()[0].reason.as_deref(), reason);
        let EndpointCounts { accepting, failing, .. } = log.count_endpoints().await.unwrap();
        assert_eq!((accepting, failing), if reason.is_some() { (0, 1) } else { (1, 0) });
    }
}

#[tokio::test]
async fn a_claimed_delivery_is_not_claimed_again_before_its_lease_ends() {
    let (log, _folder) = log().await;
    let made = log.create_endpoint(&to("https://a.example/"), Millis(0)).await.unwrap();
    event(&log, "call.started", Millis(0)).await;
    let taken = async |now| log.claim(&made.id, Millis(now), 10).await.unwrap().len();
    assert_eq!((taken(0).await, taken(0).await, taken(LEASE.0 - 1).await), (1, 0, 0));
    // No result was recorded, as if the worker that claimed the delivery had been killed. The lease
    // has now expired.
    let again = log.claim(&made.id, LEASE, 10).await.unwrap();
    assert_eq!((again.len(), again[0].attempts), (1, 0));
}

#[tokio::test]
async fn deliveries_that_were_refused_while_the_clock_was_ahead_are_retried_once_it_is_right() {
    for ahead in [HOUR, 2 * DAY] {
        let (log, _folder) = log().await;
        let made = log.create_endpoint(&to("https://a.example/"), Millis(0)).await.unwrap();
        event(&log, "call.started", Millis(0)).await;
        // One delivery had failed before, one fails while the clock is ahead, and one was not
        // attempted yet.
        assert_eq!(run_at(&log, Millis(1), 500).await, 1);
        let wrong = Millis(ahead + 6_000);
        event(&log, "call.answered", wrong).await;
        assert_eq!(run_at(&log, wrong, 500).await, 2);
        event(&log, "call.completed", wrong).await;
        let now = Millis(7_000);
        assert_eq!(run_at(&log, now, 500).await, 3, "{ahead} ms ahead");
        assert_eq!(run_at(&log, now, 500).await, 0, "the pauses are kept");
        // From now on, the pauses follow the schedule.
        assert_eq!(run_at(&log, now + Millis(5_500), 500).await, 1);
        assert_eq!(run_at(&log, now + Millis(2 * HOUR), 200).await, 3);
        assert_eq!(states(&log, &made.id).await, (true, 0, 0));
    }
}

/// After a wrong clock is corrected, deliveries are sent even if they were paused, leased or
/// replayed while the clock was wrong.
#[tokio::test]
async fn no_lease_pause_or_replay_of_a_wrong_clock_lasts_longer_than_the_clock_is_wrong() {
    let (log, _folder) = log().await;
    let made = log.create_endpoint(&to("https://a.example/"), Millis(0)).await.unwrap();
    for at in 0..3 {
        event(&log, "call.started", Millis(at)).await;
    }
    let failed = |place, retry_after| Result {
        endpoint: made.id.clone(),
        place,
        attempts: 1,
        ended: Ended::Answered { status: 503, retry_after },
        random: 100,
    };
    let asked = failed(1, Some(Millis(DAY)));
    log.record(&[asked, failed(2, None), failed(3, None)], Millis(10), Millis(10)).await.unwrap();
    assert_eq!(run_at(&log, Millis(20 * HOUR), 503).await, 2, "the pause that was asked for");
    log.record(&[failed(1, Some(Millis(DAY)))], Millis(3 * DAY), Millis(3 * DAY)).await.unwrap();
    // The second delivery is claimed while the clock is ahead, and the third is to be replayed.
    assert_eq!(log.claim(&made.id, Millis(3 * DAY), 1).await.unwrap()[0].place, 2);
    let replay = Replay { since: Some(Millis(2)), ..Replay::default() };
    let replayed = log.replay(&made.id, &replay, Millis(4 * DAY)).await.unwrap();
    assert_eq!(replayed.unwrap().count, 1);
    assert_eq!(run_at(&log, Millis(21 * HOUR), 200).await, 3);
    assert_eq!(states(&log, &made.id).await, (true, 0, 0));
}

/// The clocks of several servers on one database differ a little. A lease from a server whose clock
/// is slightly ahead is respected.
#[tokio::test]
async fn a_lease_of_a_server_whose_clock_is_a_little_ahead_is_respected() {
    let (log, _folder) = log().await;
    let made = log.create_endpoint(&to("https://a.example/"), Millis(0)).await.unwrap();
    event(&log, "call.started", Millis(5_000)).await;
    assert_eq!(log.claim(&made.id, Millis(9_000), 10).await.unwrap().len(), 1);
    assert_eq!(run_at(&log, Millis(1_000), 200).await, 0);
    assert_eq!(run_at(&log, Millis(28_999), 200).await, 0);
    assert_eq!(run_at(&log, Millis(29_000), 200).await, 1);
}

#[tokio::test]
async fn a_clock_that_leaps_ahead_disables_no_endpoint_and_delays_no_later_disabling() {
    let (log, _folder) = log().await;
    let made = log.create_endpoint(&to("https://a.example/"), Millis(0)).await.unwrap();
    event(&log, "call.started", Millis(0)).await;
    let ended = Ended::Answered { status: 503, retry_after: None };
    let (endpoint, random) = (made.id.clone(), 100);
    let failed = Result { endpoint, place: 1, attempts: 1, ended, random };
    let since = async || log.endpoints().await.unwrap()[0].failing_since;
    let record = async |now: u64, age_time: u64| {
        log.record(std::slice::from_ref(&failed), Millis(now), Millis(age_time)).await.unwrap();
    };
    record(1_000, 1_000).await;
    record(100 * DAY, 2_000).await;
    assert_eq!((states(&log, &made.id).await.0, since().await), (true, Some(Millis(1_000))));
    log.enable_endpoint(&made.id).await.unwrap();
    // The failures begin while the clock is ahead.
    record(100 * DAY, 3_000).await;
    record(4_000, 4_000).await;
    assert_eq!(since().await, Some(Millis(4_000)));
    record(5 * DAY + 3_999, 5 * DAY + 3_999).await;
    assert!(states(&log, &made.id).await.0);
    record(5 * DAY + 4_000, 5 * DAY + 4_000).await;
    assert!(!states(&log, &made.id).await.0);
}

#[tokio::test]
async fn a_rotation_while_the_clock_was_ahead_ends_with_the_correction_and_blocks_no_other() {
    let (log, _folder) = log().await;
    let made = log.create_endpoint(&to("https://a.example/"), Millis(0)).await.unwrap();
    event(&log, "call.started", Millis(0)).await;
    rotate(&log, &made.id, 50 * DAY).await;
    let second = rotate(&log, &made.id, 50 * DAY + 1).await;
    let secrets = async |now| log.claim(&made.id, Millis(now), 1).await.unwrap()[0].secrets.clone();
    assert_eq!(secrets(1).await, std::slice::from_ref(&second.secret));
    let third = rotate(&log, &made.id, 1).await;
    assert_eq!(secrets(LEASE.0 + 1).await, [third.secret, second.secret]);
}
