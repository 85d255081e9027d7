use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use ringwell_config::{CallAccount, CallProvider, OpenHours};
use ringwell_core::PoolId;

use super::*;

fn rule(to: &str) -> DestinationRule {
    DestinationRule {
        ring_pools: BTreeSet::new(),
        numbers: BTreeSet::new(),
        to: vec![to.to_owned()],
        timeout: Duration::from_secs(20),
        whisper: None,
        caller_id: None,
        hours: Vec::new(),
        time_zone: "UTC".to_owned(),
        closed: Vec::new(),
    }
}

fn goes_to(rules: &[DestinationRule], number: &str, pool: u64, at: u64) -> Option<String> {
    let serving = [Serving { pool: PoolId(pool), name: None, is_overflow: false }];
    let plan = Routes::new(rules).unwrap().plan(Some(number), &serving, Millis(at * 1000));
    plan.map(|plan| plan.to[0].clone())
}

#[test]
fn a_rule_for_the_number_precedes_one_for_the_pool_and_both_precede_the_default() {
    let default = rule("+1");
    let pool = DestinationRule { ring_pools: [PoolId(7)].into(), ..rule("+2") };
    let number = DestinationRule { numbers: ["+18005550100".to_owned()].into(), ..rule("+3") };
    let all = [default.clone(), pool, number];
    assert_eq!(goes_to(&all, "+18005550100", 7, 0).as_deref(), Some("+3"));
    assert_eq!(goes_to(&all, "+18005550101", 7, 0).as_deref(), Some("+2"));
    assert_eq!(goes_to(&all, "+18005550101", 8, 0).as_deref(), Some("+1"));
    assert_eq!(goes_to(&all[1..], "+18005550101", 8, 0), None);
    assert_eq!(Routes::new(&[default]).unwrap().plan(None, &[], Millis(0)).unwrap().timeout_s, 20);
}

#[test]
fn outside_of_its_hours_a_call_goes_elsewhere() {
    let weekdays = OpenHours { days: (0, 4), minutes: (540, 1020) };
    let rules =
        [DestinationRule { hours: vec![weekdays], closed: vec!["+2".to_owned()], ..rule("+1") }];
    // Tuesday, 2023-11-14, at 08:59, 09:00 and 17:00, and the next Saturday.
    let tuesday = 1_699_920_000;
    assert_eq!(goes_to(&rules, "+3", 1, tuesday + 9 * 3600 - 60).as_deref(), Some("+2"));
    assert_eq!(goes_to(&rules, "+3", 1, tuesday + 9 * 3600).as_deref(), Some("+1"));
    assert_eq!(goes_to(&rules, "+3", 1, tuesday + 17 * 3600).as_deref(), Some("+2"));
    assert_eq!(goes_to(&rules, "+3", 1, tuesday + 4 * 86_400 + 36_000).as_deref(), Some("+2"));
    let none = [DestinationRule { closed: Vec::new(), ..rules[0].clone() }];
    assert_eq!(goes_to(&none, "+3", 1, tuesday), None);
}

#[test]
fn hours_are_those_of_the_time_zone() {
    let morning = OpenHours { days: (1, 1), minutes: (540, 600) };
    let berlin = DestinationRule {
        hours: vec![morning],
        time_zone: "Europe/Berlin".to_owned(),
        ..rule("+1")
    };
    // In winter, 08:30 UTC is 09:30 in Berlin.
    assert_eq!(
        goes_to(std::slice::from_ref(&berlin), "+3", 1, 1_699_920_000 + 30_600).as_deref(),
        Some("+1")
    );
    let nowhere = DestinationRule { time_zone: "Europe/Nowhere".to_owned(), ..berlin };
    assert!(Routes::new(&[nowhere]).is_err());
}

/// Pool N contains the number +1N, and +9 is the overflow number of pool 1.
fn serving(number: &str) -> Vec<Serving> {
    let own = number.strip_prefix("+1").and_then(|pool| pool.parse().ok());
    let overflow = (number == "+9").then_some(1);
    let serving = |pool, is_overflow| Serving { pool: PoolId(pool), name: None, is_overflow };
    let own = own.map(|pool| serving(pool, false));
    own.into_iter().chain(overflow.map(|pool| serving(pool, true))).collect()
}

/// The destinations of a call to `number` after loops were removed.
fn without_loops(rules: &[DestinationRule], number: &str) -> Vec<String> {
    let routes = Routes::new(rules).unwrap();
    let plan = routes.plan(Some(number), &serving(number), Millis(0)).unwrap();
    let onward = Onward { at: Millis(0), unknown: None, serving: &serving };
    routes.cut_loops(plan.to, number, &onward).0
}

fn of(pool: u64, to: &[&str]) -> DestinationRule {
    let to = to.iter().map(|to| (*to).to_owned()).collect();
    DestinationRule { ring_pools: [PoolId(pool)].into(), to, ..rule("") }
}

