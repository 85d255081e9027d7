use ringwell_core::Millis;
use ringwell_store::Location;
use serde_json::{Value, json};
use sqlx::Row;

use crate::attribution::{Allocation, Attributed, Attribution};
use crate::block::{Block, Pattern};
use crate::call::{CallEvent, EventKind, Outcome};
use crate::caller::Caller;
use crate::log::{
    CallChange, CallFilter, Erased, ErasedAllocation, Log, OutcomeRow, ReportedEvent, Whom,
    fingerprint, writer,
};
use crate::provider::{Refusal, Stir};

const NUMBER: &str = "+18005551212";

async fn log() -> (Log, tempfile::TempDir) {
    let folder = tempfile::TempDir::new().unwrap();
    let location = Location::File(folder.path().join("calls.sqlite"));
    (Log::open(&location).await.unwrap(), folder)
}

fn change(call: &str, from: &str, at_s: u64, kind: EventKind) -> CallChange {
    let at = Millis(at_s * 1000);
    let key = format!("{}:{at_s}", kind.name());
    let event = CallEvent { key, kind, at, talk_seconds: None };
    CallChange {
        account: "main".to_owned(),
        provider: "twilio".to_owned(),
        provider_call: call.to_owned(),
        events: vec![ReportedEvent { event, received: at }],
        number: Some(NUMBER.to_owned()),
        caller: Some(Caller::read(from)),
        ..CallChange::default()
    }
}

/// The attribution to the visitor who was shown the number at `at_s`.
fn visitor(at_s: u64) -> Attribution {
    let allocation = Allocation {
        allocated_ms: at_s * 1000,
        locked_until_ms: at_s * 1000 + 60_000,
        late: false,
        tapped_ms: None,
        probability: 1.0,
        parameters: vec![("gclid".to_owned(), "of-a-visitor".to_owned())],
    };
    let (outcome, allocation) = (Attributed::Allocated, Some(allocation));
    Attribution { outcome, allocation, ..Attribution::default() }
}

async fn store(log: &Log, changes: &[CallChange]) {
    for change in changes {
        writer::together(log, Millis(50_000), [change].into_iter()).await.unwrap();
    }
}

async fn found_by(log: &Log, caller: Caller) -> usize {
    let filter = CallFilter { caller: Some(caller), ..CallFilter::default() };
    log.calls(&filter, None, 10).await.unwrap().len()
}

/// A SIP caller is found regardless of port, parameters and spelling, because providers send those
/// that the caller's telephone uses.
#[tokio::test]
async fn a_sip_caller_is_found_and_erased_whatever_the_port_parameters_and_case() {
    let (log, _folder) = log().await;
    let spellings = [
        "sip:alice@pbx.example",
        "sip:alice@pbx.example:5060",
        "SIP:alice@PBX.example:5061;transport=udp",
        "\"Alice\" <sip:alice;ext=9@pbx.example>;tag=1",
    ];
    for (n, from) in spellings.iter().enumerate() {
        let mut call = change(&format!("CA{n}"), from, 10, EventKind::Started);
        if n == 1 {
            // Earlier builds stored the address as they received it.
            call.caller = Some(Caller::Sip((*from).to_owned()));
        }
        store(&log, &[CallChange { attribution: Some(visitor(5)), ..call }]).await;
    }
    let hashed = Caller::read("sip:alice@pbx.example:5099")
        .hashed(&log.caller_key("2026-11").await.unwrap());
    let call = change("CA8", "", 10, EventKind::Started);
    store(&log, &[CallChange { caller: Some(hashed), ..call }]).await;
    for (call, other) in [
        ("CB1", "sip:bob@pbx.example:5060"),
        ("CB2", "sip:alice@pbx.example.org"),
        ("CB3", "sip:alice;ext=9@other.example"),
        ("CB4", "sips:alice@pbx.example"),
    ] {
        store(&log, &[change(call, other, 10, EventKind::Started)]).await;
    }
    let caller = Pattern::parse("sip:alice@pbx.example:5060").unwrap();
    let block = Block { caller, pool: None, answer: Refusal::Busy, note: None };
    log.block(&block, Millis(0)).await.unwrap();

    for typed in ["sip:alice@pbx.example", "SIP:alice@Pbx.Example:7000;x=1"] {
        let caller = Caller::of_address(typed).expect(typed);
        assert_eq!(found_by(&log, caller).await, 5, "{typed}");
    }
    let whom = Whom::Caller(Caller::of_address("sip:alice@PBX.example:9").unwrap());
    assert_eq!(log.erase(&whom, Millis(60_000)).await.unwrap().calls, 5);
    assert_eq!(log.erase(&whom, Millis(60_000)).await.unwrap().calls, 0);
    assert_eq!(found_by(&log, Caller::read(spellings[0])).await, 0);
    assert!(log.blocks().await.unwrap().is_empty());
    let left = log.calls(&CallFilter::default(), None, 20).await.unwrap();
    assert_eq!(left.iter().filter(|call| call.caller != Caller::Withheld).count(), 4);
}

