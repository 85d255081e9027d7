use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringwell_core::Millis;
use tokio::time::Instant;

use super::*;
use crate::attribution::{Allocation, Attributed, Attribution, PoolRef};
use crate::call::{CallEvent, CallState, EventKind, Outcome};
use crate::caller::Caller;

pub(super) async fn log() -> (Log, tempfile::TempDir) {
    let folder = tempfile::TempDir::new().unwrap();
    let location = Location::File(folder.path().join("calls.sqlite"));
    (Log::open(&location).await.unwrap(), folder)
}

pub(super) fn change(call: &str, at: u64, kind: EventKind) -> CallChange {
    let key = format!("{}:{at}", kind.name());
    let event = CallEvent { key, kind, at: Millis(at * 1000), talk_seconds: None };
    let received = Millis(at * 1000);
    CallChange {
        account: "main".to_owned(),
        provider: "twilio".to_owned(),
        provider_call: call.to_owned(),
        events: vec![ReportedEvent { event, received }],
        ..CallChange::default()
    }
}

pub(super) fn no_visitor() -> Attribution {
    Attribution { outcome: Attributed::None, ..Attribution::default() }
}

pub(super) fn writer(log: &Log) -> Writer {
    Writer::start(log.clone(), || Millis(50_000), || ())
}

