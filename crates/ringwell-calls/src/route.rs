//! Finds the destinations that the configuration assigns to a call's number or to its pool.
//!
//! All functions are pure: the time is an argument. Source: docs/spec/calls.md, "Where a call
//! goes".

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ringwell_config::{Calls, DestinationRule, UnknownNumber};
use ringwell_core::Millis;

use crate::attribution::Serving;

/// A call's destinations, in the order of attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePlan {
    /// Numbers in E.164 format with `+`, or SIP addresses. Never empty.
    pub to: Vec<String>,
    /// The ringing time of each destination, in seconds.
    pub timeout_s: u64,
    /// The announcement to the callee, if any.
    pub whisper: Option<String>,
    /// The number to show to the callee instead of the caller's number, if any.
    pub caller_id: Option<String>,
}

/// The maximum number of numbers to follow in the search for loops.
const FOLLOWED_MAX: usize = 32;

/// The inputs for following a call that is forwarded to one of this server's numbers.
#[derive(Clone, Copy)]
pub struct Onward<'a> {
    /// The time of the call.
    pub at: Millis,
    /// The destination of calls to this server's numbers that have no destination of their own.
    pub unknown: Option<&'a str>,
    /// Returns the pools that serve a number.
    pub serving: &'a dyn Fn(&str) -> Vec<Serving>,
}

/// The rules for the destinations of calls.
#[derive(Clone, Debug)]
pub struct Routes(Vec<(DestinationRule, TimeZone)>);

/// The error if a time zone does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("calls.destination.time_zone: there is no time zone {0} on this machine")]
pub struct NoTimeZone(String);

impl Routes {
    /// Creates the rules from a configuration.
    ///
    /// # Errors
    /// [`NoTimeZone`].
    pub fn new(rules: &[DestinationRule]) -> Result<Self, NoTimeZone> {
        let with_zone = |rule: &DestinationRule| {
            let zone = match rule.time_zone.as_str() {
                "UTC" => Ok(TimeZone::UTC),
                name => TimeZone::get(name),
            };
            let zone = zone.map_err(|_| NoTimeZone(rule.time_zone.clone()))?;
            Ok((rule.clone(), zone))
        };
        rules.iter().map(with_zone).collect::<Result<_, _>>().map(Self)
    }

    /// The destinations of a call to `number` that arrived at `at`. A rule for the number takes
    /// precedence over a rule for one of its pools. Both take precedence over the default rule.
    /// `None` if no rule applies, or if the call arrives outside the rule's hours and the rule has
    /// no destination for that case.
    #[must_use]
    pub fn plan(&self, number: Option<&str>, serving: &[Serving], at: Millis) -> Option<RoutePlan> {
        let rules = || self.0.iter();
        let for_number = rules().find(|(rule, _)| number.is_some_and(|n| rule.numbers.contains(n)));
        let for_pool = || {
            rules().find(|(rule, _)| serving.iter().any(|it| rule.ring_pools.contains(&it.pool)))
        };
        let is_default =
            |rule: &DestinationRule| rule.numbers.is_empty() && rule.ring_pools.is_empty();
        let default = || rules().find(|(rule, _)| is_default(rule));
        let (rule, zone) = for_number.or_else(for_pool).or_else(default)?;
        let to = if is_open(rule, zone, at) { &rule.to } else { &rule.closed };
        (!to.is_empty()).then(|| RoutePlan {
            to: to.clone(),
            timeout_s: rule.timeout.as_secs(),
            whisper: rule.whisper.clone(),
            caller_id: rule.caller_id.clone(),
        })
    }

    /// Removes the destinations in `to` that would cause an endless loop for a call to `number`.
    /// Returns the remaining and the removed destinations.
    ///
    /// A destination on this server forwards the call again. It is kept if it brings the call
    /// closer to a destination outside this server, or if the call can never return to `number`.
    /// Among numbers that are equally close, calls are forwarded only to smaller ones. Therefore,
    /// the numbers in a loop never all forward to each other, although each call is routed on its
    /// own.
    #[must_use]
    pub fn cut_loops(
        &self,
        to: Vec<String>,
        number: &str,
        onward: &Onward<'_>,
    ) -> (Vec<String>, Vec<String>) {
        let mut followed = vec![(number.to_owned(), to.clone())];
        let mut next = 0;
        while let Some((_, targets)) = followed.get(next) {
            next += 1;
            for target in targets.clone() {
                if followed.len() < FOLLOWED_MAX && !followed.iter().any(|it| it.0 == target) {
                    let targets = self.next_targets(&target, onward);
                    followed.push((target, targets));
                }
            }
        }
        let followed: BTreeMap<String, Vec<String>> = followed.into_iter().collect();
        let steps = steps(&followed);
        to.into_iter().partition(|target| {
            let Some(after) = steps.get(target) else { return !followed.contains_key(target) };
            steps.get(number).is_some_and(|here| (after, target.as_str()) < (here, number))
                || !reaches(&followed, target, number)
        })
    }

