//! Scores the likelihood that a caller is a robot, based on the caller's known calls.
//!
//! Source: docs/spec/calls.md, "Robocalls".

use ringwell_core::Millis;

use crate::provider::Stir;

/// The maximum number of a caller's earlier calls to examine. The newest calls are chosen.
pub const CALLS_MAX: i64 = 50;
/// The maximum age of an earlier call that is examined.
pub const SPAN: Millis = Millis(30 * DAY);
/// The longest talk time, in seconds, that is too short for a caller to say anything.
const SHORT_SECONDS: u32 = 6;
const HOUR: u64 = 60 * 60 * 1000;
const DAY: u64 = 24 * HOUR;

/// An earlier call by the same caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The time at which the call began.
    pub began: Millis,
    /// The talk time, if the call was answered and is over.
    pub talk_seconds: Option<u32>,
    /// The called number.
    pub number: Option<String>,
}

/// The robocall score of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Robocall {
    /// The score, from 0 to 100.
    pub score: u8,
    /// The names of the parts that add up to the score, as in the table of the specification.
    pub reasons: Vec<String>,
}

/// Computes the score of a call that began at `began`. `talk_seconds` is the talk time, if the call
/// was answered and is over. `earlier` contains the caller's earlier calls.
#[must_use]
pub fn score(
    stir: Option<&Stir>,
    earlier: &[Earlier],
    began: Millis,
    talk_seconds: Option<u32>,
) -> Robocall {
    let since = |span: u64| Millis(began.0.saturating_sub(span));
    let of_day = earlier.iter().filter(|it| it.began >= since(DAY)).count();
    let mut numbers: Vec<_> = earlier
        .iter()
        .filter(|it| it.began >= since(HOUR))
        .filter_map(|it| it.number.as_deref())
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let talks: Vec<u32> = earlier.iter().filter_map(|it| it.talk_seconds).collect();
    let short = talks.iter().filter(|talk| **talk <= SHORT_SECONDS).count();
    let all = [
        (stir.is_some_and(has_failed), "stir_failed", 40),
        (stir.is_some_and(is_weak), "stir_weak", 10),
        (stir.is_some_and(has_passed), "stir_passed", -20),
        (of_day >= 5, "many_calls", if of_day >= 20 { 40 } else { 20 }),
        (numbers.len() >= 3, "many_numbers", 30),
        (talks.len() >= 3 && short * 2 >= talks.len(), "short_calls", 30),
        (talk_seconds.is_some_and(|talk| talk <= SHORT_SECONDS), "short_call", 20),
    ];
    let found = || all.iter().filter(|(is_so, ..)| *is_so);
    let sum: i32 = found().map(|(_, _, points)| points).sum();
    let score = u8::try_from(sum.clamp(0, 100)).unwrap_or_default();
    Robocall { score, reasons: found().map(|(_, name, _)| (*name).to_owned()).collect() }
}

/// Whether a reason reveals the verdict on the caller's number.
pub(crate) fn is_verdict(reason: &str) -> bool {
    reason.starts_with("stir_")
}

/// Converts the verdict to lower case, because its spelling depends on the provider:
/// `TN-Validation-Failed-A`, `Failed` or `no-tn-validation`.
fn verdict(stir: &Stir) -> String {
    stir.verstat.as_deref().unwrap_or_default().to_ascii_lowercase()
}

fn has_failed(stir: &Stir) -> bool {
    verdict(stir).contains("failed")
}

fn is_weak(stir: &Stir) -> bool {
    let attested = stir.attestation.as_deref().unwrap_or_default();
    !has_failed(stir)
        && (attested.eq_ignore_ascii_case("C")
            || verdict(stir).ends_with("passed-c")
            || verdict(stir).starts_with("no-tn"))
}

fn has_passed(stir: &Stir) -> bool {
    let attested = stir.attestation.as_deref().unwrap_or_default();
    verdict(stir).ends_with("passed-a")
        || (verdict(stir).contains("passed") && attested.eq_ignore_ascii_case("A"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(100 * DAY);

    fn earlier(minutes: u64, talk: Option<u32>, number: &str) -> Earlier {
        let began = Millis(NOW.0 - minutes * 60_000);
        Earlier { began, talk_seconds: talk, number: Some(number.to_owned()) }
    }

    fn stir(verstat: &str, attestation: &str) -> Stir {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Stir { verstat: some(verstat), attestation: some(attestation) }
    }

    #[test]
    fn a_person_who_calls_once_has_no_score() {
        assert_eq!(score(None, &[], NOW, Some(90)), Robocall::default());
        let passed = score(Some(&stir("TN-Validation-Passed-A", "")), &[], NOW, Some(3));
        assert_eq!((passed.score, passed.reasons.len()), (0, 2));
    }

    #[test]
    fn each_sign_counts_as_in_the_table() {
        let failed = stir("TN-Validation-Failed-B", "");
        assert_eq!(score(Some(&failed), &[], NOW, None).score, 40);
        assert_eq!(score(Some(&stir("", "C")), &[], NOW, None).reasons, ["stir_weak"]);
        assert_eq!(score(Some(&stir("No-TN-Validation", "")), &[], NOW, None).score, 10);
        assert_eq!(score(None, &[], NOW, Some(6)).reasons, ["short_call"]);
        assert_eq!(score(None, &[], NOW, Some(7)).score, 0);
        let many: Vec<_> = (0..5).map(|at| earlier(120 + at, None, "+1")).collect();
        assert_eq!(score(None, &many, NOW, None).reasons, ["many_calls"]);
        assert_eq!(score(None, &many[..4], NOW, None).score, 0);
        let numbers: Vec<_> = ["+1", "+2", "+3"].map(|number| earlier(10, None, number)).to_vec();
        assert_eq!(score(None, &numbers, NOW, None).reasons, ["many_numbers"]);
        let short = [(3, "+1"), (4, "+1"), (90, "+1")];
        let short: Vec<_> = short.map(|(talk, to)| earlier(9_000, Some(talk), to)).to_vec();
        assert_eq!(score(None, &short, NOW, None).reasons, ["short_calls"]);
        let robot: Vec<_> =
            (0..30_u32).map(|at| earlier(1, Some(2), &format!("+{}", at % 7))).collect();
        assert_eq!(score(Some(&failed), &robot, NOW, Some(1)).score, 100);
    }
}
