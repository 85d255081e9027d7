use std::time::Duration;

use ringwell_config::{
    CallAccount, CallProvider, CallerIds, DestinationRule, Secret, UnknownNumber,
};
use ringwell_core::PoolId;
use ringwell_core::PromoNumber;
use ringwell_store::Location;
use tokio::sync::watch;

use super::*;
use crate::attribution::{
    Attributed, FoundKeepAlives, History, HolderError, Holders, ReportedAllocation, Serving,
};
use crate::call::{EventKind, Outcome};
use crate::log::{CallFilter, Whom};
use crate::number::promo_number;

/// The pools that serve `number`. Only +18005551212 is in a pool.
fn serving(number: PromoNumber) -> Vec<Serving> {
    let serving = Serving { pool: PoolId(16), name: None, is_overflow: false };
    if promo_number("+18005551212") == Some(number) { vec![serving] } else { Vec::new() }
}

/// A node that answers look-ups of holders only when the test permits it.
struct Slow(watch::Receiver<bool>);

impl Numbers for Slow {
    fn pools(&self, number: PromoNumber) -> Vec<Serving> {
        serving(number)
    }

    fn has_pool(&self, pool: PoolId) -> Option<bool> {
        Some(pool == PoolId(16))
    }

    fn holders(&self, _: PromoNumber, at: Millis, _: usize) -> Holders<'_> {
        let mut let_go = self.0.clone();
        Box::pin(async move {
            let _ = let_go.wait_for(|it| *it).await;
            let allocation = ReportedAllocation {
                pool: Some(PoolId(16)),
                allocated_at: Millis(at.0 - 1000),
                locked_until: Millis(at.0 + 1000),
                tapped_at: None,
                parameters: vec![("gclid".to_owned(), "abc-of-a-visitor".to_owned())],
            };
            Ok(History { allocations: vec![allocation], unknown: None })
        })
    }

    fn keep_alives(&self, _: PromoNumber, _: Millis, _: Millis) -> FoundKeepAlives<'_> {
        Box::pin(async { None })
    }
}

/// A node that handed out each number once, at the given time.
struct HandedOut(Millis);

impl Numbers for HandedOut {
    fn pools(&self, number: PromoNumber) -> Vec<Serving> {
        serving(number)
    }

    fn has_pool(&self, pool: PoolId) -> Option<bool> {
        Some(pool == PoolId(16))
    }

    fn holders(&self, _: PromoNumber, at: Millis, _: usize) -> Holders<'_> {
        let allocation = ReportedAllocation {
            pool: Some(PoolId(16)),
            allocated_at: self.0,
            locked_until: Millis(self.0.0 + 60_000),
            tapped_at: None,
            parameters: Vec::new(),
        };
        let known = (self.0 <= at).then_some(allocation);
        let allocations = known.into_iter().collect();
        Box::pin(async { Ok(History { allocations, unknown: None }) })
    }

    fn keep_alives(&self, _: PromoNumber, _: Millis, _: Millis) -> FoundKeepAlives<'_> {
        Box::pin(async { None })
    }
}

/// A node without history, as after a restore. +18005551200 is the overflow number of pool 16, and
/// +180055512NN is in pool NN.
struct Restored;

impl Numbers for Restored {
    fn pools(&self, number: PromoNumber) -> Vec<Serving> {
        let pool = number.to_string().strip_prefix("80055512").and_then(|pool| pool.parse().ok());
        let serving = |pool| match pool {
            0 => Serving { pool: PoolId(16), name: None, is_overflow: true },
            pool => Serving { pool: PoolId(pool), name: None, is_overflow: false },
        };
        pool.map(serving).into_iter().collect()
    }

    fn has_pool(&self, _: PoolId) -> Option<bool> {
        Some(true)
    }

    fn holders(&self, _: PromoNumber, _: Millis, _: usize) -> Holders<'_> {
        let gone = HolderError::Gone("the history does not go back that far".to_owned());
        Box::pin(async { Err(gone) })
    }

    fn keep_alives(&self, _: PromoNumber, _: Millis, _: Millis) -> FoundKeepAlives<'_> {
        Box::pin(async { None })
    }
}

