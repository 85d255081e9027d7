//! Runs the call log's statements on a real PostgreSQL server.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "../../ringwell-store/tests/rig/mod.rs"]
#[allow(dead_code, reason = "it has helpers for tests of the directory, too")]
mod rig;

use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use rig::{Rig, Server};
use ringwell_calls::log::{
    CallChange, CallDetail, OutcomeCursor, OutcomeFilter, OutcomeRow, Recorded, ReportedEvent,
    Whom, Writer,
};
use ringwell_calls::webhook::{
    DeliveryResult, Due, Ended, NewEndpoint, Replay, Rotated, Transport, Which, Worker,
};
use ringwell_calls::{Attribution, CallEvent, CallFilter, Caller, Cursor, EventKind, Log, Outcome};
use ringwell_core::Millis;
use ringwell_store::Location;
use tokio::runtime::Builder;

fn change(call: &str, at: u64, kind: EventKind) -> CallChange {
    let event = CallEvent { key: kind.name().to_owned(), kind, at: Millis(at), talk_seconds: None };
    CallChange {
        account: "main".to_owned(),
        provider: "twilio".to_owned(),
        provider_call: call.to_owned(),
        events: vec![ReportedEvent { event, received: Millis(at) }],
        number: Some("+18005551212".to_owned()),
        caller: Some(Caller::E164("+14155551234".to_owned())),
        attribution: Some(Attribution::of(Millis(at), &[], &ringwell_calls::History::default())),
        ..CallChange::default()
    }
}

