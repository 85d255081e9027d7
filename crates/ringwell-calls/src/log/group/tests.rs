use proptest::prelude::*;

use super::*;
use crate::attribution::{Attributed, Attribution, PoolRef};
use crate::call::{CallEvent, EventKind};
use crate::log::{CallDetail, CallFilter, EventRow, Log, writer};
use crate::provider::Stir;
use crate::webhook::NewEndpoint;
use ringwell_store::Location;

/// Generates random changes to five calls, with three different callers and two called numbers.
fn change() -> impl Strategy<Value = CallChange> {
    let what = (0..6_u8, proptest::option::of(0..3_u8), proptest::bool::ANY, 0..4_u8);
    (0..5_u8, 1..40_u64, what).prop_map(|(call, at, (kind, caller, has_number, visitor))| {
        let kind = match kind {
            0 => EventKind::Answered,
            1 => EventKind::Ended(Some(Outcome::Answered)),
            2 => EventKind::Ended(None),
            _ => EventKind::Started,
        };
        let at = Millis(at * 1000);
        let event =
            CallEvent { key: format!("{}:{at:?}", kind.name()), kind, at, talk_seconds: None };
        let attribution = Attribution {
            outcome: if visitor == 1 { Attributed::None } else { Attributed::Overflow },
            pool: Some(PoolRef { id: 16, name: None }),
            ..Attribution::default()
        };
        CallChange {
            account: "main".to_owned(),
            provider: "twilio".to_owned(),
            provider_call: format!("CA{call}"),
            events: vec![ReportedEvent { event, received: at }],
            number: has_number.then(|| format!("+1800555121{}", call % 2)),
            caller: caller.map(|caller| Caller::read(&format!("+1415555123{caller}"))),
            stir: (visitor == 2).then(Stir::default),
            attribution: (visitor > 0).then_some(attribution),
            ..CallChange::default()
        }
    })
}

/// Stores `changes` in groups of `size`, and returns the contents of the log.
async fn stored(changes: &[CallChange], size: usize) -> (Vec<CallDetail>, Vec<EventRow>, u64) {
    let folder = tempfile::TempDir::new().unwrap();
    let log = Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
    let types = vec!["call.started".to_owned(), "number.leaking".to_owned()];
    let url = "https://a.example/".to_owned();
    let endpoint = NewEndpoint { url, types, ..NewEndpoint::default() };
    log.create_endpoint(&endpoint, Millis(0)).await.unwrap();
    for group in changes.chunks(size) {
        writer::together(&log, Millis(50_000), group.iter()).await.unwrap();
    }
    let mut calls = Vec::new();
    for row in log.calls(&CallFilter::default(), None, 100).await.unwrap() {
        let mut detail = log.call(&row.id).await.unwrap().unwrap();
        for event in &mut detail.events {
            event.id.clear();
        }
        for delivery in &mut detail.deliveries {
            (delivery.event, delivery.endpoint) = (String::new(), String::new());
        }
        calls.push(detail);
    }
    let mut events = log.events(0, 1_000).await.unwrap();
    for event in &mut events {
        event.id.clear();
    }
    let pending = log.endpoints().await.unwrap()[0].pending;
    log.close().await;
    (calls, events, pending)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_group_has_the_same_result_as_its_changes_one_after_another(
        changes in proptest::collection::vec(change(), 1..30)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (single, together) = (stored(&changes, 1).await, stored(&changes, 30).await);
            prop_assert_eq!(&single, &together);
            prop_assert_eq!(&single, &stored(&changes, 4).await);
            Ok(())
        })?;
    }
}