/// Calls from one SIP address count as one caller's, even if the telephone moves to another port
/// between them.
#[tokio::test]
async fn a_sip_caller_is_one_caller_in_every_spelling() {
    let (log, _folder) = log().await;
    let mut spellings = Vec::new();
    for n in 0..6_u64 {
        let from = format!("<sip:robot@PBX.example:{};ob>;tag={n}", 5060 + n);
        spellings.push(Caller::read(&from).to_column().unwrap());
        let call = format!("CA{n}");
        let at = 1_000 + n * 60;
        let answered = change(&call, &from, at + 1, EventKind::Answered);
        let ended = change(&call, &from, at + 3, EventKind::Ended(Some(Outcome::Answered)));
        store(&log, &[change(&call, &from, at, EventKind::Started), answered, ended]).await;
    }
    assert_eq!(spellings, vec!["sip:robot@pbx.example"; 6]);
    let calls = log.calls(&CallFilter::default(), None, 10).await.unwrap();
    let firsts = calls.iter().map(|call| call.first_time == Some(true));
    assert_eq!(firsts.collect::<Vec<_>>(), [false, false, false, false, false, true]);
    let robocall = calls[0].robocall.clone().unwrap();
    assert!(robocall.reasons.contains(&"short_calls".to_owned()), "{robocall:?}");
}

/// An erased event keeps its type, because a receiver needs it even if the event is sent after the
/// erasure.
#[tokio::test]
async fn an_erased_event_keeps_everything_but_the_person() {
    let (log, _folder) = log().await;
    let stir = Stir { verstat: Some("TN-Validation-Passed-A".to_owned()), attestation: None };
    let started = change("CA1", "+14155551234", 10, EventKind::Started);
    let ended = change("CA1", "", 30, EventKind::Ended(Some(Outcome::NoAnswer)));
    let attribution = Some(visitor(5));
    let id = started.id();
    store(&log, &[CallChange { attribution, stir: Some(stir.clone()), ..started }, ended]).await;
    let outcome = OutcomeRow {
        kind: "sale".to_owned(),
        value: Some("9.50".to_owned()),
        currency: Some("EUR".to_owned()),
        at: Millis(40_000),
        recorded_at: Millis(50_000),
        external_id: "order-1".to_owned(),
    };
    log.record_outcomes(&[(id.clone(), outcome)], Millis(50_000)).await.unwrap();
    let bodies = async || -> Vec<Value> {
        let events = log.events(0, 10).await.unwrap();
        events.iter().map(|it| serde_json::from_str(&it.body).unwrap()).collect()
    };
    let mut wanted = bodies().await;
    assert_eq!(wanted.len(), 3);
    for event in &mut wanted {
        let data = &mut event["data"];
        data["redacted"] = json!(true);
        let call = if data["call"].is_object() { &mut data["call"] } else { data };
        assert_eq!(call["from"]["e164"], "+14155551234");
        call["from"] = json!({ "withheld": true, "erased": true });
        call["stir"] = Value::Null;
        assert_eq!(call["robocall"]["reasons"], json!(["stir_passed"]));
        call["robocall"]["reasons"] = json!([]);
        call["first_time_caller"] = Value::Null;
        call["attribution"]["parameters"] = json!({});
    }
    log.erase(&Whom::Call(id.clone()), Millis(60_000)).await.unwrap();
    assert_eq!(bodies().await, wanted);
    // A later report may contain the verdict again.
    let again = change("CA1", "+14155551234", 31, EventKind::CallerLegEnded(1));
    store(&log, &[CallChange { stir: Some(stir), ..again }]).await;
    let call = log.call(&id).await.unwrap().unwrap().call.to_json();
    assert_eq!((&call["stir"], &call["robocall"]["reasons"]), (&Value::Null, &json!([])), "{call}");
    wanted.truncate(3);
    let bodies = async || bodies().await.into_iter().take(3).collect::<Vec<_>>();
    // Bodies without type and time, left by an earlier release, get both back.
    let mut tx = log.database().write().await.unwrap();
    let body = json!({ "data": { "id": id, "redacted": true } }).to_string();
    sqlx::query("UPDATE call_events SET body = $1").bind(body).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    log.erase(&Whom::Call(id), Millis(60_000)).await.unwrap();
    for (event, before) in bodies().await.iter().zip(&wanted) {
        assert_eq!((&event["type"], &event["timestamp"]), (&before["type"], &before["timestamp"]));
    }
}

