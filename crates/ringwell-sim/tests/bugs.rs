//! Tests that the simulator finds each planted bug within a limited number of seeds.
//!
//! A run without findings proves something only if the simulator is known to find bugs. Only the
//! builds that `planted_bugs.rs` makes contain the bugs.
#![cfg(canary)]
#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringwell_sim::{Bug, Kind, Options, run};

/// The maximum number of seeds that are tried for a bug.
const SEEDS_MAX: u64 = 400;

/// Bugs that are tested elsewhere. Bugs in the rules of `ringwell-core` affect the whole process,
/// so `rule_bugs.rs` tests them. Runs with a log shared by machines find bugs in the code for such
/// a log (`log_bugs.rs`). The other bugs need a coincidence that is too rare for the seeds tried
/// here, so tests of the driver find them (see the driver's `bugs.rs`). With one of these bugs, a
/// copy of a data directory keeps the original's name. This rarely has an effect: if a data
/// directory may be incomplete, the node holds all buckets in it.
const ELSEWHERE: &[Bug] = &[
    Bug::UndoneReplaces,
    Bug::RotationIgnored,
    Bug::CopyKeepsName,
    Bug::AdoptUnstored,
    Bug::UnreadUnreported,
    Bug::FormerShardBelieved,
    Bug::ListChangedUnseen,
    Bug::ThroughTooEarly,
    Bug::LengthenedUnsaved,
    Bug::DoubtsStayBehind,
    Bug::DoubtForgotten,
    Bug::RecordAskedAgain,
    Bug::AbortNotCompleted,
    Bug::StaleTake,
    Bug::TakenNotHeld,
    Bug::OlderFileNames,
    Bug::VersionUnasked,
    Bug::OwnShardsBelieved,
    Bug::FormerUninformed,
    Bug::DroppedForgotten,
    Bug::OverflowBelieved,
    Bug::LifetimesNotKept,
    Bug::TakenOverwritten,
    Bug::StopUnflushed,
    Bug::FoundNamesUnflushed,
    Bug::SnapshotMissesMoved,
    Bug::ReportGivenUp,
    Bug::ReturnLate,
    Bug::ServedAdopts,
    Bug::ListsBeforeHolds,
    Bug::StartingAnswers,
    Bug::OtherVisitorIgnored,
    Bug::LostWithGaps,
    Bug::GapsNotDated,
    Bug::LaterIgnored,
    Bug::LogCopyBelieved,
    Bug::NewOverflowUnasked,
    Bug::ArrivalsUnconfirmed,
    Bug::HeldBucketsForgotten,
    Bug::ExtensionDropped,
    Bug::OtherListIgnored,
    Bug::OwnerNotBelieved,
    Bug::LockoutOutlastsDoubt,
    Bug::TransitUnreported,
    Bug::TwoOfAPool,
    Bug::UndoneEndsDoubt,
    Bug::LeftUndone,
    Bug::ConflictIgnored,
    Bug::FirstStartSilent,
    Bug::LogPastIgnored,
    Bug::ReturnedUnseen,
    Bug::OtherLifetimesIgnored,
    Bug::CopiesUnflushed,
    Bug::ConflictForgotten,
    Bug::StartUnconfirmed,
    Bug::BackWithoutState,
    Bug::HiddenIgnored,
    Bug::DoubtsIgnored,
    Bug::LockCompare,
    Bug::NotFifo,
    Bug::TakenIsTheirs,
    Bug::TakenIsMine,
    Bug::EpochNotRaised,
    Bug::PlaceAlone,
    Bug::MessageId,
    Bug::WallAtTakeOver,
    Bug::Pipelined,
    Bug::SnapshotAhead,
    Bug::ForeignCountedTwice,
    Bug::FewLeaders,
    Bug::LostLogIgnored,
    Bug::ReachedIgnored,
    Bug::StartIgnored,
    Bug::OneServerAsked,
];

/// A bug that only a few seeds find, and only if several kinds of faults occur at their highest
/// rates and no kind is disabled.
struct Coincidence {
    bug: Bug,
    on: &'static [Kind],
    rules: &'static [&'static str],
}

