use proptest::prelude::*;

use super::*;

/// Joins the reports, one per line in the form `at[+delay] kind [talk seconds]`, and checks the
/// result. With a delay, the provider's clock dates the report.
fn check(reports: &str, wanted: &str) {
    let mut facts = Facts::default();
    for (place, line) in reports.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate()
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (kind, outcome) = words[1].split_once(':').unwrap_or((words[1], ""));
        let kind = match kind {
            "started" => EventKind::Started,
            "ringing" => EventKind::Ringing,
            "answered" => EventKind::Answered,
            "leg" => EventKind::LegEnded(Outcome::parse(outcome).unwrap()),
            "ended" => EventKind::Ended(Outcome::parse(outcome)),
            "leg-of-caller" => EventKind::CallerLegEnded(outcome.parse().unwrap()),
            other => panic!("{other}"),
        };
        let talk_seconds = words.get(2).map(|seconds| seconds.parse().unwrap());
        let (at, delay) = words[0].split_once('+').unzip();
        let ms = |seconds: &str| Millis(seconds.parse::<u64>().unwrap() * 1000);
        let event = CallEvent {
            key: place.to_string(),
            kind,
            at: ms(at.unwrap_or(words[0])),
            talk_seconds,
        };
        facts.join(&event, delay.map(ms));
    }
    let seconds = |at: Option<Millis>| at.map_or("-".to_owned(), |at| (at.0 / 1000).to_string());
    let found = format!(
        "{} {} ring={} talk={}",
        facts.state().name(),
        facts.outcome().map_or("-", Outcome::name),
        seconds(facts.ring()),
        facts.talk_seconds().map_or("-".to_owned(), |talk| talk.to_string()),
    );
    assert_eq!(found, wanted, "{reports}");
}

#[test]
fn ring_and_talk_are_counted_apart() {
    check("10 started", "ringing - ring=- talk=-");
    check("10 started\n11 ringing\n15 answered", "answered - ring=5 talk=-");
    check("10 started\n15 answered\n75 ended:answered", "ended answered ring=5 talk=60");
    check("10 started\n15 answered\n75 ended:answered 58", "ended answered ring=5 talk=58");
    check("10 started\n75 ended:answered 60", "ended answered ring=5 talk=60");
    check("10 started\n40 ended:no_answer", "ended no_answer ring=30 talk=0");
}

#[test]
fn a_destination_that_gives_up_does_not_end_the_call() {
    check("10 started\n30 leg:no_answer", "ringing - ring=- talk=-");
    check("10 started\n30 leg:no_answer\n32 answered", "answered - ring=22 talk=-");
    check("10 started\n30 leg:busy\n31 ended", "ended busy ring=21 talk=0");
}

#[test]
fn an_end_without_a_reason_is_the_callers_if_no_destination_answered() {
    check("10 started\n13 ended", "ended caller_gave_up ring=3 talk=0");
    check("10 started\n12 answered\n20 ended", "ended answered ring=2 talk=8");
}

#[test]
fn a_callers_leg_shows_an_answer_only_if_nothing_else_is_reported() {
    check("10 started\n80 leg-of-caller:58", "ended answered ring=12 talk=58");
    check("80 leg-of-caller:58", "ended answered ring=0 talk=58");
    check("10 started\n13 leg-of-caller:0", "ended caller_gave_up ring=3 talk=0");
    check("10 started\n40 leg:no_answer\n41 leg-of-caller:30", "ended no_answer ring=31 talk=0");
    check("10 started\n41 leg-of-caller:30\n40 ended:busy", "ended busy ring=30 talk=0");
    check(
        "80 leg-of-caller:70\n80 ended:answered 58\n10 started",
        "ended answered ring=12 talk=58",
    );
}

#[test]
fn an_end_before_the_beginning_has_no_duration() {
    check("10 started\n5 ended:busy", "ended busy ring=0 talk=0");
    check("10 started\n5 ended:answered", "ended answered ring=- talk=-");
    check("10 started\n7 answered\n5 ended:answered", "ended answered ring=2 talk=0");
}

/// A server that hung may process the report of the beginning after later events were reported.
#[test]
fn the_call_begins_no_later_than_any_of_its_events() {
    check("20 started\n12+0 answered\n25 ended:answered", "ended answered ring=0 talk=13");
    check(
        "20 started\n11+9 ringing\n15+0 answered\n25 ended:answered",
        "ended answered ring=4 talk=10",
    );
    check("20 started\n11+9 ringing\n15+0 ended:no_answer", "ended no_answer ring=4 talk=0");
    check("20 started\n11 ringing\n15 ended:no_answer", "ended no_answer ring=4 talk=0");
    check("20+0 started\n14+0 leg:busy\n19 answered", "answered - ring=5 talk=-");
}

