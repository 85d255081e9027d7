use super::*;
use crate::call::EventKind;
use crate::log::tests::{change, log, no_visitor, writer};

#[tokio::test]
async fn a_result_is_recorded_and_reported_once() {
    let (log, _folder) = log().await;
    let writer = writer(&log);
    let mut first = change("CA1", 10, EventKind::Started);
    first.attribution = Some(no_visitor());
    let call = writer.submit(first).unwrap().await.unwrap().call;
    let sale = OutcomeRow {
        kind: "sale".to_owned(),
        value: Some("129.50".to_owned()),
        currency: Some("EUR".to_owned()),
        at: Millis(60_000),
        recorded_at: Millis(70_000),
        external_id: "order-7".to_owned(),
    };
    let record = async |call: &str, outcome: &OutcomeRow| {
        let outcomes = [(call.to_owned(), outcome.clone())];
        log.record_outcomes(&outcomes, Millis(70_000)).await.unwrap().remove(0)
    };
    assert_eq!(record(&call, &sale).await, Recorded::New(Millis(70_000)));
    assert_eq!(record(&call, &sale).await, Recorded::Known);
    let alike = OutcomeRow { value: Some("129.5".to_owned()), at: Millis(1), ..sale.clone() };
    assert_eq!(record(&call, &alike).await, Recorded::Known);
    let lower = OutcomeRow { value: Some("12.95".to_owned()), ..sale.clone() };
    assert_eq!(record(&call, &lower).await, Recorded::Differs(sale.clone()));
    assert_eq!(record("c_none", &sale).await, Recorded::NoCall);
    let filter = OutcomeFilter::default();
    let all = log.outcomes(&filter, None, 10).await.unwrap();
    assert_eq!(all[0].0, sale);
    let recorded = async |since: u64, until: u64| {
        let (since, until) = (Some(Millis(since)), Some(Millis(until)));
        let filter =
            OutcomeFilter { recorded_since: since, recorded_until: until, ..Default::default() };
        log.outcomes(&filter, None, 10).await.unwrap().len()
    };
    assert_eq!(recorded(70_000, 70_001).await, 1);
    assert_eq!(recorded(60_000, 70_000).await, 0);
    assert_eq!(recorded(70_001, 80_000).await, 0);
    let cursor = OutcomeCursor::after(&call, &sale).to_string();
    let cursor = OutcomeCursor::parse(&cursor).unwrap();
    assert!(log.outcomes(&filter, Some(&cursor), 10).await.unwrap().is_empty());
    let detail = log.call(&call).await.unwrap().unwrap();
    assert_eq!(detail.outcomes, [sale]);
    let kinds: Vec<_> = detail.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["call.started", "conversion.recorded"]);
    assert!(detail.events[1].body.contains("129.50"));

    let remove =
        async |call: &str| log.remove_outcome(call, "order-7", Millis(80_000)).await.unwrap();
    assert_eq!(remove("c_none").await, Withdrawn::NoCall);
    assert_eq!(remove(&call).await, Withdrawn::Done);
    assert_eq!(remove(&call).await, Withdrawn::NoOutcome);
    assert_eq!(record(&call, &lower).await, Recorded::New(Millis(70_000)));
    let detail = log.call(&call).await.unwrap().unwrap();
    assert_eq!(detail.outcomes, [lower]);
    let kinds: Vec<_> = detail.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds[2..], ["conversion.removed", "conversion.recorded"]);
    assert!(detail.events[2].body.contains("129.50"));
}

fn result(name: &str, recorded_at: u64) -> OutcomeRow {
    OutcomeRow {
        kind: "sale".to_owned(),
        value: None,
        currency: None,
        at: Millis(60_000),
        recorded_at: Millis(recorded_at),
        external_id: name.to_owned(),
    }
}

#[tokio::test]
async fn a_result_that_is_recorded_late_is_in_the_next_period() {
    const HOUR: u64 = 3_600_000;
    let (log, _folder) = log().await;
    let call = writer(&log).submit(change("CA1", 10, EventKind::Started)).unwrap();
    let call = call.await.unwrap().call;
    let record = async |name: &str, at: u64| {
        let outcomes = [(call.clone(), result(name, at))];
        log.record_outcomes(&outcomes, Millis(at)).await.unwrap().remove(0)
    };
    assert_eq!(record("early", 69_999).await, Recorded::New(Millis(69_999)));
    // An export waits for a transaction that is still open.
    let mut open = log.database().write().await.unwrap();
    let export = {
        let log = log.clone();
        tokio::spawn(async move { log.end_period(Millis(70_000), Millis(70_000)).await })
    };
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(!export.is_finished());
    super::record(&mut open, &call, &result("open", 69_998), Millis(69_998)).await.unwrap();
    open.commit().await.unwrap();
    assert!(export.await.unwrap().unwrap());
    // The request arrived before the end of the period, or the clock of this server is slow.
    assert_eq!(record("late", 69_990).await, Recorded::New(Millis(70_000)));
    assert_eq!(record("later", 70_001).await, Recorded::New(Millis(70_001)));
    let listed = async |since: u64, until: u64| {
        let (since, until) = (Some(Millis(since)), Some(Millis(until)));
        let filter =
            OutcomeFilter { recorded_since: since, recorded_until: until, ..Default::default() };
        let all = log.outcomes(&filter, None, 10).await.unwrap();
        all.into_iter().map(|(outcome, _)| outcome.external_id).collect::<Vec<_>>()
    };
    assert_eq!(listed(0, 70_000).await, ["open", "early"]);
    assert_eq!(listed(70_000, 80_000).await, ["later", "late"]);
    // A period that has not ended stays open, unless the clocks differ only slightly.
    assert!(!log.end_period(Millis(140_001), Millis(80_000)).await.unwrap());
    assert!(log.end_period(Millis(140_000), Millis(80_000)).await.unwrap());
    assert!(log.end_period(Millis(70_000), Millis(80_000)).await.unwrap());
    assert_eq!(record("ahead", 80_000).await, Recorded::New(Millis(140_000)));
    // The clock was wrong by years when the period was listed.
    assert!(log.end_period(Millis(1 << 41), Millis(1 << 41)).await.unwrap());
    assert_eq!(record("corrected", 90_000).await, Recorded::New(Millis(90_000)));
    // A period that ends slightly ahead of the right clock still gets no later results.
    assert!(log.end_period(Millis(149_000), Millis(90_000)).await.unwrap());
    assert_eq!(record("within", 91_000).await, Recorded::New(Millis(150_000)));
    assert!(log.end_period(Millis(149_000), Millis(90_000)).await.unwrap());
    assert_eq!(record("after", 151_000).await, Recorded::New(Millis(151_000)));
    assert!(log.end_period(Millis(1 << 41), Millis(1 << 41)).await.unwrap());
    let slow = (1 << 41) - HOUR;
    assert_eq!(record("slow", slow).await, Recorded::New(Millis(1 << 41)));
}