/// A call cannot belong to a visitor who saw the number after it.
#[tokio::test]
async fn an_erased_call_that_began_earlier_than_was_known_is_attributed_again() {
    let (log, _folder) = log().await;
    let started = change("CA1", "+14155551234", 20, EventKind::Started);
    let id = started.id();
    store(&log, &[CallChange { attribution: Some(visitor(15)), ..started.clone() }]).await;
    log.erase(&Whom::Call(id.clone()), Millis(60_000)).await.unwrap();
    let earlier = change("CA1", "+14155551234", 10, EventKind::Started);
    let applied = writer::together(&log, Millis(50_000), [&earlier].into_iter()).await.unwrap();
    let looked_up = (Some(NUMBER.to_owned()), Millis(10_000));
    assert_eq!(applied[0].unattributed.as_ref(), Some(&looked_up));
    let about = CallChange::about(started.account, started.provider, started.provider_call);
    let (attribution, looked_up) = (Some(visitor(5)), Some(looked_up));
    store(&log, &[CallChange { attribution, looked_up, ..about }]).await;
    let call = log.call(&id).await.unwrap().unwrap().call;
    assert_eq!(call.caller, Caller::Withheld);
    let allocation = call.attribution.allocation.unwrap();
    assert_eq!((allocation.allocated_ms, allocation.parameters.len()), (5_000, 0));
    assert!(!log.events(0, 10).await.unwrap().iter().any(|it| it.body.contains("of-a-visitor")));
    // A repeated erasure lists the visitor who was found after the first one. It does so once.
    let parameters = fingerprint(&visitor(5).allocation.unwrap().parameters);
    let allocations = vec![ErasedAllocation { number: NUMBER.to_owned(), parameters }];
    let caller = Whom::Caller(Caller::read("+14155551234"));
    for (whom, calls) in [(Whom::Call(id), 1), (caller.clone(), 0)] {
        let listed = log.to_erase(&whom).await.unwrap();
        assert_eq!((listed.calls, &listed.allocations), (calls, &allocations), "{whom:?}");
    }
    assert_eq!(log.erase(&caller, Millis(60_000)).await.unwrap().allocations, allocations);
    assert_eq!(log.erase(&caller, Millis(60_000)).await.unwrap(), Erased::default());
}

