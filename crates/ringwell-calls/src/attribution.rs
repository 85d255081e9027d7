//! The attribution of a call: the visitor to whom the called number was shown. It is stored with
//! the call.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;

use ringwell_core::{Millis, PoolId, PromoNumber};
use serde::{Deserialize, Serialize};

pub use crate::confidence::LOOKED_UP_MAX;
use crate::confidence::{Candidate, Confidence, confidence, probabilities};

/// The possible results of a call's attribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attributed {
    /// The look-up is pending.
    #[default]
    Pending,
    /// A visitor was shown the number.
    Allocated,
    /// The number is an overflow number, which many visitors see at once.
    Overflow,
    /// No visitor was shown the number before the call.
    None,
    /// The visitor could not be determined.
    Unknown,
}

/// The visitor to whom a called number was shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attribution {
    /// The result of the attribution.
    pub outcome: Attributed,
    /// The pool that serves the number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolRef>,
    /// The number's newest allocation before the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Allocation>,
    /// The confidence that `allocation` belongs to the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    /// The allocations before `allocation`, newest first, each with its probability.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Allocation>,
    /// The reason why the visitor is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The allocations that only earlier look-ups for the call found. The call's first events
    /// contain their parameters, so an erasure must find them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<Allocation>,
    /// The hash of the parameters in `allocation`, if the call had been erased when the look-up
    /// found them. No erasure has listed this allocation yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<String>,
}

/// A reference from a call to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRef {
    /// The pool's id.
    pub id: u64,
    /// The pool's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An allocation of the called number to a visitor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// The time of the allocation, in milliseconds since 1970.
    pub allocated_ms: u64,
    /// The end of the lockout. Until then, no other visitor could get the number.
    pub locked_until_ms: u64,
    /// Whether the lockout had ended when the call began.
    pub late: bool,
    /// The time of the visitor's last tap on the number before the call, in milliseconds since
    /// 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tapped_ms: Option<u64>,
    /// The probability that this visitor is the caller, from 0 to 1.
    pub probability: f64,
    /// The visitor's parameters, in the order received. If a name occurs several times, all its
    /// values are kept, so that an erasure finds each of them; the last one counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<(String, String)>,
}

/// A pool that serves a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// The pool's id.
    pub pool: PoolId,
    /// The pool's name.
    pub name: Option<String>,
    /// Whether the number is the pool's overflow number.
    pub is_overflow: bool,
}

/// An allocation of a number, as reported by the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedAllocation {
    /// The pool that handed out the number, if the journal's record of the allocation contains it.
    pub pool: Option<PoolId>,
    /// The wall-clock time of the allocation.
    pub allocated_at: Millis,
    /// The end of the lockout.
    pub locked_until: Millis,
    /// The time of the visitor's last tap on the number, if the call log contains a tap.
    pub tapped_at: Option<Millis>,
    /// The visitor's parameters.
    pub parameters: Vec<(String, String)>,
}

/// The reason why the holder of a number is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HolderError {
    /// The number's history is temporarily unavailable. A later attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The number's history for the requested time is no longer available.
    #[error("{0}")]
    Gone(String),
}

/// A number's allocations up to a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The allocations that are known, newest first.
    pub allocations: Vec<ReportedAllocation>,
    /// The latest time at which a visitor may have received the number in an allocation that was
    /// lost, for example because the server was restored. `None` if no data was lost recently.
    pub unknown: Option<Millis>,
}

/// A future that looks up the holders of a number.
pub type Holders<'a> = Pin<Box<dyn Future<Output = Result<History, HolderError>> + Send + 'a>>;

/// The keep-alives of one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeepAlives {
    /// The wall-clock times of the keep-alives, earliest first.
    pub at: Vec<Millis>,
    /// Whether some keep-alives may be missing.
    pub is_part: bool,
}

/// A future that looks up keep-alives. It resolves to `None` if they are unknown.
pub type FoundKeepAlives<'a> = Pin<Box<dyn Future<Output = Option<KeepAlives>> + Send + 'a>>;

/// The node's functions that the call service uses.
pub trait Numbers: Send + Sync {
    /// The pools that serve `number`: one pool, or several that share an overflow number. Does not
    /// block.
    fn pools(&self, number: PromoNumber) -> Vec<Serving>;

    /// Whether `pool` exists. `None` while that is unknown. Does not block.
    fn has_pool(&self, pool: PoolId) -> Option<bool>;

    /// Looks up the allocations of `number` at or before `at`, newest first. Returns at most `most`
    /// allocations.
    fn holders(&self, number: PromoNumber, at: Millis, most: usize) -> Holders<'_>;

