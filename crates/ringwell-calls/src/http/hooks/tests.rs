use std::collections::BTreeSet;

use axum::http::{HeaderMap, Method};
use ringwell_config::{
    CallAccount, CallProvider, Calls, DestinationRule, OpenHours, Secret, UnknownNumber,
};
use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_store::Location;

use super::*;
use crate::attribution::{FoundKeepAlives, History, Holders, Numbers, Serving};
use crate::call::{CallState, Outcome};
use crate::log::Log;

/// A node without numbers.
struct Empty;

impl Numbers for Empty {
    fn pools(&self, _: PromoNumber) -> Vec<Serving> {
        Vec::new()
    }

    fn has_pool(&self, _: PoolId) -> Option<bool> {
        Some(false)
    }

    fn holders(&self, _: PromoNumber, _: Millis, _: usize) -> Holders<'_> {
        Box::pin(async { Ok(History::default()) })
    }

    fn keep_alives(&self, _: PromoNumber, _: Millis, _: Millis) -> FoundKeepAlives<'_> {
        Box::pin(async { None })
    }
}

/// Destinations, by the last digit of their numbers. During the minutes of the day in `hours`, `to`
/// is called; at other times, `closed` is called.
fn settings(to: &[u8], hours: Option<(u16, u16)>, closed: &[u8]) -> Calls {
    let numbers = |all: &[u8]| all.iter().map(|n| format!("+1800555000{n}")).collect();
    let rule = DestinationRule {
        ring_pools: BTreeSet::new(),
        numbers: BTreeSet::new(),
        to: numbers(to),
        timeout: Duration::from_secs(30),
        whisper: None,
        caller_id: None,
        hours: hours.map(|minutes| OpenHours { days: (0, 6), minutes }).into_iter().collect(),
        time_zone: "UTC".to_owned(),
        closed: numbers(closed),
    };
    let account = CallAccount {
        name: "main".to_owned(),
        provider: CallProvider::Twilio,
        public_url: "https://h".to_owned(),
        secrets: vec![Secret::parse("0123456789abcdef").unwrap()],
        shared_keys: Vec::new(),
        unknown_number: UnknownNumber::Unavailable,
    };
    Calls { accounts: vec![account], destinations: vec![rule], ..Calls::default() }
}

/// Sends a request about the call `call` to `target`. Returns the last digit of the destination in
/// the answer, and the target of the next request. `None` if there is no destination.
async fn send(service: &Service, call: &str, target: &str, status: &str) -> Option<(u8, String)> {
    let account = service.account("main").unwrap();
    let mut headers = HeaderMap::new();
    let form = "application/x-www-form-urlencoded".parse().unwrap();
    headers.insert("content-type", form);
    let body = format!("CallSid={call}&To=%2B18005550100&From=%2B14155551234&{status}");
    let (method, target, body) = (Method::POST, target.to_owned(), body.into_bytes());
    let incoming = Incoming { method, target, headers, body, received: now() };
    let path = incoming.target.split('?').next().unwrap();
    let hook = Hook::parse(path.rsplit('/').next().unwrap()).unwrap();
    let report = provider::read(&account, hook, &incoming).unwrap();
    let answer = answer(service, &account, hook, &incoming, report).await;
    let text = provider::document(&account, &answer.ok().unwrap()).body;
    let (_, rest) = text.split_once("action=\"https://h")?;
    let next = rest.split('"').next().unwrap().replace("&amp;", "&");
    let (before, _) = text.split_once("</Number>").unwrap();
    Some((before.bytes().last().unwrap() - b'0', next))
}

/// Returns the last digits of the destinations that ring if no destination answers and the settings
/// change while the first one rings. `next` replaces the first answer's target, if it is given.
async fn rung(call: &str, before: &Calls, after: &Calls, next: Option<&str>) -> Vec<u8> {
    let folder = tempfile::TempDir::new().unwrap();
    let log = Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
    let service = Service::start(before, log, std::sync::Arc::new(Empty)).unwrap();
    let mut rung = Vec::new();
    let mut answer = send(&service, call, "/t/main/answer", "CallStatus=ringing").await;
    service.reload(after).unwrap();
    let mut replaced = next;
    while let Some((to, target)) = answer {
        rung.push(to);
        assert!(rung.len() < 40, "the call never ends");
        let target = replaced.take().map_or(target, str::to_owned);
        answer = send(&service, call, &target, "DialCallStatus=no-answer").await;
    }
    let found = service.log().call(&crate::log::call_id("main", call)).await.unwrap().unwrap();
    assert_eq!(found.call.facts.outcome(), Some(crate::call::Outcome::NoAnswer));
    assert_eq!(found.call.facts.state(), crate::call::CallState::Ended);
    service.close().await;
    rung
}

/// A minute of the day that is neither the current one nor the next.
fn other_minute() -> (u16, u16) {
    let minute = u16::try_from(now().0 / 60_000 % 1440).unwrap();
    let other = (minute + 720) % 1440;
    (other, other + 1)
}