/// A visitor's page URL may contain the same parameter twice. Only the last value is shown, but an
/// erasure finds the visitor by either value.
#[tokio::test]
async fn a_visitor_is_found_by_each_value_of_a_parameter_and_with_the_escapes_of_its_url() {
    for (given, is_theirs) in [
        (("gclid", "first"), true),
        (("gclid", "second"), true),
        (("utm_term", "blue shoes"), true),
        (("utm_term", "blue+shoes"), true),
        (("utm%5Fterm", "blue%20shoes"), true),
        (("gclid", "third"), false),
        (("gclid", "of-a-visitor"), false),
    ] {
        let (log, _folder) = log().await;
        let mut attribution = visitor(5);
        attribution.allocation.as_mut().unwrap().parameters =
            [("gclid", "first"), ("utm_term", "blue shoes"), ("gclid", "second")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec();
        let call = change("CA1", "+14155551234", 10, EventKind::Started);
        store(&log, &[CallChange { attribution: Some(attribution), ..call }]).await;
        let found = log.calls(&CallFilter::default(), None, 1).await.unwrap().remove(0).to_json();
        let shown = json!({ "gclid": "second", "utm_term": "blue shoes" });
        assert_eq!(found["attribution"]["parameters"], shown);
        let (name, value) = (given.0.to_owned(), given.1.to_owned());
        let erased = log.erase(&Whom::Parameter { name, value }, Millis(60_000)).await.unwrap();
        assert_eq!(erased.calls, u64::from(is_theirs), "{given:?}");
    }
}

/// The answer to an erasure may be lost, so an erasure must erase only allocations that were listed
/// before.
#[tokio::test]
async fn only_allocations_that_are_listed_are_erased() {
    let (log, _folder) = log().await;
    let call = |id: &str, at_s: u64, gclid: &str| {
        let mut attribution = visitor(at_s);
        attribution.allocation.as_mut().unwrap().parameters =
            vec![("gclid".to_owned(), gclid.to_owned())];
        let change = change(id, "+14155551234", at_s + 5, EventKind::Started);
        CallChange { attribution: Some(attribution), ..change }
    };
    store(&log, &[call("CA1", 5, "b"), call("CA2", 15, "a"), call("CA3", 25, "b")]).await;
    let whom = Whom::Caller(Caller::read("+14155551234"));
    let listed = log.to_erase(&whom).await.unwrap();
    assert_eq!((listed.calls, listed.allocations.len()), (3, 2));
    // The caller calls again, as another visitor.
    store(&log, &[call("CA4", 35, "c")]).await;
    let erased = log.erase_if(&whom, Some(&listed.list()), Millis(60_000)).await.unwrap();
    assert_eq!(erased, None);
    assert_eq!(found_by(&log, Caller::read("+14155551234")).await, 4);
    let listed = log.to_erase(&whom).await.unwrap();
    let erased = log.erase_if(&whom, Some(&listed.list()), Millis(60_000)).await.unwrap();
    assert_eq!(erased, Some(listed));
    assert_eq!(log.to_erase(&whom).await.unwrap(), Erased::default());
}

/// A report with an earlier time moves a call to the visitor who had the number before. The first
/// events of the call still contain the other visitor's parameters.
#[tokio::test]
async fn a_visitor_of_an_earlier_look_up_is_erased_from_the_events_too() {
    let of = |at_s: u64, gclid: &str| {
        let mut attribution = visitor(at_s);
        attribution.allocation.as_mut().unwrap().parameters =
            vec![("gclid".to_owned(), gclid.to_owned())];
        attribution
    };
    let whom = Whom::Parameter { name: "gclid".to_owned(), value: "V2-SECRET".to_owned() };
    let list = ErasedAllocation {
        number: NUMBER.to_owned(),
        parameters: fingerprint(&of(15, "V2-SECRET").allocation.unwrap().parameters),
    };
    for (whom, is_pending, has_other) in [
        (whom.clone(), false, false),
        (whom.clone(), false, true),
        (whom, true, false),
        (Whom::Visitors(vec![list.clone()]), false, true),
    ] {
        let (log, _folder) = log().await;
        let started = change("CA1", "+14155551234", 20, EventKind::Started);
        let id = started.id();
        let about = CallChange::about("main".into(), "twilio".into(), "CA1".into());
        store(&log, &[CallChange { attribution: Some(of(15, "V2-SECRET")), ..started }]).await;
        if has_other {
            let other = change("CA2", "+14155559876", 30, EventKind::Started);
            store(&log, &[CallChange { attribution: Some(of(15, "V2-SECRET")), ..other }]).await;
        }
        store(&log, &[change("CA1", "", 10, EventKind::Answered)]).await;
        let found = CallChange {
            attribution: Some(of(5, "V1-OTHER")),
            looked_up: Some((Some(NUMBER.to_owned()), Millis(10_000))),
            ..about
        };
        if !is_pending {
            store(&log, std::slice::from_ref(&found)).await;
        }
        let shown = log.call(&id).await.unwrap().unwrap().call.to_json().to_string();
        assert!(!shown.contains("V2-SECRET"), "{shown}");
        let listed = log.to_erase(&whom).await.unwrap().allocations;
        assert_eq!(listed, std::slice::from_ref(&list), "{whom:?}");
        let erased = log.erase(&whom, Millis(60_000)).await.unwrap();
        assert_eq!(erased.allocations, std::slice::from_ref(&list), "{whom:?}");
        let is_by_list = matches!(whom, Whom::Visitors(_));
        let own = u64::from(has_other && !is_by_list);
        assert_eq!((erased.calls, erased.others), (own, 1 + u64::from(has_other) - own));
        assert_eq!(log.to_erase(&whom).await.unwrap().allocations, []);
        if is_pending {
            store(&log, &[found]).await;
        }
        let events = log.events(0, 20).await.unwrap();
        assert!(!events.iter().any(|it| it.body.contains("V2-SECRET")), "{events:?}");
        assert!(events.iter().any(|it| it.body.contains("V1-OTHER")), "{events:?}");
        let mut tx = log.database().read().await.unwrap();
        let columns =
            sqlx::query("SELECT attribution FROM calls").fetch_all(&mut *tx).await.unwrap();
        for row in columns {
            let column: Option<String> = row.try_get(0).unwrap();
            assert!(!column.unwrap_or_default().contains("V2-SECRET"));
        }
    }
}