    /// The `unknown_number` settings in `calls` that cause an endless loop: they name one of this
    /// server's numbers, and a call to that number would return to it at any time of day. `serving`
    /// returns the pools that serve a number.
    ///
    /// # Errors
    /// [`NoTimeZone`].
    pub fn endless_unknown_numbers(
        calls: &Calls,
        serving: &dyn Fn(&str) -> Vec<Serving>,
    ) -> Result<Vec<String>, NoTimeZone> {
        let always = |rule: &DestinationRule| DestinationRule { hours: Vec::new(), ..rule.clone() };
        let routes = Self::new(&calls.destinations.iter().map(always).collect::<Vec<_>>())?;
        let is_endless = |to: &&String| {
            let onward = Onward { at: Millis(0), unknown: Some(to), serving };
            routes.cut_loops(vec![(*to).clone()], "", &onward).0.is_empty()
        };
        let unknown = calls.accounts.iter().filter_map(|account| match &account.unknown_number {
            UnknownNumber::Connect(to) => Some(to),
            UnknownNumber::Unavailable | UnknownNumber::Reject | UnknownNumber::Busy => None,
        });
        Ok(unknown.filter(is_endless).cloned().collect())
    }

    /// The destinations of a call to `number`, if such a call reaches this server. A call to an
    /// overflow number usually does not reach this server, because that number is often the user's
    /// main number.
    fn next_targets(&self, number: &str, onward: &Onward<'_>) -> Vec<String> {
        let serving = (onward.serving)(number);
        let is_here = serving.iter().any(|it| !it.is_overflow)
            || self.0.iter().any(|(rule, _)| rule.numbers.contains(number));
        if !is_here {
            return Vec::new();
        }
        let unknown = || onward.unknown.map(str::to_owned).into_iter().collect();
        self.plan(Some(number), &serving, onward.at).map_or_else(unknown, |plan| plan.to)
    }
}

/// For each number from which a call can leave this server: how many times the call must be
/// forwarded before it leaves. `followed` contains the destinations of each number.
fn steps(followed: &BTreeMap<String, Vec<String>>) -> BTreeMap<String, usize> {
    let mut steps = BTreeMap::new();
    loop {
        let leaves = |to: &Vec<String>| {
            to.is_empty()
                || to.iter().any(|it| steps.contains_key(it) || !followed.contains_key(it))
        };
        let new: Vec<String> = { followed.iter() }
            .filter(|(number, to)| !steps.contains_key(*number) && leaves(to))
            .map(|(number, _)| number.clone())
            .collect();
        if new.is_empty() {
            return steps;
        }
        let count = steps.values().max().map_or(0, |most| most + 1);
        steps.extend(new.into_iter().map(|number| (number, count)));
    }
}

/// Whether a call to `from` can be forwarded to `number`.
fn reaches(followed: &BTreeMap<String, Vec<String>>, from: &str, number: &str) -> bool {
    let (mut passed, mut next) = (vec![from], 0);
    while let Some(at) = passed.get(next) {
        next += 1;
        for to in followed.get(*at).into_iter().flatten() {
            if !passed.contains(&to.as_str()) {
                passed.push(to);
            }
        }
    }
    passed.contains(&number)
}

fn is_open(rule: &DestinationRule, zone: &TimeZone, at: Millis) -> bool {
    if rule.hours.is_empty() {
        return true;
    }
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    let Ok(time) = Timestamp::from_millisecond(ms) else { return true };
    let local = time.to_zoned(zone.clone());
    let day = u8::try_from(local.weekday().to_monday_zero_offset()).unwrap_or_default();
    let minute = i16::from(local.hour()) * 60 + i16::from(local.minute());
    let minute = u16::try_from(minute).unwrap_or_default();
    rule.hours.iter().any(|hours| hours.contains(day, minute))
}

#[cfg(test)]
mod tests;