#[tokio::test]
async fn a_repeated_report_changes_nothing_and_a_call_has_each_event_once() {
    let (log, _folder) = log().await;
    let writer = writer(&log);
    let mut first = change("CA1", 10, EventKind::Started);
    first.attribution = Some(no_visitor());
    first.number = Some("+18005551212".to_owned());
    first.caller = Some(Caller::read("+14155551234"));
    let answered = change("CA1", 12, EventKind::Answered);
    let ended = change("CA1", 30, EventKind::Ended(Some(Outcome::Answered)));
    for one in [&ended, &first, &answered, &first, &ended] {
        let applied = writer.submit(one.clone()).unwrap().await.unwrap();
        assert_eq!(applied.call, first.id());
    }
    let detail = log.call(&first.id()).await.unwrap().unwrap();
    assert_eq!(detail.call.facts.outcome(), Some(Outcome::Answered));
    assert_eq!(detail.call.facts.talk_seconds(), Some(18));
    assert_eq!(detail.call.first_time, Some(true));
    assert_eq!(detail.timeline.len(), 3);
    let kinds: Vec<_> = detail.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["call.started", "call.completed", "call.answered", "call.updated"]);
    let places: Vec<_> = log.events(0, 10).await.unwrap().iter().map(|it| it.place).collect();
    assert_eq!(places, [1, 2, 3, 4]);
    assert_eq!(log.events(2, 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn nothing_is_published_before_the_attribution_is_known() {
    let (log, _folder) = log().await;
    let writer = writer(&log);
    let ended = change("CA1", 30, EventKind::Ended(None));
    let applied = writer.submit(ended.clone()).unwrap().await.unwrap();
    assert_eq!(applied.unattributed, Some((None, Millis(30_000))));
    assert!(log.events(0, 10).await.unwrap().is_empty());
    assert_eq!(log.unattributed(10).await.unwrap().len(), 1);
    let late = CallChange { events: Vec::new(), attribution: Some(no_visitor()), ..ended };
    let applied = writer.submit(late.clone()).unwrap().await.unwrap();
    assert_eq!(applied.unattributed, None);
    let kinds: Vec<_> = log.events(0, 10).await.unwrap().into_iter().map(|it| it.kind).collect();
    assert_eq!(kinds, ["call.started", "call.completed"]);
    assert!(!writer.submit(late).unwrap().await.unwrap().is_new);
}

#[tokio::test]
async fn a_report_without_an_event_dates_its_call() {
    let (log, _folder) = log().await;
    let writer = writer(&log);
    let started = change("CA1", 20, EventKind::Started);
    let seen = CallChange { events: Vec::new(), seen: Some(Millis(20_100)), ..started.clone() };
    let applied = writer.submit(seen).unwrap().await.unwrap();
    assert_eq!(applied.unattributed, Some((None, Millis(20_100))));
    let found = CallChange {
        events: Vec::new(),
        attribution: Some(no_visitor()),
        looked_up: Some((None, Millis(20_100))),
        ..started.clone()
    };
    writer.submit(found.clone()).unwrap().await.unwrap();
    let applied = writer.submit(started).unwrap().await.unwrap();
    assert_eq!(applied.unattributed, Some((None, Millis(20_000))));
    // If a call is removed before it is attributed, storing the attribution does not create the
    // call again.
    let gone = CallChange { provider_call: "CA2".to_owned(), ..found };
    assert_eq!(writer.submit(gone).unwrap().await.unwrap().unattributed, None);
    assert_eq!(log.calls(&CallFilter::default(), None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_visitor_is_looked_up_again_if_a_call_began_earlier_than_was_known() {
    let (log, _folder) = log().await;
    let writer = writer(&log);
    let number = Some("+18005551212".to_owned());
    let of = |at: u64| Some((number.clone(), Millis(at * 1000)));
    let mut ended = change("CA1", 30, EventKind::Ended(None));
    (ended.number, ended.attribution, ended.looked_up) =
        (number.clone(), Some(no_visitor()), of(30));
    assert_eq!(writer.submit(ended.clone()).unwrap().await.unwrap().unattributed, None);
    let started = change("CA1", 10, EventKind::Started);
    let applied = writer.submit(started.clone()).unwrap().await.unwrap();
    assert_eq!(applied.unattributed, of(10));
    assert_eq!(log.unattributed(10).await.unwrap().len(), 1);
    // The result of a look-up for an outdated number or time is ignored.
    let late = CallChange { events: Vec::new(), ..ended };
    assert_eq!(writer.submit(late.clone()).unwrap().await.unwrap().unattributed, of(10));
    let other = Attribution { outcome: Attributed::Overflow, ..Attribution::default() };
    let found = CallChange { attribution: Some(other), looked_up: of(10), ..late };
    assert_eq!(writer.submit(found).unwrap().await.unwrap().unattributed, None);
    let call = log.call(&started.id()).await.unwrap().unwrap();
    assert_eq!(call.call.attribution.outcome, Attributed::Overflow);
    let kinds: Vec<_> = call.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["call.started", "call.completed", "call.updated"]);
}

#[tokio::test]
async fn lists_are_read_in_parts_and_filtered() {
    let (log, _folder) = log().await;
    let writer = writer(&log);
    for call in 0..10_u64 {
        let mut one = change(&format!("CA{call}"), 10 + call / 2, EventKind::Started);
        one.number = Some(format!("+1800555000{}", call % 2));
        one.caller = Some(Caller::read("+14155551234"));
        writer.submit(one).unwrap().await.unwrap();
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let part = log.calls(&CallFilter::default(), after.as_ref(), 3).await.unwrap();
        let Some(last) = part.last() else { break };
        after = Cursor::parse(&Cursor::after(last).to_string());
        seen.extend(part.into_iter().map(|call| call.provider_call));
    }
    assert_eq!(seen.len(), 10);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 10);
    let count = async |filter: CallFilter| log.calls(&filter, None, 100).await.unwrap().len();
    let number = Some("+18005550001".to_owned());
    assert_eq!(count(CallFilter { number, ..CallFilter::default() }).await, 5);
    let since = Some(Millis(13_000));
    assert_eq!(count(CallFilter { since, ..CallFilter::default() }).await, 4);
    let state = Some(CallState::Ended);
    assert_eq!(count(CallFilter { state, ..CallFilter::default() }).await, 0);
    let caller = Some(Caller::read("+14155551234"));
    assert_eq!(count(CallFilter { caller, ..CallFilter::default() }).await, 10);
    for bad in ["", "x", "1", "1.c_%", "-1.c_1"] {
        assert_eq!(Cursor::parse(bad), None, "{bad}");
    }
}

#[tokio::test]
async fn changes_that_wait_together_are_all_stored() {
    let (log, _folder) = log().await;
    let writer = writer(&log);
    let all: Vec<_> = (0..1000)
        .map(|call| writer.submit(change(&format!("CA{call}"), 10, EventKind::Started)).unwrap())
        .collect();
    for one in all {
        one.await.unwrap();
    }
    assert_eq!(log.calls(&CallFilter::default(), None, 2000).await.unwrap().len(), 1000);
}

#[tokio::test]
async fn reports_are_kept_soon_while_the_database_does_not_answer() {
    let (log, folder) = log().await;
    let writer = writer(&log);
    let path = folder.path().join("waiting.jsonl");
    writer.keep_in(&path).unwrap();
    // Simulates another transaction that takes a long time.
    let other = log.database().write().await.unwrap();
    let began = Instant::now();
    let mut reports = Vec::new();
    for call in ["CA1", "CA2", "CA3"] {
        let until = Instant::now() + Duration::from_secs(6);
        let mut report = writer.submit_report(change(call, 1, EventKind::Ringing), until).unwrap();
        (&mut report.kept).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(6), "{call}: {:?}", began.elapsed());
        reports.push(report);
    }
    assert_eq!(writer.waiting(), Waiting { all: 3, kept: 3 });
    drop(other);
    for report in reports {
        report.applied.await.unwrap();
    }
    assert!(!path.exists(), "all are stored");
}

#[tokio::test]
async fn a_report_that_must_be_answered_soon_is_kept_before() {
    let mut is_kept = false;
    // Makes several attempts, because a busy machine may delay a thread or the disk. At least one
    // attempt must succeed.
    for _ in 0..5 {
        let (log, folder) = log().await;
        let writer = writer(&log);
        let path = folder.path().join("waiting.jsonl");
        writer.keep_in(&path).unwrap();
        let other = log.database().write().await.unwrap();
        let until = Instant::now() + Duration::from_millis(80);
        let report = writer.submit_report(change("CA1", 1, EventKind::Ringing), until).unwrap();
        tokio::time::sleep_until(until).await;
        is_kept |= writer.waiting() == Waiting { all: 1, kept: 1 };
        drop(other);
        report.applied.await.unwrap();
    }
    assert!(is_kept, "none of five");
}

/// Checks that reports survive if an operator removes the backlog file while the database does not
/// answer.
#[tokio::test]
async fn reports_are_kept_again_if_their_file_is_removed() {
    let (log, folder) = log().await;
    let writer = writer(&log);
    let path = folder.path().join("waiting.jsonl");
    writer.keep_in(&path).unwrap();
    let other = log.database().write().await.unwrap();
    let until = Instant::now() + Duration::from_secs(6);
    let mut report = writer.submit_report(change("CA1", 1, EventKind::Ringing), until).unwrap();
    (&mut report.kept).await.unwrap();
    let before = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let is_again = || std::fs::read(&path).is_ok_and(|again| again == before);
    while !is_again() || writer.waiting().kept == 0 {
        assert!(Instant::now() < until + Duration::from_secs(6), "it is not written again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(writer.waiting(), Waiting { all: 1, kept: 1 });
    drop(other);
    report.applied.await.unwrap();
    writer.finish().await;
    assert!(!path.exists(), "it is stored");
}

#[tokio::test]
async fn each_list_of_calls_has_an_index_that_finds_few_among_many() {
    let (log, _folder) = log().await;
    // The filters to test: no filter, and each filter alone.
    let filters = [
        CallFilter::default(),
        CallFilter { number: Some("+18005551212".to_owned()), ..CallFilter::default() },
        CallFilter { pool: Some(7), ..CallFilter::default() },
        CallFilter { caller: Some(Caller::read("+14155551234")), ..CallFilter::default() },
        CallFilter { outcome: Some(Outcome::Busy), ..CallFilter::default() },
        CallFilter { attributed: Some(Attributed::None), ..CallFilter::default() },
    ];
    let indexes = ["start", "number", "pool", "caller", "outcome", "attributed"];
    for (filter, index) in filters.iter().zip(indexes) {
        let callers = filter.caller.iter().map(|_| String::new()).collect();
        let (statement, _, _) = super::query::statement(filter, callers);
        let mut tx = log.database().read().await.unwrap();
        let query = sqlx::query(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")));
        let rows = query.fetch_all(&mut *tx).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| sqlx::Row::get(row, "detail")).collect();
        let plan = plan.join("; ");
        assert!(plan.contains(&format!("calls_by_{index} (")), "{index}: {plan}");
        log.calls(filter, None, 10).await.unwrap();
    }
}

#[tokio::test]
async fn a_number_that_no_visitor_can_have_seen_is_reported_once_a_week() {
    // All times in this test are in seconds.
    const DAY: u64 = 24 * 60 * 60;
    let (log, _folder) = log().await;
    let clock = Arc::new(AtomicU64::new(0));
    let time = Arc::clone(&clock);
    let writer = Writer::start(log.clone(), move || Millis(time.load(Ordering::Relaxed)), || ());
    let pool = Some(PoolRef { id: 16, name: None });
    let none = Attribution { outcome: Attributed::None, pool, ..Attribution::default() };
    let shown = |locked_until: u64| Attribution {
        outcome: Attributed::Allocated,
        allocation: Some(Allocation {
            allocated_ms: 0,
            locked_until_ms: locked_until * 1000,
            late: true,
            probability: 1.0,
            tapped_ms: None,
            parameters: Vec::new(),
        }),
        ..none.clone()
    };
    let leaks = async |name: &str, at: u64, attribution: &Attribution| {
        clock.store(at * 1000, Ordering::Relaxed);
        let mut call = change(name, at, EventKind::Started);
        (call.number, call.attribution) =
            (Some("+12001600000".to_owned()), Some(attribution.clone()));
        writer.submit(call).unwrap().await.unwrap();
        let events = log.events(0, 1000).await.unwrap();
        events.iter().filter(|event| event.kind == "number.leaking").count()
    };
    let start = 100 * DAY;
    assert_eq!(leaks("CA1", start, &none).await, 0);
    assert_eq!(leaks("CA2", start + 1, &none).await, 0);
    // A visitor may have made either of the next two calls: the lockout ends a day after the first,
    // and ended half a day before the second.
    assert_eq!(leaks("CA3", start + 2, &shown(start + DAY)).await, 0);
    assert_eq!(leaks("CA4", start + 3, &shown(start - DAY / 2)).await, 0);
    assert_eq!(leaks("CA5", start + 4, &shown(start - 2 * DAY)).await, 1);
    assert_eq!(leaks("CA6", start + 5, &none).await, 1);
    // By now, the calls above are more than a week old and no longer count. After three new calls
    // without a visitor, the number is reported again.
    assert_eq!(leaks("CA7", start + 8 * DAY, &none).await, 1);
    assert_eq!(leaks("CA8", start + 8 * DAY + 1, &none).await, 1);
    assert_eq!(leaks("CA9", start + 8 * DAY + 2, &none).await, 2);
    // No pool contains the number, so the calls to it were made by mistake.
    let other = Attribution { pool: None, ..none.clone() };
    for call in 0..5 {
        assert_eq!(leaks(&format!("CB{call}"), start + 30 * DAY, &other).await, 2);
    }
}

/// If an erased visitor is a candidate in the attribution of another person's call, the visitor's
/// parameters are removed from that call too.
#[tokio::test]
async fn an_erased_visitor_is_also_removed_where_others_may_have_called() {
    let (log, _folder) = log().await;
    let writer = writer(&log);
    let shown = |ms: u64, id: &str| Allocation {
        allocated_ms: ms,
        locked_until_ms: ms + 1,
        late: false,
        tapped_ms: None,
        probability: 0.5,
        parameters: vec![("gclid".to_owned(), id.to_owned())],
    };
    let attribution = |own: Allocation, earlier: Vec<Allocation>| Attribution {
        outcome: Attributed::Allocated,
        allocation: Some(own),
        earlier,
        ..Attribution::default()
    };
    for (call, caller, at, attribution) in [
        ("CA1", "+14155551234", 10, attribution(shown(9_000, "theirs"), vec![])),
        (
            "CA2",
            "+14155550000",
            20,
            attribution(shown(19_000, "other"), vec![shown(9_000, "theirs")]),
        ),
    ] {
        let mut started = change(call, at, EventKind::Started);
        started.number = Some("+18005551212".to_owned());
        started.caller = Some(Caller::read(caller));
        started.attribution = Some(attribution);
        writer.submit(started).unwrap().await.unwrap();
    }
    let erased =
        log.erase(&Whom::Caller(Caller::read("+14155551234")), Millis(30_000)).await.unwrap();
    assert_eq!((erased.calls, erased.others), (1, 1));
    let other = log.call(&change("CA2", 20, EventKind::Started).id()).await.unwrap().unwrap();
    assert_eq!(other.call.caller, Caller::read("+14155550000"));
    let found = &other.call.attribution;
    assert_eq!(found.allocation.as_ref().unwrap().parameters[0].1, "other");
    assert!(found.earlier[0].parameters.is_empty(), "{found:?}");
    for event in log.events(0, 10).await.unwrap() {
        assert!(!event.body.contains("theirs"), "{}", event.body);
    }
    assert!(log.events(0, 10).await.unwrap().iter().any(|it| it.body.contains("other")));
}

#[tokio::test]
async fn a_visitor_with_a_long_parameter_is_erased_and_no_one_else() {
    let (log, _folder) = log().await;
    let parameter = |end: &str| ("gclid".to_owned(), format!("{}{end}", "x%".repeat(30_000)));
    let calls = ["1", "2"].map(|end| {
        let mut call = complete(end.parse().unwrap());
        let attribution = call.attribution.as_mut().unwrap();
        attribution.allocation.as_mut().unwrap().parameters = vec![parameter(end)];
        call
    });
    writer::together(&log, Millis(50_000), calls.iter()).await.unwrap();
    let (name, value) = parameter("1");
    let erased = log.erase(&Whom::Parameter { name, value }, Millis(60_000)).await.unwrap();
    assert_eq!((erased.calls, erased.allocations.len()), (1, 1));
    let other = log.call(&calls[1].id()).await.unwrap().unwrap().call;
    assert_eq!(other.attribution.allocation.unwrap().parameters, [parameter("2")]);
}

#[tokio::test]
async fn a_visitor_is_erased_from_all_calls_and_outcomes() {
    let (log, _folder) = log().await;
    let writer = writer(&log);
    let shown = Allocation {
        allocated_ms: 9_000,
        locked_until_ms: 99_000,
        late: false,
        tapped_ms: None,
        probability: 1.0,
        parameters: vec![("gclid".to_owned(), "theirs".to_owned())],
    };
    let by = |own: Option<Allocation>, earlier: Vec<Allocation>| Attribution {
        outcome: Attributed::Allocated,
        allocation: own,
        earlier,
        ..Attribution::default()
    };
    let own = by(Some(shown.clone()), vec![]);
    let of_another = Allocation { allocated_ms: 19_000, parameters: vec![], ..shown.clone() };
    let calls = [own.clone(), own.clone(), own, by(Some(of_another), vec![shown])];
    let mut outcomes = Vec::new();
    for (place, attribution) in calls.into_iter().enumerate() {
        let mut started = change(&format!("CA{place}"), 10 + place as u64, EventKind::Started);
        started.number = Some("+18005551212".to_owned());
        let caller = if place == 3 { "+14155550000" } else { "+14155551234" };
        started.caller = Some(Caller::read(caller));
        started.attribution = Some(attribution);
        let call = writer.submit(started).unwrap().await.unwrap().call;
        let outcome = OutcomeRow {
            kind: "sale".to_owned(),
            value: None,
            currency: None,
            at: Millis(60_000),
            recorded_at: Millis(60_000),
            external_id: format!("order-{place}"),
        };
        outcomes.push((call, outcome));
    }
    log.record_outcomes(&outcomes, Millis(70_000)).await.unwrap();
    let whom = Whom::Parameter { name: "gclid".to_owned(), value: "theirs".to_owned() };
    let erased = log.erase(&whom, Millis(80_000)).await.unwrap();
    assert_eq!((erased.calls, erased.allocations.len()), (3, 1));
    for event in log.events(0, 100).await.unwrap() {
        assert!(!event.body.contains("theirs"), "{}", event.body);
        assert!(!event.body.contains("4155551234"), "{}", event.body);
    }
    let other = log.call(&outcomes[3].0).await.unwrap().unwrap();
    assert_eq!(other.call.caller, Caller::read("+14155550000"));
    assert_eq!(log.erase(&whom, Millis(80_000)).await.unwrap().calls, 0);
}

#[tokio::test]
async fn a_robots_calls_get_a_score_and_a_persons_do_not() {
    let (log, _folder) = log().await;
    let writer = writer(&log);
    for at in 0..8_u64 {
        let name = format!("CA{at}");
        let mut started = change(&name, 1_000 + at * 60, EventKind::Started);
        started.attribution = Some(no_visitor());
        started.number = Some(format!("+1800555121{}", at % 4));
        started.caller = Some(Caller::read("+14155551234"));
        let ended = change(&name, 1_003 + at * 60, EventKind::Ended(Some(Outcome::Answered)));
        let answered = change(&name, 1_001 + at * 60, EventKind::Answered);
        for one in [started, answered, ended] {
            writer.submit(one).unwrap().await.unwrap();
        }
    }
    let all = log.calls(&CallFilter::default(), None, 10).await.unwrap();
    let first = all.last().unwrap().robocall.clone().unwrap();
    assert_eq!((first.score, first.reasons), (20, vec!["short_call".to_owned()]));
    let last = all[0].robocall.clone().unwrap();
    assert_eq!(last.reasons, ["many_calls", "many_numbers", "short_calls", "short_call"]);
    assert_eq!(last.score, 100);
    let robots = CallFilter { robocall: Some(60), ..CallFilter::default() };
    let found = log.calls(&robots, None, 10).await.unwrap();
    assert!((3..8).contains(&found.len()), "{}", found.len());
    let blocked = CallFilter { blocked: Some(true), ..CallFilter::default() };
    assert_eq!(log.calls(&blocked, None, 10).await.unwrap(), []);
}

/// A change with everything that is known when a call begins.
fn complete(call: u64) -> CallChange {
    let allocation = Allocation {
        allocated_ms: 9_000,
        locked_until_ms: 99_000,
        late: false,
        tapped_ms: None,
        probability: 1.0,
        parameters: vec![
            ("gclid".to_owned(), format!("Cj0{call}")),
            ("id".to_owned(), "17".to_owned()),
        ],
    };
    CallChange {
        number: Some(format!("+1{}", 2_000_000_000 + call % 100)),
        caller: Some(Caller::read(&format!("+1{}", 4_155_550_000 + call * 7_919 % 5_000))),
        destination: Some("+18005550199".to_owned()),
        attribution: Some(Attribution {
            outcome: Attributed::Allocated,
            pool: Some(PoolRef { id: 16, name: None }),
            allocation: Some(allocation),
            ..Attribution::default()
        }),
        ..change(&format!("CA{call}"), 10 + call / 500, EventKind::Started)
    }
}

/// Checks that storing a call changes only a few pages of the database. With more pages, flushing
/// calls would take longer and delay the flushes of allocations on the same disk.
#[tokio::test]
async fn a_call_changes_few_pages() {
    const CALLS: u64 = 1_000;
    let (log, folder) = log().await;
    let calls: Vec<CallChange> = (0..CALLS).map(complete).collect();
    for group in calls.chunks(5) {
        writer::together(&log, Millis(50_000), group.iter()).await.unwrap();
    }
    // In the write-ahead log, a header of 24 bytes precedes each page.
    let bytes = std::fs::metadata(folder.path().join("calls.sqlite-wal")).unwrap().len();
    let pages = bytes / (4_096 + 24);
    println!("{pages} pages of {CALLS} calls");
    assert!(pages < 8_200, "{pages} pages of {CALLS} calls");
    let events = log.events(0, 1_000).await.unwrap();
    assert!(events.is_sorted_by_key(|event| event.id[..16].to_owned()));
}

#[tokio::test]
async fn a_log_of_an_earlier_schema_keeps_its_calls_and_indexes() {
    static EARLIER: Schema =
        Schema { version_table: SCHEMA.version_table, steps: SCHEMA.steps.split_at(8).0 };
    async fn indexes(log: &Log) -> Vec<String> {
        let mut tx = log.database.read().await.unwrap();
        let query = "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'calls' \
                     ORDER BY name";
        let rows = sqlx::query(query).fetch_all(&mut *tx).await.unwrap();
        rows.iter().map(|row| sqlx::Row::get(row, 0)).collect()
    }
    let folder = tempfile::TempDir::new().unwrap();
    let location = Location::File(folder.path().join("calls.sqlite"));
    let database = LogDatabase::unopened(&location, &EARLIER).unwrap();
    database.open().await.unwrap();
    let earlier = Log { database: Arc::new(database), age: Arc::default() };
    let mut ended = change("CA1", 30, EventKind::Ended(Some(Outcome::Answered)));
    ended.blocked = Some("b_1".to_owned());
    let changes = [complete(1), complete(2), ended];
    writer::together(&earlier, Millis(50_000), changes.iter()).await.unwrap();
    let mut tx = earlier.database().write().await.unwrap();
    let result = "INSERT INTO call_outcomes (call, external_id, type, at_ms) \
                  VALUES ($1, 'order-1', 'sale', 60000)";
    sqlx::query(result).bind(changes[0].id()).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    let every = CallFilter::default();
    let (before, had) = (earlier.calls(&every, None, 10).await.unwrap(), indexes(&earlier).await);
    assert_eq!(before.len(), 2);
    earlier.close().await;
    let log = Log::open(&location).await.unwrap();
    assert_eq!(log.calls(&every, None, 10).await.unwrap(), before);
    let call = log.call(&changes[0].id()).await.unwrap().unwrap();
    assert_eq!(call.timeline.len(), 2);
    assert_eq!(call.outcomes[0].recorded_at, call.outcomes[0].at);
    let unneeded = "sqlite_autoindex_calls_2";
    assert!(had.iter().any(|name| name == unneeded));
    let still: Vec<String> = had.into_iter().filter(|name| name != unneeded).collect();
    let renamed = |name: String| name.replace("calls_9", "calls");
    assert_eq!(indexes(&log).await.into_iter().map(renamed).collect::<Vec<_>>(), still);
}

#[tokio::test]
async fn a_call_whose_end_is_never_reported_can_be_removed_a_day_after_its_last_report() {
    let (log, _folder) = log().await;
    let (writer, call) = (writer(&log), change("CA1", 40, EventKind::Answered));
    let (id, later) = (call.id(), 40 + 24 * 3600);
    writer.submit(call).unwrap().await.unwrap();
    for (at, removed) in [(later - 1, Removed::InProgress), (later, Removed::Done)] {
        assert_eq!(log.remove(&id, Millis(at * 1000)).await.unwrap(), removed);
    }
}

/// Earlier builds stored a later beginning if an earlier event was reported. Pages use it too.
#[tokio::test]
async fn pages_skip_no_call_next_to_a_call_whose_beginning_an_earlier_build_stored() {
    let (log, _folder) = log().await;
    let calls = [("CA1", 10), ("CA2", 25), ("CA3", 20)];
    let calls = calls.map(|(call, at)| change(call, at, EventKind::Started));
    writer::together(&log, Millis(50_000), calls.iter()).await.unwrap();
    let mut tx = log.database().write().await.unwrap();
    let stored = sqlx::query(
        "UPDATE calls SET started_ms = 30000, \
         facts = REPLACE(facts, '\"is_start_ours\":true', '\"first_ms\":10000') WHERE id = $1",
    );
    stored.bind(calls[0].id()).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    let (mut after, mut found) = (None, Vec::new());
    while let [call] = &log.calls(&CallFilter::default(), after.as_ref(), 1).await.unwrap()[..] {
        found.push((call.provider_call.clone(), call.facts.started_at().0 / 1000));
        after = Some(Cursor::after(call));
    }
    let expected = [("CA1", 30), ("CA2", 25), ("CA3", 20)];
    assert_eq!(found, expected.map(|(call, at)| (call.to_owned(), at)));
}