    /// Looks up the keep-alives that an allocation received up to `at`. The allocation is
    /// identified by `number` and `allocated_at`.
    fn keep_alives(
        &self,
        number: PromoNumber,
        allocated_at: Millis,
        at: Millis,
    ) -> FoundKeepAlives<'_>;
}

impl Attributed {
    /// The results of a completed look-up.
    pub const RESULTS: [Self; 4] = [Self::Allocated, Self::Overflow, Self::None, Self::Unknown];

    /// The name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Allocated => "allocated",
            Self::Overflow => "overflow",
            Self::None => "none",
            Self::Unknown => "unknown",
        }
    }
}

impl Attribution {
    /// Returns the attribution of a call that began at `at`. `serving` contains the pools that
    /// serve the called number, and `history` contains the number's newest [`LOOKED_UP_MAX`]
    /// allocations.
    #[must_use]
    pub fn of(at: Millis, serving: &[Serving], history: &History) -> Self {
        let held = &history.allocations;
        let pool_of = |it: &Serving| PoolRef { id: it.pool.0, name: it.name.clone() };
        let own = serving.iter().find(|it| !it.is_overflow);
        let pool = own.or(serving.first()).map(pool_of);
        let candidates: Vec<Candidate> = held.iter().map(candidate).collect();
        let chances = probabilities(at, &candidates, history.unknown);
        let allocation = |(held, probability): (&ReportedAllocation, f64)| Allocation {
            allocated_ms: held.allocated_at.0,
            locked_until_ms: held.locked_until.0,
            late: at >= held.locked_until,
            tapped_ms: held.tapped_at.map(|tap| tap.0),
            probability: (probability * 1000.0).round() / 1000.0,
            parameters: held.parameters.clone(),
        };
        let mut all = held.iter().zip(chances).map(allocation);
        let newest = held.first();
        // If the number has become an overflow number, its newest allocation counts only until the
        // end of that allocation's lockout.
        let is_shared = is_shared(serving);
        let counts = newest.is_some_and(|it| !is_shared || at < it.locked_until);
        if !counts {
            let outcome = if is_shared { Attributed::Overflow } else { Attributed::None };
            return Self { outcome, pool, ..Self::default() };
        }
        let late = newest.is_some_and(|it| at >= it.locked_until);
        let named = newest.and_then(|it| it.pool).map(|id| {
            let name = serving.iter().find(|it| it.pool == id).and_then(|it| it.name.clone());
            PoolRef { id: id.0, name }
        });
        Self {
            outcome: Attributed::Allocated,
            pool: named.or(pool),
            allocation: all.next(),
            confidence: confidence(at, &candidates, late, history.unknown),
            earlier: all.collect(),
            ..Self::default()
        }
    }

    /// The attribution of a call if the number's history is unavailable. `problem` is the reason.
    /// An overflow number needs no history: many visitors see it at once.
    #[must_use]
    pub fn without_history(serving: &[Serving], problem: String) -> Self {
        let pool = serving.first().map(|it| PoolRef { id: it.pool.0, name: it.name.clone() });
        if is_shared(serving) {
            return Self { outcome: Attributed::Overflow, pool, ..Self::default() };
        }
        Self { outcome: Attributed::Unknown, pool, problem: Some(problem), ..Self::default() }
    }

    /// Whether the look-up has been completed.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.outcome != Attributed::Pending
    }

    /// Whether the call log stores the attribution.
    pub(crate) fn is_stored(&self) -> bool {
        self.is_known() || !self.former.is_empty()
    }

    /// Whether `self` and `other` have the same result and the same visitor.
    pub(crate) fn names_the_same(&self, other: &Self) -> bool {
        let allocated = |it: &Self| it.allocation.as_ref().map(|it| it.allocated_ms);
        self.outcome == other.outcome && allocated(self) == allocated(other)
    }

    /// The same call's attribution while its visitor is looked up again.
    pub(crate) fn to_repeat(&self) -> Self {
        let former = self.all().filter(|it| !it.parameters.is_empty());
        Self { former: former.cloned().collect(), ..Self::default() }
    }

    /// Adds the allocations that earlier look-ups for the call found.
    pub(crate) fn succeed(&mut self, former: Vec<Allocation>) {
        let is_gone = |it: &Allocation| self.all().all(|all| all.allocated_ms != it.allocated_ms);
        let gone: Vec<Allocation> = former.into_iter().filter(is_gone).collect();
        self.former.extend(gone);
    }

    /// All allocations: that of the visitor, the earlier ones, and those of earlier look-ups.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Allocation> {
        self.allocation.iter().chain(&self.earlier).chain(&self.former)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Allocation> {
        self.allocation.iter_mut().chain(&mut self.earlier).chain(&mut self.former)
    }

    /// Removes the visitors' parameters from the allocations that were made at the times `at`.
    /// Returns whether there were any parameters to remove.
    pub(crate) fn forget(&mut self, at: &[u64]) -> bool {
        let is_own = self.allocation.as_ref().is_some_and(|it| at.contains(&it.allocated_ms));
        let was_unlisted = is_own && self.unlisted.take().is_some();
        let theirs =
            self.all_mut().filter(|it| at.contains(&it.allocated_ms) && !it.parameters.is_empty());
        theirs.map(|it| it.parameters.clear()).count() > 0 || was_unlisted
    }

    /// Removes all but the last value of each parameter, because look-ups show only the last one.
    #[must_use]
    pub(crate) fn shown(mut self) -> Self {
        for allocation in self.allocation.iter_mut().chain(&mut self.earlier) {
            let mut seen = BTreeSet::new();
            allocation.parameters.reverse();
            allocation.parameters.retain(|(name, _)| seen.insert(name.clone()));
            allocation.parameters.reverse();
        }
        self
    }

    /// Removes everything that identifies the visitor.
    pub fn redact(&mut self) {
        self.unlisted = None;
        for allocation in self.all_mut() {
            allocation.parameters.clear();
        }
    }
}