const COINCIDENCES: &[Coincidence] = &[Coincidence {
    bug: Bug::UnreachableIgnored,
    on: &[
        Kind::Call,
        Kind::CallElsewhere,
        Kind::CallLate,
        Kind::Move,
        Kind::Manage,
        Kind::FrameLost,
        Kind::SlowDisk,
        Kind::SlowShard,
    ],
    rules: &["attribution"],
}];

/// Kinds of faults that are disabled unless a case requests them. A fault that happens in nearly
/// every run would hide bugs whose effects appear late.
const ASKED_FOR: [Kind; 15] = [
    Kind::CrashAfter,
    Kind::Hasty,
    Kind::LostDisk,
    Kind::LostJournal,
    Kind::SlowSpell,
    Kind::BootClock,
    Kind::LargePools,
    Kind::Os,
    Kind::Memory,
    Kind::Restored,
    Kind::CopyBack,
    Kind::ListSpread,
    Kind::StandsStill,
    Kind::Remount,
    Kind::CopiedJournal,
];

/// Faults that make nodes lose their data, together with calls to the numbers that these nodes had
/// handed out.
const LOST_DISK: &[Kind] = &[Kind::LostDisk, Kind::Manage, Kind::Call];

/// A bug, the kinds of faults that are frequent, and a list of promises. The bug must break one of
/// these promises.
type Case = (Bug, &'static [Kind], &'static [&'static str]);

const CASES: &[Case] = &[
    (Bug::ReplyBeforeFlush, &[Kind::Power], &["forgotten", "double"]),
    (
        Bug::FlushAgain,
        &[Kind::FlushError, Kind::Power, Kind::Kill],
        &["attribution", "forgotten", "refused"],
    ),
    (
        Bug::CutAtBadFrame,
        &[Kind::Rot, Kind::Power],
        &["attribution", "forgotten", "double", "not live"],
    ),
    (Bug::NoHoldAfterRot, &[Kind::RotAtEnd, Kind::Kill], &["not held", "double"]),
    (
        Bug::OwnersNotAsked,
        &[Kind::CopyBack, Kind::Move],
        &["two owners", "forgotten", "double", "attribution"],
    ),
    (
        Bug::NewerMapIgnored,
        &[Kind::MapChange, Kind::GainsFirst],
        &["two owners", "double", "forgotten"],
    ),
    (Bug::LostUnknown, LOST_DISK, &["attribution"]),
    (Bug::OwnGapsForgotten, LOST_DISK, &["attribution"]),
    (Bug::AbsenceBelieved, LOST_DISK, &["attribution"]),
    (
        Bug::UndoneInGap,
        &[Kind::Restored, Kind::Manage, Kind::Hasty, Kind::FrameDelayed],
        &["attribution"],
    ),
    (Bug::PowerCutRefused, &[Kind::Os, Kind::Power], &["refused"]),
    (Bug::PowerCutIgnored, &[Kind::Os, Kind::Power], &["not held", "double"]),
    (
        Bug::FailedFlushIgnored,
        &[Kind::Os, Kind::FlushError, Kind::CrashAfter, Kind::Kill],
        &["attribution", "not held", "forgotten", "refused"],
    ),
    (Bug::RemountIgnored, &[Kind::Os, Kind::Remount], &["not held", "double", "refused"]),
    (Bug::LostShardIgnored, &[Kind::LostJournal], &["not held", "double"]),
    (
        Bug::OlderJournalIgnored,
        &[Kind::CopiedJournal],
        &["not held", "forgotten", "attribution", "double", "another answer"],
    ),
    (Bug::NoNameFlush, &[Kind::Power], &["forgotten", "refused", "two owners"]),
    (Bug::OneSalt, &[Kind::Power, Kind::CrashAtCall], &["refused", "forgotten"]),
    (
        Bug::SnapshotMissesGroup,
        &[Kind::SlowDisk, Kind::Kill],
        &["attribution", "forgotten", "double in shard time", "another answer", "refused"],
    ),
    (
        Bug::SnapshotTooEarly,
        &[Kind::SlowDisk, Kind::Power, Kind::Kill],
        &["refused", "attribution", "forgotten"],
    ),
    (Bug::NoCarry, &[Kind::Visitor], &["attribution", "forgotten"]),
    (
        Bug::WallClock,
        &[Kind::ClockForward],
        &["double", "visitor moved", "another answer", "kept too short", "not live", "forgotten"],
    ),
    (Bug::WallAtStart, &[Kind::ClockForward, Kind::Kill], &["double", "another answer"]),
    (
        Bug::ShardTimeInLookups,
        &[Kind::ClockForward, Kind::ClockRight, Kind::Kill],
        &["attribution"],
    ),
    (
        Bug::ClocksTrusted,
        &[Kind::Call, Kind::CallElsewhere, Kind::ClockForward, Kind::ClockBack],
        &["attribution"],
    ),
    (Bug::RecordsStayBehind, &[Kind::Move, Kind::Call], &["attribution"]),
    (Bug::LostRecordsNamed, &[Kind::Move, Kind::LostDisk, Kind::Call], &["attribution"]),
    (Bug::EndsStayBehind, &[Kind::Move], &["attribution"]),
    (Bug::NoRounding, &[Kind::Retry], &["wrong lockout"]),
    (Bug::DeadlineIgnored, &[Kind::Hurry, Kind::SlowShard], &["granted late"]),
    (Bug::ReleaseAnswered, &[Kind::Abort], &["double"]),
    (Bug::RetryForgotten, &[Kind::Retry], &["another answer"]),
    (Bug::UnseenCounts, &[Kind::Hurry, Kind::Abort], &["attribution"]),
    (Bug::ReadyBeatsDeadline, &[Kind::Pause, Kind::SlowShard], &["number left late", "double"]),
    (
        Bug::KeyAlone,
        &[Kind::Retry, Kind::SameKey, Kind::Single],
        &["overflow without cause", "wrong pool", "double", "another answer"],
    ),
    (Bug::RowsMixed, &[Kind::Single], &["phantom"]),
    (Bug::StaleMap, &[Kind::MapChange], &["not live", "two owners", "double", "refused"]),
    (Bug::NoHoldAfterMove, &[Kind::MapChange], &["forgotten", "double"]),
    (Bug::LatePoolsNotHeld, &[Kind::MapChange, Kind::LateList], &["forgotten", "double"]),
    (
        Bug::GivenNotKept,
        &[Kind::Move, Kind::Kill],
        &["two owners", "not live", "double", "forgotten"],
    ),
    (Bug::FactsMissGroup, &[Kind::Move], &["forgotten", "double"]),
    (Bug::AdoptForgets, &[Kind::Move, Kind::Visitor], &["visitor moved", "another answer"]),
    (
        Bug::HearsayBelieved,
        &[Kind::Move, Kind::FrameDelayed],
        &["forgotten", "two owners", "double", "another answer"],
    ),
    (Bug::NeverShut, &[Kind::FrameLost, Kind::Partition], &["a link does not shut"]),
    (Bug::HoldUnanswered, &[Kind::Abort], &["held for no client"]),
    (Bug::GroupOffByOne, &[Kind::Visitor, Kind::Release], &["attribution"]),
    (Bug::DeadlineUnit, &[Kind::Visitor], &["not live"]),
    (Bug::LinkAnswerTwice, &[Kind::Visitor], &["double"]),
    (Bug::ChangeOneShard, &[Kind::Move, Kind::Manage], &["not live", "forgotten"]),
    (Bug::CommitTooFar, &[Kind::Power, Kind::Kill], &["forgotten"]),
    (Bug::PeerGroupOff, &[Kind::Power, Kind::Kill], &["forgotten"]),
    (
        Bug::KeptNotPromised,
        &[Kind::Power, Kind::Visitor],
        &["forgotten", "visitor moved", "another answer"],
    ),
    (Bug::FullForEver, &[Kind::Full], &["not live"]),
    (Bug::NeverReopened, &[Kind::Partition, Kind::Pause], &["not live"]),
    (Bug::TakeBeforeTold, &[Kind::Move], &["forgotten", "double"]),
    (
        Bug::AbortUnasked,
        &[Kind::Move, Kind::Abandon, Kind::Partition],
        &["two owners", "double", "forgotten"],
    ),
    (Bug::MoveNotResumed, &[Kind::Move, Kind::Kill, Kind::FrameLost], &["not live"]),
    (Bug::EnterBeforeLeave, &[Kind::Manage], &["clash", "two owners"]),
    (
        Bug::OwnersForgotten,
        &[Kind::Move, Kind::Kill],
        &["two owners", "double", "forgotten", "not live"],
    ),
    (
        Bug::NoAgreement,
        &[Kind::Move, Kind::Kill],
        &["forgotten", "double", "another answer", "visitor moved", "attribution"],
    ),
    (
        Bug::ForeignClock,
        &[Kind::Move, Kind::ClockBack, Kind::ClockForward],
        &["forgotten", "double"],
    ),
    (
        Bug::DropBeforeStored,
        &[Kind::Visitor, Kind::Kill, Kind::Power],
        &["attribution", "forgotten", "refused"],
    ),
    (
        Bug::HoldsStayBehind,
        &[Kind::Manage],
        &["forgotten", "double", "another answer", "not live", "attribution"],
    ),
    (Bug::ArrivalsNotHeld, &[Kind::Manage], &["forgotten", "double"]),
    (Bug::ListsForgotten, &[Kind::Manage, Kind::Kill], &["forgotten", "double"]),
    (Bug::OldGoesAlong, &[Kind::Move, Kind::Manage], &["attribution"]),
    (Bug::RedirectForgetsRetry, &[Kind::Move, Kind::Retry], &["another answer"]),
    (
        Bug::SuspensionIgnored,
        &[Kind::StandsStill, Kind::Manage],
        &["double", "forgotten", "attribution"],
    ),
];

/// Bugs that are found only after more than 40 seeds. The search for them takes most of this test's
/// time, so they are left out if `RINGWELL_PLANTED_BUGS=common` is set.
const RARE: &[Bug] = &[
    Bug::CutAtBadFrame,
    Bug::WallAtStart,
    Bug::OldGoesAlong,
    Bug::OwnersNotAsked,
    Bug::FailedFlushIgnored,
    Bug::HoldsStayBehind,
    Bug::AbortUnasked,
];

#[test]
fn every_planted_bug_is_found() {
    let is_short = std::env::var("RINGWELL_PLANTED_BUGS").is_ok_and(|value| value == "common");
    let is_tried = |bug: &&Bug| !ELSEWHERE.contains(bug) && !(is_short && RARE.contains(bug));
    let tried: Vec<Bug> = Bug::ALL.iter().filter(is_tried).copied().collect();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(bug) = tried.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(reason) = find(*bug) {
                        missed.lock().unwrap().push(reason);
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(tried.len() >= 40, "{} are few", tried.len());
}

/// Looks for a seed with which the bug breaks one of the case's promises.
fn find(bug: Bug) -> Result<(), String> {
    let case = CASES.iter().find(|(of, ..)| *of == bug);
    let coincidence = COINCIDENCES.iter().find(|it| it.bug == bug);
    let (on, off, rules) = match (case, coincidence) {
        (Some((_, on, rules)), _) => {
            let off = ASKED_FOR.into_iter().filter(|kind| !on.contains(kind)).collect();
            (on, off, rules)
        }
        (None, Some(it)) => (&it.on, Vec::new(), &it.rules),
        (None, None) => return Err(format!("{bug:?} is not tried")),
    };
    let of = |seed, bug| {
        let (on, off) = (on.to_vec(), off.clone());
        Options { seed, on, off, bug, ..Options::default() }
    };
    // Without the bug, the same seed must not break a promise.
    let holds = |seed: &u64| run(&of(*seed, None)).violation.is_none();
    let breaks = |seed| run(&of(seed, Some(bug))).violation.map(|broken| (seed, broken));
    match (0..SEEDS_MAX).filter_map(breaks).find(|(seed, _)| holds(seed)) {
        Some((seed, broken)) if rules.contains(&broken.rule) => {
            println!("{}: seed {seed}, {}: {}", bug.name(), broken.rule, broken.text);
            Ok(())
        }
        Some((seed, broken)) => Err(format!("{bug:?} showed as {broken:?} in seed {seed}")),
        None => Err(format!("{bug:?} was not found")),
    }
}
