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
    assert_eq!(record(&call, &sale).await, Recorded::New);
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
    assert_eq!(record(&call, &lower).await, Recorded::New);
    let detail = log.call(&call).await.unwrap().unwrap();
    assert_eq!(detail.outcomes, [lower]);
    let kinds: Vec<_> = detail.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds[2..], ["conversion.removed", "conversion.recorded"]);
    assert!(detail.events[2].body.contains("129.50"));
}