#[tokio::test]
async fn a_call_that_rings_tries_each_destination_of_the_present_list_once() {
    for (before, after, wanted) in [
        (&[1, 2, 3][..], &[1, 2, 3][..], &[1, 2, 3][..]),
        (&[1, 2, 3], &[2, 3], &[1, 2, 3]),
        (&[1, 2, 3], &[3], &[1, 3]),
        (&[1], &[3], &[1, 3]),
        (&[1, 2, 3], &[2, 1, 3], &[1, 2, 3]),
        (&[1, 2], &[1], &[1]),
        // A destination that is listed twice rings twice.
        (&[1, 2, 1], &[1, 2, 1], &[1, 2, 1]),
    ] {
        let (old, new) = (settings(before, None, &[]), settings(after, None, &[]));
        assert_eq!(rung("CA1", &old, &new, None).await, wanted, "{before:?} -> {after:?}");
    }
}

#[tokio::test]
async fn a_call_that_rings_at_closing_time_goes_on_to_the_closed_destinations() {
    for (to, closed, wanted) in [
        (&[1, 2][..], &[9][..], &[1, 9][..]),
        (&[1], &[9], &[1, 9]),
        (&[1, 2], &[1], &[1]),
        (&[1, 2], &[], &[1]),
    ] {
        let open = settings(to, None, closed);
        let shut = settings(to, Some(other_minute()), closed);
        assert_eq!(rung("CA1", &open, &shut, None).await, wanted, "{to:?}, then {closed:?}");
    }
}

/// An earlier release put only the destination's index into its URLs. All destinations up to and
/// including that index count as tried.
#[tokio::test]
async fn the_url_of_an_earlier_release_names_the_destinations_before_it() {
    let same = settings(&[1, 2, 3], None, &[]);
    let old = "/t/main/dial?leg=1&n=18005550100";
    assert_eq!(rung("CA1", &same, &same, Some(old)).await, [1, 3]);
    let old = "/t/main/dial?leg=2&last=1&n=18005550100";
    assert_eq!(rung("CA1", &same, &same, Some(old)).await, [1]);
}

async fn begin(to: &[u8]) -> (Service, tempfile::TempDir) {
    let folder = tempfile::TempDir::new().unwrap();
    let log = Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
    let service = Service::start(&settings(to, None, &[]), log, std::sync::Arc::new(Empty));
    (service.unwrap(), folder)
}

async fn facts(service: &Service, call: &str) -> (CallState, Option<Outcome>, Option<u32>) {
    let id = crate::log::call_id("main", call);
    let facts = service.log().call(&id).await.unwrap().unwrap().call.facts;
    (facts.state(), facts.outcome(), facts.talk_seconds())
}

#[tokio::test]
async fn the_outcome_does_not_depend_on_the_order_of_the_destinations() {
    let (service, _folder) = begin(&[1, 2, 3]).await;
    for (n, (statuses, wanted)) in [
        (["busy", "no-answer", "failed"], Outcome::Busy),
        (["failed", "no-answer", "busy"], Outcome::Busy),
        (["no-answer", "failed", "failed"], Outcome::NoAnswer),
    ]
    .into_iter()
    .enumerate()
    {
        let call = format!("CA{n}");
        let mut answer = send(&service, &call, "/t/main/answer", "CallStatus=ringing").await;
        for status in statuses {
            let (_, target) = answer.unwrap();
            answer = send(&service, &call, &target, &format!("DialCallStatus={status}")).await;
        }
        assert_eq!(answer, None);
        let ended = (CallState::Ended, Some(wanted), Some(0));
        assert_eq!(facts(&service, &call).await, ended, "{statuses:?}");
        let over = "CallStatus=completed&CallDuration=0";
        send(&service, &call, "/t/main/status", over).await;
        assert_eq!(facts(&service, &call).await, ended, "{statuses:?}");
    }
    service.close().await;
}

/// A repeated report about the first destination does not end the call while the caller talks to
/// the second one, even if the second one is no longer configured.
#[tokio::test]
async fn a_repeated_report_does_not_end_a_conversation() {
    let (service, _folder) = begin(&[1, 2]).await;
    let (_, first) = send(&service, "CA1", "/t/main/answer", "CallStatus=ringing").await.unwrap();
    let (_, second) = send(&service, "CA1", &first, "DialCallStatus=no-answer").await.unwrap();
    let answered = "ParentCallSid=CA1&CallStatus=in-progress";
    send(&service, "CB1", "/t/main/status", answered).await;
    service.reload(&settings(&[1], None, &[])).unwrap();
    assert_eq!(send(&service, "CA1", &first, "DialCallStatus=no-answer").await, None);
    assert_eq!(facts(&service, "CA1").await, (CallState::Answered, None, None));
    send(&service, "CA1", &second, "DialCallStatus=completed&DialCallDuration=5").await;
    let (state, outcome, talk) = facts(&service, "CA1").await;
    assert_eq!((state, outcome, talk), (CallState::Ended, Some(Outcome::Answered), Some(5)));
    service.close().await;
}
