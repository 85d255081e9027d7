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
    // The count of changes depends on the reports, and `published` on the events before.
    (row.sequence, row.published) = (0, String::new());
    let events = log.events(0, 100).await.unwrap();
    (row, events.iter().filter(|event| event.kind == "number.leaking").count())
}

fn reports(is_leak: bool) -> Vec<CallChange> {
    let began = if is_leak { BEGIN } else { BEGIN + 3 };
    let mut seen = change("CA1", began, EventKind::Started);
    (seen.events, seen.seen) = (Vec::new(), Some(Millis((began + 1) * 1000)));
    let ended = change("CA1", began + 30, EventKind::Ended(Some(Outcome::Answered)));
    vec![
        change("CA1", began, EventKind::Started),
        change("CA1", began + 1, EventKind::Ringing),
        CallChange { number: None, caller: None, ..change("CA1", began + 5, EventKind::Answered) },
        CallChange { caller: None, ..ended },
        seen,
        // An event that the provider dates before the beginning.
        change("CA1", began - 4, EventKind::LegEnded(Outcome::Busy)),
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