/// During a restore, tables may be missing. A report waits until they exist.
#[tokio::test]
async fn a_report_waits_as_long_as_a_table_is_missing() {
    let server = Server::start();
    let rig = Rig::on(&server);
    let log = Log::open(&rig.location).await.unwrap();
    let writer = Writer::start(log.clone(), || Millis(9_000), || ());
    let Location::Url(url) = &rig.location else { unreachable!() };
    let psql = |statement: &str| {
        let done = std::process::Command::new("psql").args([url, "-qc", statement]).status();
        assert!(done.unwrap().success(), "{statement}");
    };
    psql("ALTER TABLE calls RENAME TO calls_later");
    let stored = writer.submit(change("CA1", 1_000, EventKind::Started)).unwrap();
    tokio::pin!(stored);
    let early = tokio::time::timeout(Duration::from_secs(2), &mut stored).await;
    assert!(early.is_err(), "{early:?}");
    psql("ALTER TABLE calls_later RENAME TO calls");
    stored.await.unwrap();
    assert_eq!(log.calls(&CallFilter::default(), None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn calls_events_and_webhooks_are_kept_in_postgresql() {
    let log = Log::open(&Rig::postgres().location).await.unwrap();
    let writer = Writer::start(log.clone(), || Millis(9_000), || ());
    let endpoint = NewEndpoint { url: "https://a.example/".to_owned(), ..NewEndpoint::default() };
    let endpoint = log.create_endpoint(&endpoint, Millis(0)).await.unwrap().id;
    for call in ["CA1", "CA2"] {
        writer.submit(change(call, 1_000, EventKind::Started)).unwrap().await.unwrap();
        let end = change(call, 5_000, EventKind::Ended(Some(Outcome::Busy)));
        writer.submit(end).unwrap().await.unwrap();
    }
    let filter = CallFilter {
        number: Some("+18005551212".to_owned()),
        outcome: Some(Outcome::Busy),
        ..CallFilter::default()
    };
    let first = log.calls(&filter, None, 1).await.unwrap().remove(0);
    let rest = log.calls(&filter, Some(&Cursor::after(&first)), 10).await.unwrap();
    assert_eq!(rest.len(), 1);
    assert!(log.unattributed(10).await.unwrap().is_empty());
    assert_eq!(log.events(0, 10).await.unwrap().len(), 4);
    assert_eq!(log.due_endpoints(Millis(9_000)).await.unwrap(), std::slice::from_ref(&endpoint));
    assert_eq!(log.plan_again(Millis(9_000)).await.unwrap(), 0);
    for due in log.claim(&endpoint, Millis(9_000), 10).await.unwrap() {
        let ended = Ended::Answered { status: 500, retry_after: None };
        let (endpoint, place) = (due.endpoint, due.place);
        let result = DeliveryResult { endpoint, place, attempts: 10, ended, random: 0 };
        log.record(&[result], Millis(9_000), Millis(9_000)).await.unwrap();
    }
    assert!(log.due_endpoints(Millis(1 << 50)).await.unwrap().is_empty());
    assert_eq!(log.endpoints().await.unwrap()[0].failed, 4);
    let replay = Replay { types: vec!["call.completed".to_owned()], ..Replay::default() };
    assert_eq!(log.replay(&endpoint, &replay, Millis(9_000)).await.unwrap().unwrap().count, 2);
    let all = Replay { which: Which::All, ..Replay::default() };
    assert_eq!(log.replay(&endpoint, &all, Millis(9_000)).await.unwrap().unwrap().count, 4);
    assert!(log.test_endpoint(&endpoint, Millis(9_000)).await.unwrap().is_some());
    for _ in 0..2 {
        let rotated = log.rotate_secret(&endpoint, Millis(9_000)).await.unwrap();
        assert!(matches!(rotated, Rotated::Made(_)), "{rotated:?}");
    }
    let rotated = log.rotate_secret(&endpoint, Millis(9_001)).await.unwrap();
    assert_eq!(rotated, Rotated::TooSoon(Millis(9_000 + 86_400_000)));
    let sale = OutcomeRow {
        kind: "sale".to_owned(),
        value: None,
        currency: None,
        at: Millis(6_000),
        recorded_at: Millis(9_000),
        external_id: "order-7".to_owned(),
    };
    let outcomes = [(first.id.clone(), sale.clone())];
    let recorded = log.record_outcomes(&outcomes, Millis(9_000)).await.unwrap();
    assert_eq!(recorded, [Recorded::New(Millis(9_000))]);
    let cursor = OutcomeCursor::after("~", &sale);
    let listed = log.outcomes(&OutcomeFilter::default(), Some(&cursor), 10).await.unwrap();
    assert_eq!(listed[0].0, sale);
    let detail = log.call(&first.id).await.unwrap().unwrap();
    assert_eq!((detail.timeline.len(), detail.outcomes.len()), (2, 1));
    assert_eq!(log.caller_key("2026-11").await.unwrap(), log.caller_key("2026-11").await.unwrap());
    assert_eq!(log.erase(&Whom::Caller(first.caller), Millis(9_000)).await.unwrap().calls, 2);
    assert_eq!(log.redact_before(Millis(9_000), Millis(9_000)).await.unwrap(), 0);
    let events = log.events(0, 100).await.unwrap().len() as u64;
    let removed = log.remove_before(Millis(9_000), Millis(9_500)).await.unwrap();
    assert!(removed > 2 && removed <= 2 + events, "{removed}");
    assert!(log.events(0, 10).await.unwrap().is_empty());
    assert!(log.enable_endpoint(&endpoint).await.unwrap());
    assert!(log.remove_endpoint(&endpoint).await.unwrap());
    log.close().await;
}

/// A transport that records the requested deliveries and takes a while for each.
#[derive(Clone, Default)]
struct Noting(Arc<Mutex<Vec<String>>>);

impl Transport for Noting {
    async fn deliver(&self, due: Due) -> Ended {
        self.0.lock().unwrap().push(due.event);
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ended::Answered { status: 200, retry_after: None }
    }
}

#[tokio::test]
async fn two_servers_on_one_database_deliver_each_event_once() {
    let location = Rig::postgres().location;
    let logs = [Log::open(&location).await.unwrap(), Log::open(&location).await.unwrap()];
    let writer = Writer::start(logs[0].clone(), || Millis(9_000), || ());
    for name in ["a", "b", "c"] {
        let url = format!("https://{name}.example/");
        let endpoint = NewEndpoint { url, ..NewEndpoint::default() };
        logs[0].create_endpoint(&endpoint, Millis(0)).await.unwrap();
    }
    for call in 0..50 {
        writer.submit(change(&format!("CA{call}"), 1_000, EventKind::Started)).unwrap();
    }
    writer.finish().await;
    let sent = Noting::default();
    let workers = logs.map(|log| {
        let worker = Worker::new(log, sent.clone(), Arc::default());
        tokio::spawn(worker.run())
    });
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while sent.0.lock().unwrap().len() < 150 && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Gives the workers time to read the log again: if a delivery were still due, they would send
    // it a second time.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let all = sent.0.lock().unwrap().clone();
    let mut counts = std::collections::BTreeMap::new();
    for event in &all {
        *counts.entry(event).or_insert(0) += 1;
    }
    assert_eq!((all.len(), counts.len()), (150, 50));
    assert!(counts.values().all(|count| *count == 3), "{counts:?}");
    for worker in workers {
        worker.abort();
    }
}

/// Providers send several reports at the same moment, and a proxy may send them to different nodes.
/// None of them may be lost.
#[test]
fn reports_that_reach_two_nodes_at_once_are_all_in_the_call() {
    const CALLS: usize = 200;
    let (rig, together) = (Rig::postgres(), Barrier::new(2));
    let report = |reports: [(u64, EventKind); 2]| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let log = Log::open(&rig.location).await.unwrap();
            let writer = Writer::start(log.clone(), || Millis(9_000), || ());
            for call in 0..CALLS {
                for (at, kind) in reports {
                    together.wait();
                    let change = change(&format!("CA{call}"), at, kind);
                    // The result is ignored, because the assertions below find lost changes.
                    let _ = writer.submit(change).unwrap().await;
                }
            }
            together.wait();
            let mut whole = Vec::new();
            for call in log.calls(&CallFilter::default(), None, 1_000).await.unwrap() {
                whole.push(log.call(&call.id).await.unwrap().unwrap());
            }
            whole
        })
    };
    let ended = EventKind::Ended(Some(Outcome::Answered));
    let calls = std::thread::scope(|scope| {
        let other = scope.spawn(|| report([(1_500, EventKind::Ringing), (5_000, ended)]));
        report([(1_000, EventKind::Started), (2_000, EventKind::Answered)]);
        other.join().unwrap()
    });
    assert_eq!(calls.len(), CALLS);
    for CallDetail { call, timeline, events, .. } in calls {
        assert_eq!((call.facts.started_at(), timeline.len()), (Millis(1_000), 4), "{call:?}");
        assert_eq!(call.facts.answered_at(), Some(Millis(2_000)), "{call:?}");
        assert_eq!(call.facts.ended_at(), Some(Millis(5_000)), "{call:?}");
        assert_eq!(events.iter().filter(|it| it.kind == "call.completed").count(), 1, "{call:?}");
    }
}

