use proptest::prelude::*;
use ringwell_core::Millis;
use ringwell_store::Location;

use crate::attribution::{Allocation, Attributed, Attribution, PoolRef};
use crate::call::{CallEvent, EventKind, Outcome};
use crate::caller::Caller;
use crate::log::{CallChange, CallRow, Log, ReportedEvent, writer};

const DAY_S: u64 = 24 * 60 * 60;
const NUMBER: &str = "+18005551212";
/// The beginning of the call in seconds.
const BEGIN: u64 = 100 * DAY_S;

fn change(call: &str, at: u64, kind: EventKind) -> CallChange {
    let at = Millis(at * 1000);
    let event = CallEvent { key: kind.name().to_owned(), kind, at, talk_seconds: None };
    CallChange {
        account: "main".to_owned(),
        provider: "twilio".to_owned(),
        provider_call: call.to_owned(),
        events: vec![ReportedEvent { event, received: at }],
        number: Some(NUMBER.to_owned()),
        caller: Some(Caller::read("+14155551234")),
        ..CallChange::default()
    }
}

/// Like [`change`], but the provider's clock dates the report, which arrives at `received_ms`.
fn dated(call: &str, at: u64, kind: EventKind, received_ms: u64) -> CallChange {
    let mut change = change(call, at, kind);
    change.events[0].received = Millis(received_ms);
    change
}

/// The result of a look-up. The number was shown to one visitor, two seconds after [`BEGIN`].
fn looked_up(number: Option<&str>, at: Millis) -> Attribution {
    let shown_at = (BEGIN + 2) * 1000;
    let pool = number.map(|_| PoolRef { id: 16, name: None });
    if number.is_none() || at.0 < shown_at {
        return Attribution { outcome: Attributed::None, pool, ..Attribution::default() };
    }
    let allocation = Allocation {
        allocated_ms: shown_at,
        locked_until_ms: shown_at + 60_000,
        late: false,
        tapped_ms: None,
        probability: 1.0,
        parameters: Vec::new(),
    };
    let (outcome, allocation) = (Attributed::Allocated, Some(allocation));
    Attribution { outcome, pool, allocation, ..Attribution::default() }
}

/// Stores `change`, and looks up the visitor as the service does.
async fn store(log: &Log, change: &CallChange) {
    let now = Millis((BEGIN + 600) * 1000);
    let mut next = Some(change.clone());
    while let Some(change) = next.take() {
        let applied = writer::together(log, now, [&change].into_iter()).await.unwrap().remove(0);
        next = applied.unattributed.map(|(number, at)| CallChange {
            attribution: Some(looked_up(number.as_deref(), at)),
            looked_up: Some((number, at)),
            ..CallChange::about(change.account, change.provider, change.provider_call)
        });
    }
}

/// Stores the reports about one call, after other calls to the same number. Returns the final call
/// and the count of events about a leak.
async fn final_call(reports: &[CallChange]) -> (CallRow, usize) {
    let folder = tempfile::TempDir::new().unwrap();
    let log = Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
    for (call, at) in [("CB1", BEGIN - 10), ("CB2", BEGIN + 1)] {
        let caller =
            Some(Caller::read(if call == "CB1" { "+14155559999" } else { "+14155551234" }));
        store(&log, &CallChange { caller, ..change(call, at, EventKind::Started) }).await;
    }
    for report in reports {
        store(&log, report).await;
    }
    let mut row = log.call(&reports[0].id()).await.unwrap().unwrap().call;
    // The count of changes depends on the reports. `published` and `former` depend on earlier
    // events.
    (row.sequence, row.published, row.attribution.former) = (0, String::new(), Vec::new());
    let events = log.events(0, 100).await.unwrap();
    (row, events.iter().filter(|event| event.kind == "number.leaking").count())
}