#[test]
fn a_call_is_not_sent_where_it_would_come_back_without_end() {
    let of_number = |number: &str, to: &str| DestinationRule {
        numbers: [number.to_owned()].into(),
        ..rule(to)
    };
    let nowhere: [&str; 0] = [];
    // Calls to these destinations would loop: the number itself, another number in the same pool,
    // and numbers that would forward the call back.
    assert_eq!(without_loops(&[rule("+11")], "+11"), nowhere);
    assert_eq!(without_loops(&[rule("+12")], "+11"), nowhere);
    assert_eq!(without_loops(&[of(1, &["+12"]), of(2, &["+11"])], "+11"), nowhere);
    assert_eq!(without_loops(&[of(1, &["+5"]), of_number("+5", "+11")], "+11"), nowhere);
    // The loop does not include the called number.
    let behind = [of(1, &["+12"]), of(2, &["+13"]), of(3, &["+12"])];
    assert_eq!(without_loops(&behind, "+11"), nowhere);
    // Only the looping destination is removed, so the next one is called.
    let two = DestinationRule { to: vec!["+11".to_owned(), "+2".to_owned()], ..rule("") };
    assert_eq!(without_loops(&[two], "+11"), ["+2"]);
    // Calls to these destinations do not loop: a number in another pool whose destination is not on
    // this server, an overflow number, and a SIP address.
    assert_eq!(without_loops(&[of(1, &["+12"]), of(2, &["+2"])], "+11"), ["+12"]);
    assert_eq!(without_loops(&[rule("+9")], "+11"), ["+9"]);
    assert_eq!(without_loops(&[rule("sip:desk@example.com")], "+11"), ["sip:desk@example.com"]);
}

#[test]
fn a_loop_with_a_way_out_reaches_that_way_from_each_of_its_numbers() {
    let two = [of(1, &["+12"]), of(2, &["+11", "+5"])];
    assert_eq!(without_loops(&two, "+11"), ["+12"]);
    assert_eq!(without_loops(&two, "+12"), ["+5"]);
    let three = [of(1, &["+12"]), of(2, &["+13", "+5"]), of(3, &["+11", "+6"])];
    assert_eq!(without_loops(&three, "+11"), ["+12"]);
    assert_eq!(without_loops(&three, "+12"), ["+5"]);
    assert_eq!(without_loops(&three, "+13"), ["+6"]);
    // Both numbers have a destination outside the loop, and one of them may also forward to the
    // other.
    let both = [of(1, &["+12", "+5"]), of(2, &["+11", "+6"])];
    assert_eq!(without_loops(&both, "+11"), ["+5"]);
    assert_eq!(without_loops(&both, "+12"), ["+11", "+6"]);
    // If a call cannot return from a destination, the destination is kept, even if the call is
    // forwarded several times from there.
    let long = [of(1, &["+12", "+5"]), of(2, &["+13"]), of(3, &["+6"])];
    assert_eq!(without_loops(&long, "+11"), ["+12", "+5"]);
}

proptest! {
    /// A call ends if each number forwards it to its first remaining destination.
    #[test]
    fn no_call_is_forwarded_without_end(
        targets in prop::collection::vec(prop::collection::vec(1..9_u64, 1..4), 8),
        unknown in prop::option::of(1..9_u64),
    ) {
        // +2 is outside this server, and pool 7 has no rule.
        let name = |to: u64| if to == 8 { "+2".to_owned() } else { format!("+1{to}") };
        let rules: Vec<_> = { targets.iter().take(6).zip(1..) }
            .map(|(to, pool)| {
                let to = to.iter().map(|to| name(*to)).collect();
                DestinationRule { ring_pools: [PoolId(pool)].into(), to, ..rule("") }
            })
            .collect();
        let routes = Routes::new(&rules).unwrap();
        let unknown = unknown.map(name);
        let onward = Onward { at: Millis(0), unknown: unknown.as_deref(), serving: &serving };
        let kept = |number: &str| {
            let plan = routes.plan(Some(number), &serving(number), Millis(0));
            let of_plan = plan.map_or_else(Vec::new, |plan| {
                routes.cut_loops(plan.to, number, &onward).0
            });
            if of_plan.is_empty() {
                let unknown = unknown.iter().cloned().collect();
                return routes.cut_loops(unknown, number, &onward).0;
            }
            of_plan
        };
        // No chain of kept destinations returns to a number that it has passed.
        for begin in 1..8 {
            let mut ways = vec![vec![name(begin)]];
            while let Some(way) = ways.pop() {
                let last = way.last().unwrap();
                if last == "+2" {
                    continue;
                }
                for to in kept(last) {
                    prop_assert!(!way.contains(&to), "{way:?} {to}");
                    ways.push(way.iter().cloned().chain([to]).collect());
                }
            }
        }
    }
}

#[test]
fn an_unknown_number_of_this_server_is_endless_unless_its_calls_leave_the_server() {
    let calls = |rules: &[DestinationRule], to: &str| {
        let account = CallAccount {
            name: "main".to_owned(),
            provider: CallProvider::Twilio,
            public_url: "https://calls.example".to_owned(),
            secrets: Vec::new(),
            shared_keys: Vec::new(),
            unknown_number: UnknownNumber::Connect(to.to_owned()),
        };
        Calls { accounts: vec![account], destinations: rules.to_vec(), ..Calls::default() }
    };
    let endless = |rules: &[DestinationRule], to: &str| {
        Routes::endless_unknown_numbers(&calls(rules, to), &serving).unwrap()
    };
    let nowhere: [&str; 0] = [];
    assert_eq!(endless(&[], "+11"), ["+11"]);
    assert_eq!(endless(&[of(1, &["+12"])], "+11"), ["+11"]);
    assert_eq!(endless(&[of(1, &["+12"])], "+12"), ["+12"]);
    assert_eq!(endless(&[of(1, &["+5"])], "+11"), nowhere);
    assert_eq!(endless(&[of(1, &["+12"]), of(2, &["+11", "+5"])], "+11"), nowhere);
    assert_eq!(endless(&[], "+9"), nowhere);
    assert_eq!(endless(&[], "+5"), nowhere);
    // A rule that applies only at some hours may still connect calls.
    let hours = vec![OpenHours { days: (0, 4), minutes: (540, 1020) }];
    assert_eq!(endless(&[DestinationRule { hours, ..of(1, &["+5"]) }], "+11"), nowhere);
}