/// If the server's clock is 6 s ahead, all reports seem to arrive at least 6 s after their events.
#[test]
fn a_server_whose_clock_is_ahead_keeps_the_beginning() {
    let began = |reports: &[(EventKind, u64, Option<u64>)]| {
        let mut facts = Facts::default();
        for (kind, at, delay) in reports {
            let event =
                CallEvent { key: String::new(), kind: *kind, at: Millis(*at), talk_seconds: None };
            facts.join(&event, delay.map(Millis));
        }
        facts.started_at().0
    };
    let started = (EventKind::Started, 20_900, None);
    let ended = EventKind::Ended(None);
    for reports in [
        &[started, (EventKind::Ringing, 15_000, Some(6_300))][..],
        &[started, (EventKind::Ringing, 15_000, Some(6_300)), (ended, 60_000, Some(6_100))],
        // A provider whose clock is ahead of the server's.
        &[started, (EventKind::Ringing, 22_000, Some(0)), (ended, 60_000, Some(0))],
        &[(ended, 16_000, Some(7_000)), started],
    ] {
        assert_eq!(began(reports), 20_900, "{reports:?}");
    }
    // The server also hung.
    let late = [started, (EventKind::Answered, 8_500, Some(13_000)), (ended, 60_000, Some(6_100))];
    assert_eq!(began(&late), 14_600);
}

#[test]
fn an_end_of_an_unknown_call_creates_a_call() {
    check("70 ended:answered 60", "ended answered ring=0 talk=60");
    check("70+3 ended:answered 60", "ended answered ring=0 talk=60");
    check("70 ended:busy", "ended busy ring=0 talk=0");
}

/// After a restart, often only the end of a call is reported. Its duration shows when the call had
/// begun.
#[test]
fn an_end_with_a_duration_shows_the_beginning_of_a_call_without_one() {
    let began = |reports: &[(EventKind, u64, Option<u32>)]| {
        let mut facts = Facts::default();
        for (kind, at, talk_seconds) in reports {
            let (key, at) = (String::new(), Millis(*at * 1000));
            facts.join(&CallEvent { key, kind: *kind, at, talk_seconds: *talk_seconds }, None);
        }
        facts.started_at().0 / 1000
    };
    let ended = (EventKind::Ended(Some(Outcome::Answered)), 70, Some(60));
    assert_eq!(began(&[ended]), 10);
    assert_eq!(began(&[(EventKind::CallerLegEnded(60), 70, None)]), 10);
    assert_eq!(began(&[(EventKind::Ringing, 8, None), ended]), 8);
    // A wrong duration does not change a reported beginning.
    assert_eq!(began(&[ended, (EventKind::Started, 30, None)]), 30);
}

#[test]
fn an_answer_after_the_end_was_reported_still_counts() {
    check("10 started\n20 ended:no_answer\n15 answered", "ended answered ring=5 talk=5");
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(vec![
        Outcome::Answered,
        Outcome::Busy,
        Outcome::NoAnswer,
        Outcome::Rejected,
        Outcome::CallerGaveUp,
        Outcome::Failed,
    ])
}

/// An event, and the delay of its report if the provider's clock dates the event.
fn event() -> impl Strategy<Value = (CallEvent, Option<Millis>)> {
    let kind = prop_oneof![
        Just(EventKind::Started),
        Just(EventKind::Ringing),
        Just(EventKind::Answered),
        outcome().prop_map(EventKind::LegEnded),
        prop::option::of(outcome()).prop_map(EventKind::Ended),
        (0..90_u32).prop_map(EventKind::CallerLegEnded),
    ];
    let delay = prop::option::of((0..20_000_u64).prop_map(Millis));
    (kind, 0..100_u64, prop::option::of(0..90_u32), delay).prop_map(
        |(kind, at, talk_seconds, delay)| {
            let key = format!("{kind:?}");
            (CallEvent { key, kind, at: Millis(at * 1000), talk_seconds }, delay)
        },
    )
}

proptest! {
    #[test]
    fn reordered_and_repeated_events_give_the_same_call(
        events in prop::collection::vec(event(), 1..8),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
        shuffled in any::<u64>(),
    ) {
        let mut in_order = Facts::default();
        for (event, delay) in &events {
            in_order.join(event, *delay);
        }
        let mut mixed = Facts::default();
        // Delivers some reports early and more than once, then all reports in another order.
        for index in &order {
            let (event, delay) = index.get(&events);
            mixed.join(event, *delay);
        }
        let mut rest: Vec<_> = events.iter().enumerate().collect();
        rest.sort_by_key(|(place, _)| (*place as u64 + 1).wrapping_mul(shuffled | 1));
        for (_, (event, delay)) in rest {
            mixed.join(event, *delay);
        }
        prop_assert_eq!(&mixed, &in_order);
        for (event, delay) in &events {
            prop_assert!(!mixed.join(event, *delay), "a repeated event changes nothing");
        }
    }

    #[test]
    fn no_duration_is_negative_and_an_ended_call_stays_ended(
        events in prop::collection::vec(event(), 1..8),
    ) {
        let mut facts = Facts::default();
        let mut has_ended = false;
        for (event, delay) in &events {
            facts.join(event, *delay);
            prop_assert!(!has_ended || facts.state() == CallState::Ended);
            has_ended = facts.state() == CallState::Ended;
            prop_assert_eq!(facts.outcome().is_some(), has_ended);
            if let Some(ended) = facts.ended_at() {
                prop_assert!(ended >= facts.started_at());
                prop_assert!(facts.answered_at().is_none_or(|at| at <= ended));
            }
        }
    }
}