fn reports(is_leak: bool) -> Vec<CallChange> {
    let began = if is_leak { BEGIN } else { BEGIN + 3 };
    let mut seen = change("CA1", began, EventKind::Started);
    (seen.events, seen.seen) = (Vec::new(), Some(Millis((began + 1) * 1000)));
    let ended = change("CA1", began + 30, EventKind::Ended(Some(Outcome::Answered)));
    vec![
        // The server hung, and received this report after some of the others.
        change("CA1", began + 4, EventKind::Started),
        // The provider's clock is 6 s behind.
        dated("CA1", began - 5, EventKind::Ringing, (began + 1) * 1000 + 100),
        CallChange { number: None, caller: None, ..change("CA1", began + 5, EventKind::Answered) },
        CallChange { caller: None, ..ended },
        seen,
        change("CA1", began, EventKind::LegEnded(Outcome::Busy)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn reordered_and_repeated_reports_give_the_same_call_and_the_same_leak(
        is_leak in any::<bool>(),
        order in Just(vec![0, 1, 2, 3, 4, 5]).prop_shuffle(),
        again in prop::collection::vec(0..6_usize, 0..4),
    ) {
        let reports = reports(is_leak);
        let mixed: Vec<_> = again.iter().chain(&order).map(|it| reports[*it].clone()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let in_order = final_call(&reports).await;
            prop_assert_eq!(in_order.1, usize::from(is_leak));
            prop_assert_eq!(final_call(&mixed).await, in_order);
            Ok(())
        })?;
    }
}

/// If the clock was an hour ahead when a call arrived and was then corrected, later reports without
/// a time change neither the call's beginning nor its visitor.
#[tokio::test]
async fn reports_that_arrive_after_the_clock_was_set_back_keep_the_beginning_and_its_visitor() {
    const AHEAD: u64 = BEGIN + 3_600;
    let folder = tempfile::TempDir::new().unwrap();
    let location = Location::File(folder.path().join("calls.sqlite"));
    let log = Log::open(&location).await.unwrap();
    let store = async |change: CallChange, now: u64| {
        let now = Millis(now * 1000);
        writer::together(&log, now, [&change].into_iter()).await.unwrap().remove(0)
    };
    for (call, first) in [("CA1", EventKind::Started), ("CA2", EventKind::Ringing)] {
        store(change(call, AHEAD, first), AHEAD).await;
        store(change(call, AHEAD + 5, EventKind::Answered), AHEAD + 5).await;
        let attribution = Some(looked_up(Some(NUMBER), Millis(AHEAD * 1000)));
        let looked = Some((Some(NUMBER.to_owned()), Millis(AHEAD * 1000)));
        let found = CallChange {
            attribution,
            looked_up: looked,
            ..CallChange::about("main".into(), "twilio".into(), call.into())
        };
        store(found, AHEAD + 5).await;
        let id = change(call, 0, first).id();
        let before = log.call(&id).await.unwrap().unwrap().call;

        for kind in [EventKind::Started, EventKind::Ringing, EventKind::Answered] {
            let applied = store(change(call, BEGIN + 60, kind), BEGIN + 60).await;
            assert_eq!(applied.unattributed, None, "{call} {kind:?}");
        }
        let seen = Some(Millis((BEGIN + 61) * 1000));
        let seen = CallChange { events: Vec::new(), seen, ..change(call, 0, first) };
        assert_eq!(store(seen, BEGIN + 61).await.unattributed, None);
        let after = log.call(&id).await.unwrap().unwrap().call;
        assert_eq!(after.facts.started_at(), Millis(AHEAD * 1000));
        assert_eq!(after.facts.answered_at(), before.facts.answered_at());
        assert_eq!(after.attribution, before.attribution);

        // A time that the provider reports still counts.
        let prompt = (BEGIN + 70) * 1000 + 20;
        let applied = store(dated(call, BEGIN + 70, EventKind::Ringing, prompt), BEGIN + 71).await;
        assert_eq!(applied.unattributed.unwrap().1, Millis(prompt));
    }
}

/// After a database outage, another server may store a waiting report late. The report's arrival
/// still dates the call's beginning.
#[tokio::test]
async fn a_report_that_waited_still_dates_the_beginning_by_its_arrival() {
    let folder = tempfile::TempDir::new().unwrap();
    let location = Location::File(folder.path().join("calls.sqlite"));
    let log = Log::open(&location).await.unwrap();
    store(&log, &change("CA1", BEGIN + 30, EventKind::Ended(None))).await;
    store(&log, &change("CA1", BEGIN, EventKind::Started)).await;
    let id = change("CA1", BEGIN, EventKind::Started).id();
    let call = log.call(&id).await.unwrap().unwrap().call;
    assert_eq!(call.facts.started_at(), Millis(BEGIN * 1000));
}

/// A server that hung processes the report of the beginning late. The time of another report then
/// shows that the call began before its number was shown to another visitor.
#[tokio::test]
async fn a_report_from_before_the_beginning_corrects_the_beginning_and_the_visitor() {
    let folder = tempfile::TempDir::new().unwrap();
    let location = Location::File(folder.path().join("calls.sqlite"));
    let log = Log::open(&location).await.unwrap();
    let began = change("CA1", BEGIN + 8, EventKind::Started);
    let id = began.id();
    for started_first in [true, false] {
        let mut both =
            [began.clone(), dated("CA1", BEGIN + 1, EventKind::Answered, (BEGIN + 9) * 1000)];
        if !started_first {
            both.reverse();
            both = both.map(|it| CallChange { provider_call: "CA2".to_owned(), ..it });
        }
        for report in &both {
            store(&log, report).await;
        }
        let mut ended = both[0].clone();
        let prompt = (BEGIN + 11) * 1000 + 20;
        ended.events = dated("CA1", BEGIN + 11, EventKind::Ended(None), prompt).events;
        store(&log, &ended).await;
        let call = log.call(&ended.id()).await.unwrap().unwrap().call;
        assert_eq!(call.facts.started_at(), Millis((BEGIN + 1) * 1000 + 20));
        assert_eq!(call.facts.talk_seconds(), Some(9));
        assert_eq!(call.attribution.outcome, Attributed::None, "{started_first}");
    }
    let events = log.events(0, 100).await.unwrap();
    assert!(events.iter().any(|it| it.kind == "call.updated" && it.call.as_deref() == Some(&*id)));
}

/// If the server's clock is ahead, the times in a provider's reports are earlier than the arrival
/// of the request that began the call, and than the allocation of the number.
#[tokio::test]
async fn reports_by_a_clock_that_is_behind_keep_the_beginning_and_its_visitor() {
    let folder = tempfile::TempDir::new().unwrap();
    let log = Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
    let began = change("CA1", BEGIN + 3, EventKind::Started);
    for report in [
        began.clone(),
        dated("CA1", BEGIN - 2, EventKind::Ringing, (BEGIN + 4) * 1000 + 300),
        dated("CA1", BEGIN + 2, EventKind::Answered, (BEGIN + 8) * 1000 + 100),
        dated("CA1", BEGIN + 30, EventKind::CallerLegEnded(60), (BEGIN + 36) * 1000 + 900),
    ] {
        store(&log, &report).await;
        let call = log.call(&began.id()).await.unwrap().unwrap().call;
        assert_eq!(call.facts.started_at(), Millis((BEGIN + 3) * 1000));
        assert_eq!(call.attribution.outcome, Attributed::Allocated);
    }
    let events = log.events(0, 100).await.unwrap();
    assert!(events.iter().all(|event| event.kind != "call.updated"));
}

/// After a restart, often only the end of a call is reported.
#[tokio::test]
async fn a_call_of_which_only_the_end_is_reported_gets_the_visitor_before_its_duration() {
    let folder = tempfile::TempDir::new().unwrap();
    let log = Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
    let of_leg = change("CA1", BEGIN + 5, EventKind::CallerLegEnded(5));
    let mut ended = change("CA2", BEGIN + 5, EventKind::Ended(Some(Outcome::Answered)));
    ended.events[0].event.talk_seconds = Some(5);
    for report in [of_leg, ended] {
        store(&log, &report).await;
        let call = log.call(&report.id()).await.unwrap().unwrap().call;
        assert_eq!(call.facts.started_at(), Millis(BEGIN * 1000));
        assert_eq!(call.facts.answered_at(), Some(Millis(BEGIN * 1000)));
        assert_eq!(call.facts.talk_seconds(), Some(5));
        assert_eq!(call.attribution.outcome, Attributed::None);
    }
}

/// A clock that is set back after the beginning must not let a call's duration change its visitor.
#[tokio::test]
async fn a_duration_after_the_clock_was_set_back_keeps_the_beginning() {
    const AHEAD: u64 = BEGIN + 3_600;
    let folder = tempfile::TempDir::new().unwrap();
    let log = Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
    let first = change("CA1", AHEAD, EventKind::Ringing);
    for (report, now) in [
        (first.clone(), AHEAD),
        (change("CA1", BEGIN + 60, EventKind::CallerLegEnded(50)), BEGIN + 60),
    ] {
        let now = Millis(now * 1000);
        writer::together(&log, now, [&report].into_iter()).await.unwrap();
    }
    let call = log.call(&first.id()).await.unwrap().unwrap().call;
    assert_eq!(call.facts.started_at(), Millis(AHEAD * 1000));
}