#[tokio::test]
async fn a_database_that_is_away_at_the_start_is_used_when_it_is_back() {
    let server = Server::start();
    let rig = Rig::on(&server);
    let [socket, hidden] = [".s.PGSQL.5432", "hidden"].map(|name| server.folder.join(name));
    std::fs::rename(&socket, &hidden).unwrap();
    let log = Log::open_or_later(&rig.location).await.unwrap();
    let writer = Writer::start(log.clone(), || Millis(9_000), || ());
    let stored = writer.submit(change("CA1", 1_000, EventKind::Started)).unwrap();
    assert!(log.calls(&CallFilter::default(), None, 10).await.is_err());
    std::fs::rename(&hidden, &socket).unwrap();
    stored.await.unwrap();
    assert_eq!(log.calls(&CallFilter::default(), None, 10).await.unwrap().len(), 1);
}

/// The API returns the reason to its clients.
#[tokio::test]
async fn a_refused_change_has_a_reason_for_clients() {
    let rig = Rig::postgres();
    let log = Log::open(&rig.location).await.unwrap();
    let Location::Url(url) = &rig.location else { unreachable!() };
    let psql = |statement: &str| {
        let done = std::process::Command::new("psql").args([url, "-qc", statement]).status();
        assert!(done.unwrap().success(), "{statement}");
    };
    let record = async || log.record_outcomes(&[], Millis(9_000)).await.unwrap_err().for_clients();
    psql("ALTER TABLE call_counter RENAME COLUMN results_from_ms TO missing");
    assert!(record().await.contains("a table or a column of the call log is missing"));
    psql("ALTER TABLE call_counter RENAME COLUMN missing TO results_from_ms");
    psql(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', \
         current_database()); END $$",
    );
    let log = Log::open(&rig.location).await.unwrap();
    let refused = log.end_period(Millis(9_000), Millis(9_000)).await.unwrap_err().for_clients();
    assert!(refused.contains("is read-only"), "{refused}");
}