async fn restored(settings: &Calls) -> (Service, tempfile::TempDir) {
    let folder = tempfile::TempDir::new().unwrap();
    let log = Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
    (Service::start(settings, log, Arc::new(Restored)).unwrap(), folder)
}

fn settings() -> Calls {
    Calls { destinations: vec![rule(16, &["+18005550199"])], ..Calls::default() }
}

fn rule(pool: u64, to: &[&str]) -> DestinationRule {
    DestinationRule {
        ring_pools: [PoolId(pool)].into(),
        numbers: std::collections::BTreeSet::new(),
        to: to.iter().map(|to| (*to).to_owned()).collect(),
        timeout: Duration::from_secs(30),
        whisper: None,
        caller_id: None,
        hours: Vec::new(),
        time_zone: "UTC".to_owned(),
        closed: Vec::new(),
    }
}

fn ring(call: &str, from: &str) -> IncomingCall {
    let received = now();
    let kind = EventKind::Started;
    let event = CallEvent { key: "started".to_owned(), kind, at: received, talk_seconds: None };
    IncomingCall {
        account: "main".to_owned(),
        provider: "twilio".to_owned(),
        provider_call: call.to_owned(),
        to: Some("+18005551212".to_owned()),
        from: Some(from.to_owned()),
        stir: None,
        events: vec![event],
        received,
    }
}

async fn service(settings: &Calls, let_go: watch::Receiver<bool>) -> (Service, tempfile::TempDir) {
    let folder = tempfile::TempDir::new().unwrap();
    let location = Location::File(folder.path().join("calls.sqlite"));
    let log = Log::open(&location).await.unwrap();
    (Service::start(settings, log, Arc::new(Slow(let_go))).unwrap(), folder)
}