/// Whether the number is only an overflow number.
fn is_shared(serving: &[Serving]) -> bool {
    serving.iter().all(|it| it.is_overflow) && !serving.is_empty()
}

fn candidate(held: &ReportedAllocation) -> Candidate {
    Candidate { allocated_at: held.allocated_at, tapped_at: held.tapped_at }
}

#[cfg(test)]
#[test]
fn the_newest_visitor_is_named_and_the_others_are_listed() {
    let visitor = |age_s: u64, name: &str| ReportedAllocation {
        pool: Some(PoolId(7)),
        allocated_at: Millis(100_000_000 - age_s * 1000),
        locked_until: Millis(100_000_000 - age_s * 1000 + 600_000),
        tapped_at: None,
        parameters: vec![("gclid".to_owned(), name.to_owned())],
    };
    let history = |all: &[ReportedAllocation]| History { allocations: all.to_vec(), unknown: None };
    let own = Serving { pool: PoolId(7), name: Some("Shop".to_owned()), is_overflow: false };
    let at = Millis(100_000_000);
    let mut newest = visitor(60, "of the same page");
    newest.parameters.extend(visitor(60, "b").parameters);
    let all = history(&[newest, visitor(3600, "a")]);
    let found = Attribution::of(at, std::slice::from_ref(&own), &all);
    assert_eq!(found.allocation.as_ref().unwrap().parameters.len(), 2);
    let found = found.shown();
    assert_eq!(found.outcome, Attributed::Allocated);
    let allocation = found.allocation.unwrap();
    assert_eq!(allocation.parameters, visitor(60, "b").parameters);
    assert!(!allocation.late && allocation.probability > 0.99);
    assert_eq!(found.earlier.len(), 1);
    assert!(found.earlier[0].late);
    assert!(found.confidence.unwrap().reason.contains("1 earlier visitor"));
    assert_eq!(
        Attribution::of(at, std::slice::from_ref(&own), &history(&[])).outcome,
        Attributed::None
    );
    // If the number was handed out exactly four times, all its visitors are candidates, so the
    // probabilities add up to 1.
    let all: Vec<_> = (0..5).map(|it| visitor(60 + it, "d")).collect();
    let sum = |count: usize| {
        let found = Attribution::of(at, std::slice::from_ref(&own), &history(&all[..count]));
        let shown = found.allocation.into_iter().chain(found.earlier).map(|it| it.probability);
        let shown: Vec<_> = shown.collect();
        assert_eq!(shown.len(), 4, "{shown:?}");
        shown.iter().sum::<f64>()
    };
    assert!((sum(4) - 1.0).abs() < 0.005 && sum(5) < 0.5, "{} {}", sum(4), sum(5));
    let lost = History { unknown: Some(Millis(at.0 - 300_000)), ..history(&all[..1]) };
    let found = Attribution::of(at, std::slice::from_ref(&own), &lost);
    assert!(found.confidence.unwrap().value < 0.99 && found.allocation.unwrap().probability < 0.99);
    let shared = Serving { pool: PoolId(7), name: None, is_overflow: true };
    let found = Attribution::of(at, std::slice::from_ref(&shared), &history(&[visitor(3600, "a")]));
    assert_eq!(found.outcome, Attributed::Overflow);
    assert_eq!(
        Attribution::of(at, &[shared], &history(&[visitor(60, "a")])).outcome,
        Attributed::Allocated
    );
}
