//! Finds the destinations that the configuration assigns to a call's number or to its pool.
//!
//! All functions are pure: the time is an argument. Source: docs/spec/calls.md, "Where a call
//! goes".

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ringwell_config::DestinationRule;
use ringwell_core::Millis;

use crate::attribution::Serving;

/// The destinations of a call, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePlan {
    /// Numbers in E.164 format with `+`, or SIP addresses. Never empty.
    pub to: Vec<String>,
    /// The time for which each destination rings, in seconds.
    pub timeout_s: u64,
    /// The announcement to the callee, if any.
    pub whisper: Option<String>,
    /// The number to show to the callee instead of the caller's number, if any.
    pub caller_id: Option<String>,
}

/// The maximum number of destinations to follow in the search for loops.
const FOLLOWED_MAX: usize = 32;

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

    /// Removes destinations that would cause an endless loop. These are numbers of this server from
    /// which a call would return to the same destination or to `number`. Returns the removed
    /// destinations.
    pub fn cut_loops(
        &self,
        plan: &mut RoutePlan,
        number: &str,
        at: Millis,
        serving: impl Fn(&str) -> Vec<Serving>,
    ) -> Vec<String> {
        let (kept, removed) = std::mem::take(&mut plan.to).into_iter().partition(|to| {
            let mut passed = vec![to.clone()];
            let mut next = 0;
            while let Some(at_number) = passed.get(next).cloned() {
                next += 1;
                for target in self.next_targets(&at_number, at, &serving(&at_number)) {
                    if target == *to || target == number {
                        return false;
                    }
                    if passed.len() < FOLLOWED_MAX && !passed.contains(&target) {
                        passed.push(target);
                    }
                }
            }
            true
        });
        plan.to = kept;
        removed
    }

    /// The destinations of a call to `number`, if such a call reaches this server. A call to an
    /// overflow number usually does not reach this server, because that number is often the user's
    /// main number.
    fn next_targets(&self, number: &str, at: Millis, serving: &[Serving]) -> Vec<String> {
        let is_here = serving.iter().any(|it| !it.is_overflow)
            || self.0.iter().any(|(rule, _)| rule.numbers.contains(number));
        let plan = is_here.then(|| self.plan(Some(number), serving, at)).flatten();
        plan.map(|plan| plan.to).unwrap_or_default()
    }
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