#[tokio::test]
async fn a_caller_is_connected_in_time_while_the_shards_hang_and_the_log_is_completed_later() {
    let (let_go, waits) = watch::channel(false);
    let (service, _folder) = service(&settings(), waits).await;
    let began = Instant::now();
    let decision = service.incoming(ring("CA1", "+14155551234")).await;
    assert!(began.elapsed() < Duration::from_millis(400), "{:?}", began.elapsed());
    assert_eq!(decision.destination.plan().unwrap().to, ["+18005550199"]);
    assert_eq!(decision.attribution, None);
    let_go.send_replace(true);
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let call = service.log().call(&decision.call).await.unwrap();
        if call.is_some_and(|call| call.call.attribution.outcome == Attributed::Allocated) {
            break;
        }
        assert!(Instant::now() < until, "the log is not completed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(service.log().events(0, 10).await.unwrap()[0].kind, "call.started");
}

/// In tests, at most four look-ups are in progress at the same time.
#[tokio::test]
async fn calls_beyond_the_maximum_of_look_ups_are_attributed_later() {
    let (let_go, waits) = watch::channel(false);
    let (service, _folder) = service(&settings(), waits).await;
    for call in 0..20 {
        service.report(ring(&format!("CA{call}"), "+14155551234")).await.unwrap();
    }
    let_go.send_replace(true);
    let until = Instant::now() + Duration::from_secs(20);
    while !service.log().unattributed(20).await.unwrap().is_empty() {
        assert!(Instant::now() < until, "calls stay pending");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// If the called number is in quarantine or retired, its last visitor may still call it, so the
/// former pool's destination is used.
#[tokio::test]
async fn a_number_that_has_left_its_pool_keeps_the_destination_of_that_pool() {
    let (_let_go, waits) = watch::channel(true);
    let (service, folder) = service(&settings(), waits).await;
    let of = |to: &str| IncomingCall { to: Some(to.to_owned()), ..ring("CA1", "+14155551234") };
    let decision = service.incoming(of("+18005551213")).await;
    assert_eq!(decision.destination.plan().unwrap().to, ["+18005550199"]);
    let next =
        service.plan_of_call(("main", &decision.call), decision.number.as_deref(), now()).await;
    assert_eq!(next.unwrap().to, ["+18005550199"]);
    let call = service.log().call(&decision.call).await.unwrap().unwrap();
    assert_eq!(call.call.destination.as_deref(), Some("+18005550199"));

    // Another node, or the next process, finds the call only in the log.
    let log = Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
    let (_let_go, waits) = watch::channel(true);
    let other = Service::start(&settings(), log, Arc::new(Slow(waits))).unwrap();
    let next =
        other.plan_of_call(("main", &decision.call), decision.number.as_deref(), now()).await;
    assert_eq!(next.unwrap().to, ["+18005550199"]);
}

/// Most providers truncate times to whole seconds, so a call's reported time may be before the
/// allocation. Such a call is still attributed.
#[tokio::test]
async fn a_call_reported_for_the_second_in_which_its_number_was_shown_is_attributed() {
    let second = Millis(now().0 / 1000 * 1000);
    for (allocated_after, called_after, wanted) in [
        (400, 0, Attributed::Allocated),
        (999, 0, Attributed::Allocated),
        (1000, 0, Attributed::None),
        (400, 300, Attributed::None),
    ] {
        let folder = tempfile::TempDir::new().unwrap();
        let log = Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
        let shown = HandedOut(Millis(second.0 + allocated_after));
        let service = Service::start(&settings(), log, Arc::new(shown)).unwrap();
        let mut call = ring("CA1", "+14155551234");
        call.events[0].at = Millis(second.0 + called_after);
        let decision = service.incoming(call).await;
        let found = decision.attribution.map(|it| it.outcome);
        assert_eq!(found, Some(wanted), "{allocated_after} and {called_after} ms");
    }
}

#[tokio::test]
async fn a_caller_is_connected_while_another_program_holds_the_database() {
    let (service, folder) = service(&settings(), watch::channel(true).1).await;
    let other = Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
    let held = other.database().write().await.unwrap();
    let began = Instant::now();
    let decision = service.incoming(ring("CA1", "+14155551234")).await;
    assert!(began.elapsed() < Duration::from_millis(400), "{:?}", began.elapsed());
    assert_eq!(decision.destination.plan().unwrap().to, ["+18005550199"]);
    assert_eq!(service.log().calls(&CallFilter::default(), None, 10).await.unwrap(), []);
    drop(held);
    let until = Instant::now() + Duration::from_secs(15);
    while service.log().calls(&CallFilter::default(), None, 10).await.unwrap().is_empty() {
        assert!(Instant::now() < until, "the call is not logged");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn callers_are_stored_hashed_or_not_at_all() {
    let waits = watch::channel(true).1;
    for (mode, wanted) in
        [(CallerIds::Store, "+"), (CallerIds::Hash, "hash:"), (CallerIds::Drop, "")]
    {
        let settings = Calls { caller_ids: mode, ..settings() };
        let (service, _folder) = service(&settings, waits.clone()).await;
        for call in ["CA1", "CA2"] {
            service.incoming(ring(call, "+14155551234")).await;
        }
        let calls = service.log().calls(&CallFilter::default(), None, 10).await.unwrap();
        let columns: Vec<_> = calls.iter().map(|it| it.caller.to_column()).collect();
        assert_eq!((columns.len(), &columns[0]), (2, &columns[1]));
        assert!(columns[0].clone().unwrap_or_default().starts_with(wanted), "{columns:?}");
        assert_eq!(columns[0].is_none(), mode == CallerIds::Drop);
        // Calls whose caller is stored as a hash must still be found by the caller's number.
        let (caller, wanted) =
            (Caller::read("+14155551234"), if mode == CallerIds::Drop { 0 } else { 2 });
        let filter = CallFilter { caller: Some(caller.clone()), ..CallFilter::default() };
        assert_eq!(service.log().calls(&filter, None, 10).await.unwrap().len(), wanted);
        let erased = service.log().erase(&Whom::Caller(caller), now()).await.unwrap();
        assert_eq!(erased.calls, wanted as u64);
    }
}

#[tokio::test]
async fn erased_data_is_found_nowhere_in_the_files() {
    let (service, folder) = service(&settings(), watch::channel(true).1).await;
    for call in ["CA1", "CA2", "CA3"] {
        service.incoming(ring(call, "+14155551234")).await;
    }
    service.incoming(ring("CA4", "+14155559999")).await;
    let holds = |text: &str| {
        let files = std::fs::read_dir(folder.path()).unwrap();
        let bytes = files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap());
        let bytes: Vec<u8> = bytes.collect();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    assert!(holds("4155551234"));
    let caller = Caller::read("+14155551234");
    let whom = Whom::Caller(caller);
    let erased = service.log().erase(&whom, now()).await.unwrap();
    // The caller made three calls, which are attributed to the same allocation.
    assert_eq!((erased.calls, erased.allocations.len()), (3, 1));
    assert!(!holds("4155551234") && holds("4155559999"));
    let calls = service.log().calls(&CallFilter::default(), None, 10).await.unwrap();
    assert_eq!(calls.iter().filter(|it| it.redacted_at.is_some()).count(), 3);
    // A later report about an erased call must not restore the caller.
    service.incoming(ring("CA1", "+14155551234")).await;
    assert!(!holds("4155551234"));
    assert_eq!(service.log().erase(&whom, now()).await.unwrap().calls, 0);
}

#[tokio::test]
async fn calls_are_redacted_and_removed_by_their_age() {
    let (service, _folder) = service(&settings(), watch::channel(true).1).await;
    service.incoming(ring("CA1", "+14155551234")).await;
    let log = service.log();
    let later = now() + Millis(1000);
    assert_eq!(log.redact_before(Millis(1), later).await.unwrap(), 0);
    assert_eq!(log.redact_before(later, later).await.unwrap(), 1);
    assert_eq!(log.redact_before(later, later).await.unwrap(), 0);
    let call = log.calls(&CallFilter::default(), None, 10).await.unwrap().remove(0);
    assert_eq!((call.caller, call.attribution.outcome), (Caller::Withheld, Attributed::Allocated));
    assert!(call.attribution.allocation.unwrap().parameters.is_empty());
    assert!(!log.events(0, 1).await.unwrap()[0].body.contains("of-a-visitor"));
    assert_eq!(log.remove_before(later, later).await.unwrap(), 1);
    assert_eq!(log.calls(&CallFilter::default(), None, 10).await.unwrap(), []);
    assert!(log.events(0, 10).await.unwrap().is_empty());
}

/// Settings with one account, which handles calls without a destination according to
/// `unknown_number`.
fn without_destinations(unknown_number: UnknownNumber) -> Calls {
    let account = CallAccount {
        name: "main".to_owned(),
        provider: CallProvider::Twilio,
        public_url: "https://calls.example".to_owned(),
        secrets: vec![Secret::parse("0123456789abcdef").unwrap()],
        shared_keys: Vec::new(),
        unknown_number,
    };
    Calls { accounts: vec![account], ..Calls::default() }
}

#[tokio::test]
async fn a_refused_call_to_a_number_without_a_destination_is_over() {
    let refusals =
        [(UnknownNumber::Reject, Outcome::Rejected), (UnknownNumber::Busy, Outcome::Busy)];
    for (unknown_number, outcome) in refusals {
        let settings = without_destinations(unknown_number);
        let (service, _folder) = service(&settings, watch::channel(true).1).await;
        let decision = service.incoming(ring("CA1", "+14155551234")).await;
        let call = service.log().call(&decision.call).await.unwrap().unwrap().call;
        assert_eq!(call.facts.outcome(), Some(outcome));
    }
    let to = UnknownNumber::Connect("+18005550111".to_owned());
    let (service, _folder) = service(&without_destinations(to), watch::channel(true).1).await;
    let decision = service.incoming(ring("CA1", "+14155551234")).await;
    let call = service.log().call(&decision.call).await.unwrap().unwrap().call;
    assert_eq!((call.facts.outcome(), call.destination.as_deref()), (None, Some("+18005550111")));
}

#[tokio::test]
async fn a_call_without_a_destination_has_failed_unless_the_provider_reports_otherwise() {
    let settings = without_destinations(UnknownNumber::Unavailable);
    let (service, _folder) = service(&settings, watch::channel(true).1).await;
    let mut ids = Vec::new();
    for id in ["silent", "ended", "answered"] {
        ids.push(service.incoming(ring(id, "+14155551234")).await.call);
    }
    let ended = |outcome| {
        let kind = EventKind::Ended(outcome);
        CallEvent { key: "end".to_owned(), kind, at: now(), talk_seconds: None }
    };
    for (id, outcome) in [("ended", None), ("answered", Some(Outcome::Answered))] {
        let events = vec![ended(outcome)];
        service.report(IncomingCall { events, ..ring(id, "+14155551234") }).await.unwrap();
    }
    let mut outcomes = Vec::new();
    for later in [Duration::from_hours(3), Duration::from_hours(5)] {
        let later = u64::try_from(later.as_millis()).unwrap();
        service.end_unreported(now() + Millis(later)).await.unwrap();
        for id in &ids {
            let call = service.log().call(id).await.unwrap().unwrap().call;
            outcomes.push(call.facts.outcome());
            assert!(call.facts.ring().is_none_or(|ring| ring < Millis(60_000)), "{call:?}");
        }
    }
    let (failed, answered) = (Some(Outcome::Failed), Some(Outcome::Answered));
    assert_eq!(outcomes, [None, failed, answered, failed, failed, answered]);
}

#[tokio::test]
async fn an_overflow_number_stays_one_if_the_history_is_gone() {
    let (service, _folder) = restored(&settings()).await;
    for (to, wanted) in
        [("+18005551200", Attributed::Overflow), ("+18005551216", Attributed::Unknown)]
    {
        let call = IncomingCall { to: Some(to.to_owned()), ..ring(to, "+14155551234") };
        let attribution = service.incoming(call).await.attribution.unwrap();
        assert_eq!((attribution.outcome, attribution.pool.unwrap().id), (wanted, 16), "{to}");
    }
}

#[tokio::test]
async fn an_unknown_number_is_not_called_if_its_calls_would_come_back() {
    let answer = async |calls: &Calls, to: &str| {
        let (service, _folder) = restored(calls).await;
        let call = IncomingCall { to: Some(to.to_owned()), ..ring("CA1", "+14155551234") };
        let decision = service.incoming(call).await;
        let logged = service.log().call(&decision.call).await.unwrap().unwrap().call.destination;
        assert_eq!(logged.as_ref(), decision.destination.plan().map(|plan| &plan.to[0]));
        decision.destination
    };
    let connects = |to: &str| without_destinations(UnknownNumber::Connect(to.to_owned()));
    let endless = "unknown_number, +18005551216, is not called";
    // `unknown_number` is the called number itself, or another of this server's numbers without a
    // destination.
    for (to, called) in [("+18005551216", "+18005551216"), ("+18005551216", "+18005551217")] {
        let Destination::None(reason) = answer(&connects(to), called).await else {
            panic!("{called} is connected")
        };
        assert!(reason.contains(endless), "{reason}");
    }
    let Destination::None(reason) = answer(&connects("+18005559999"), "+18005559999").await else {
        panic!("the number calls itself")
    };
    assert!(reason.contains("no [[calls.destination]]"), "{reason}");
    // One of this server's numbers whose calls leave the server, and a number elsewhere.
    let calls = Calls { destinations: settings().destinations, ..connects("+18005551216") };
    for (calls, to) in [(&calls, "+18005551216"), (&connects("+18005550100"), "+18005550100")] {
        let destination = answer(calls, "+18005551217").await;
        assert_eq!(destination.plan().unwrap().to, [to]);
    }
    let destination = answer(&calls, "+18005551216").await;
    assert_eq!(destination.plan().unwrap().to, ["+18005550199"]);
}

#[tokio::test]
async fn the_reason_of_a_call_without_a_destination_names_the_loop() {
    let calls = |rules| Calls { destinations: rules, ..Calls::default() };
    let incoming = async |rules, to: &str| {
        let (service, _folder) = restored(&calls(rules)).await;
        let call = IncomingCall { to: Some(to.to_owned()), ..ring("CA1", "+14155551234") };
        service.incoming(call).await.destination
    };
    let away = vec![rule(1, &["+18005551202"]), rule(2, &["+18005551201", "+18005550199"])];
    let to = incoming(away.clone(), "+18005551201").await;
    assert_eq!(to.plan().unwrap().to, ["+18005551202"]);
    let to = incoming(away, "+18005551202").await;
    assert_eq!(to.plan().unwrap().to, ["+18005550199"]);
    let endless = vec![rule(1, &["+18005551202"]), rule(2, &["+18005551201"])];
    let Destination::None(reason) = incoming(endless, "+18005551201").await else {
        panic!("the call loops")
    };
    assert!(reason.starts_with("calls to +18005551202 would return to this server"), "{reason}");
    let Destination::None(reason) = incoming(Vec::new(), "+18005551201").await else {
        panic!("no rule applies")
    };
    assert!(reason.starts_with("no [[calls.destination]]"), "{reason}");
}

#[tokio::test]
async fn a_caller_is_hashed_later_if_the_database_is_away_and_never_written_in_full() {
    let settings = Calls { caller_ids: CallerIds::Hash, ..settings() };
    let (service, folder) = service(&settings, watch::channel(true).1).await;
    let waiting = folder.path().join("waiting.jsonl");
    service.keep_in(&waiting);
    let other = Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
    let held = other.database().write().await.unwrap();
    for call in ["CA1", "CA2"] {
        service.incoming(ring(call, "+14155551234")).await;
    }
    assert!(service.is_behind());
    let kept = std::fs::read_to_string(&waiting).unwrap();
    assert!(kept.contains("CA1") && !kept.contains("4155551234"), "{kept}");
    drop(held);
    let until = Instant::now() + Duration::from_secs(20);
    while service.is_behind() {
        assert!(Instant::now() < until, "the callers are not hashed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let caller = Some(Caller::read("+14155551234"));
    let filter = CallFilter { caller, ..CallFilter::default() };
    let calls = service.log().calls(&filter, None, 10).await.unwrap();
    let first: Vec<_> = calls.iter().map(|call| call.first_time).collect();
    assert_eq!((calls.len(), first.contains(&Some(true))), (2, true));
}

#[tokio::test]
async fn the_files_do_not_contain_callers_that_were_redacted_or_unblocked() {
    let (service, folder) = service(&settings(), watch::channel(true).1).await;
    let contain = |digits: &str| {
        let files = ["calls.sqlite", "calls.sqlite-wal"].map(|name| folder.path().join(name));
        let mut bytes = files
            .iter()
            .flat_map(std::fs::read)
            .map(|it| String::from_utf8_lossy(&it).into_owned());
        bytes.any(|text| text.contains(digits))
    };
    service.incoming(ring("CA1", "+14155551234")).await;
    let caller = crate::block::Pattern::parse("+14155556789").unwrap();
    let block = crate::block::Block {
        caller,
        pool: None,
        answer: crate::provider::Refusal::Busy,
        note: None,
    };
    service.log().block(&block, now()).await.unwrap();
    assert!(contain("4155551234") && contain("4155556789"));
    let ages = service.settings().ages.map(|age| u64::try_from(age.as_millis()).unwrap());
    service.forget_due(Millis(now().0 + ages[0] + 1000)).await.unwrap();
    assert!(!contain("4155551234"));
    let id = service.log().blocks().await.unwrap()[0].id.clone();
    assert!(service.log().unblock(&id).await.unwrap());
    assert!(!contain("4155556789"));
    service.close().await;
}

/// Redacted and removed data cannot be restored, so nothing is redacted or removed while a clock
/// that has leapt is not trusted yet.
#[tokio::test]
async fn a_wall_clock_that_leaps_ahead_redacts_and_removes_nothing() {
    let (service, _folder) = restored(&settings()).await;
    service.incoming(ring("CA1", "+14155551234")).await;
    service.forget_old(now()).await.unwrap();
    let ages = service.settings().ages.map(|age| u64::try_from(age.as_millis()).unwrap());
    for age in ages {
        service.forget_old(Millis(now().0 + age + 1000)).await.unwrap();
    }
    let calls = service.log().calls(&CallFilter::default(), None, 10).await.unwrap();
    assert_eq!(calls[0].caller, Caller::read("+14155551234"));
    assert_eq!(service.log().events(0, 10).await.unwrap().len(), 1);
    service.close().await;
}