/// A large file of results, on a slow database, can take longer than the limit for locks.
#[tokio::test]
async fn the_end_of_a_period_waits_for_a_long_transaction() {
    let rig = Rig::postgres();
    let log = Log::open(&rig.location).await.unwrap();
    let Location::Url(url) = &rig.location else { unreachable!() };
    let hold = "BEGIN; SELECT * FROM call_counter FOR UPDATE; SELECT pg_sleep(12); COMMIT";
    let mut holder = std::process::Command::new("psql").args([url, "-qAtc", hold]).spawn().unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let refused = log.record_outcomes(&[], Millis(9_000));
    let (refused, ended) = tokio::join!(refused, log.end_period(Millis(9_000), Millis(9_000)));
    assert!(refused.unwrap_err().for_clients().contains("takes too long"));
    assert!(ended.unwrap());
    assert!(holder.wait().unwrap().success());
}

/// Two servers whose clocks differ record results, while a third exports consecutive periods.
#[test]
fn consecutive_periods_contain_each_result_once() {
    const RESULTS: usize = 150;
    let clock = |offset: u64| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Millis(u64::try_from(now.unwrap().as_millis()).unwrap() - 1_000 + offset)
    };
    let rig = Rig::postgres();
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let call = runtime().block_on(async {
        let log = Log::open(&rig.location).await.unwrap();
        let writer = Writer::start(log.clone(), || Millis(9_000), || ());
        writer.submit(change("CA1", 1_000, EventKind::Started)).unwrap().await.unwrap().call
    });
    let record = |server: usize, offset: u64| {
        runtime().block_on(async {
            let log = Log::open(&rig.location).await.unwrap();
            for result in 0..RESULTS {
                let at = clock(offset);
                // Part of each request: parsing the lines, and waiting for the database.
                tokio::time::sleep(Duration::from_millis(5)).await;
                let outcome = OutcomeRow {
                    kind: "sale".to_owned(),
                    value: None,
                    currency: None,
                    at,
                    recorded_at: at,
                    external_id: format!("{server}-{result}"),
                };
                log.record_outcomes(&[(call.clone(), outcome)], at).await.unwrap();
            }
        });
    };
    let mut found = Vec::new();
    std::thread::scope(|scope| {
        let servers = [(1, 970), (2, 1_030)];
        let servers = servers.map(|(server, offset)| scope.spawn(move || record(server, offset)));
        runtime().block_on(async {
            let log = Log::open(&rig.location).await.unwrap();
            let (mut since, mut is_last) = (Millis(0), false);
            while !is_last {
                is_last = servers.iter().all(std::thread::ScopedJoinHandle::is_finished);
                let until = clock(if is_last { 2_000 } else { 1_000 });
                assert!(log.end_period(until, clock(1_000)).await.unwrap());
                let filter = OutcomeFilter {
                    recorded_since: Some(since),
                    recorded_until: Some(until),
                    ..OutcomeFilter::default()
                };
                let listed = log.outcomes(&filter, None, 1_000).await.unwrap();
                found.extend(listed.into_iter().map(|(outcome, _)| outcome.external_id));
                since = until;
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        });
    });
    let different: std::collections::BTreeSet<_> = found.iter().collect();
    assert_eq!((found.len(), different.len()), (2 * RESULTS, 2 * RESULTS));
}
