//! A day in virtual time: visitors to a web site are shown numbers from a ring pool, and some of
//! these visitors call.
//!
//! The server's own engine hands out the numbers, and the server's own rule attributes the calls.
//! This module only chooses which visitors call, and when. The same page views and the same seed
//! give the same day.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use ringwell_calls::attribution::LOOKED_UP_MAX;
use ringwell_calls::{Attributed, Attribution, History, ReportedAllocation, Serving};
use ringwell_core::{Millis, PoolSpec, PromoNumber, VisitorId};
use ringwell_engine::{Ask, Engine, Moment, Outcome, Refusal, Restore, Step};
use ringwell_journal::{Group, Tip, position_parts};
use ringwell_plan::Callers;

use super::access_log::View;

/// If a visitor has opened no page for this long, the next page view begins a new visit.
const VISIT_GAP: Millis = Millis(30 * 60_000);
/// The size of the journal's groups. A busy day's journal takes a few megabytes of memory.
const GROUP_BYTES: usize = 64 * 1024;

/// The inputs of a simulated day.
#[derive(Clone, Debug)]
pub(super) struct Day<'a> {
    pub(super) pool: PoolSpec,
    /// The page views, sorted by time.
    pub(super) views: &'a [View],
    /// The share of visits that end in a call.
    pub(super) calls: f64,
    pub(super) callers: &'a Callers,
    pub(super) seed: u64,
    /// The interval between crashes, and the downtime after each crash.
    pub(super) crashes: Option<(Millis, Millis)>,
}

/// The results of a day.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Found {
    pub(super) visits: u64,
    /// Visits that began with the overflow number.
    pub(super) overflow_visits: u64,
    /// Visits that began while the server was down.
    pub(super) unserved_visits: u64,
    pub(super) calls: u64,
    /// Calls that were attributed to the visitor who called.
    pub(super) right: u64,
    /// Calls that were attributed to another visitor.
    pub(super) wrong: u64,
    /// Calls to the overflow number.
    pub(super) overflow_calls: u64,
    /// Calls without any attribution.
    pub(super) unknown: u64,
    /// Late calls that were attributed to the right visitor.
    pub(super) late: u64,
    /// Calls whose most likely visitor has a probability below one half.
    pub(super) unsure: u64,
    /// Calls counted in `unsure` that were attributed to the wrong visitor.
    pub(super) unsure_wrong: u64,
    /// The sum of the probabilities that were reported for the attributed visitors.
    pub(super) confidence: f64,
    /// The number of crashes. The server starts again after each.
    pub(super) crashes: u64,
}

/// A visitor's call at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    at: Millis,
    visitor: u32,
    /// The number that the visitor was shown. `None` for the overflow number.
    number: Option<PromoNumber>,
}

/// Runs the day until the last caller has called.
pub(super) fn simulate_day(day: &Day<'_>) -> Found {
    let began = day.views.first().map_or(Millis::ZERO, |view| view.at);
    let mut world = World {
        day,
        server: Server::new(day.pool.clone(), began),
        random: Random::new(day.seed),
        visitors: HashMap::new(),
        waiting: BinaryHeap::new(),
        next_crash: day.crashes.map(|(every, _)| began + every),
        back_at: None,
        found: Found::default(),
    };
    for view in day.views {
        world.calls_until(view.at);
        world.open(view);
    }
    world.calls_until(Millis(u64::MAX));
    world.found
}

struct World<'a> {
    day: &'a Day<'a>,
    server: Server,
    random: Random,
    /// For each visitor, the visitor's index and the time of the last page view.
    visitors: HashMap<VisitorId, (u32, Millis)>,
    waiting: BinaryHeap<Reverse<Call>>,
    next_crash: Option<Millis>,
    /// The time at which the server serves again after its latest crash.
    back_at: Option<Millis>,
    found: Found,
}

impl World<'_> {
    /// Processes all calls and crashes before `until`.
    fn calls_until(&mut self, until: Millis) {
        while let Some(Reverse(call)) = self.waiting.peek().copied().filter(|it| it.0.at < until) {
            self.waiting.pop();
            self.pass(call.at);
            self.ring(call);
        }
        if until < Millis(u64::MAX) {
            self.pass(until);
        }
    }

    /// Simulates all crashes and restarts of the server that are due by `now`.
    fn pass(&mut self, now: Millis) {
        let Some((every, away)) = self.day.crashes else { return };
        while let Some(at) = self.next_crash.filter(|at| *at <= now) {
            self.server.crash(at, at + away);
            self.found.crashes += 1;
            self.back_at = Some(at + away);
            let last = self.day.views.last().map_or(at, |view| view.at);
            self.next_crash = Some(at + every).filter(|next| *next <= last);
        }
    }

    fn open(&mut self, view: &View) {
        let count = u32::try_from(self.visitors.len()).unwrap_or(u32::MAX);
        let known = self.visitors.get(&view.visitor).copied();
        let index = known.map_or(count, |(index, _)| index);
        let is_visit = known.is_none_or(|(_, last)| view.at.since(last) >= VISIT_GAP);
        self.visitors.insert(view.visitor, (index, view.at));
        let is_away = self.back_at.is_some_and(|back| view.at < back);
        let shown = if is_away { None } else { Some(self.server.show(view, index)) };
        if !is_visit {
            return;
        }
        self.found.visits += 1;
        // Draws random values for every visit, even if no promo number was shown, so that pools of
        // all sizes get the same callers.
        let (decision, delay) = (self.random.next(), self.random.delay(self.day.callers));
        let Some(number) = shown else {
            self.found.unserved_visits += 1;
            return;
        };
        self.found.overflow_visits += u64::from(number.is_none());
        if decision < self.day.calls {
            let at = view.at + delay;
            self.waiting.push(Reverse(Call { at, visitor: index, number }));
        }
    }

    fn ring(&mut self, call: Call) {
        let found = &mut self.found;
        found.calls += 1;
        let Some(number) = call.number else {
            found.overflow_calls += 1;
            return;
        };
        // Calls are connected even while the server is down. Their visitors are looked up after the
        // server has started again.
        let serving = Serving { pool: self.day.pool.id, name: None, is_overflow: false };
        let allocations = self.server.holders(number, call.at);
        let history = History { allocations, unknown: None };
        let attribution = Attribution::of(call.at, &[serving], &history);
        let named = attribution.allocation.as_ref().map(|it| it.parameters.clone());
        let Some(named) = named.filter(|_| attribution.outcome == Attributed::Allocated) else {
            found.unknown += 1;
            return;
        };
        let is_right = named.iter().any(|(_, value)| *value == call.visitor.to_string());
        let is_late = attribution.allocation.is_some_and(|it| it.late);
        let probability = attribution.confidence.map_or(0.0, |it| it.value);
        let is_unsure = probability < ringwell_calls::confidence::ABSTAIN_BELOW;
        found.right += u64::from(is_right);
        found.wrong += u64::from(!is_right);
        found.late += u64::from(is_right && is_late);
        found.unsure += u64::from(is_unsure);
        found.unsure_wrong += u64::from(is_unsure && !is_right);
        found.confidence += probability;
    }
}

/// The engine of one shard with one pool, and its journal in memory.
struct Server {
    engine: Engine,
    pool: PoolSpec,
    /// The stored groups.
    groups: Vec<Group>,
}

impl Server {
    fn new(pool: PoolSpec, now: Millis) -> Self {
        let restore = Restore::new(vec![pool.clone()], 0);
        let (engine, _) = restore.finish(Tip::FIRST.raise_epoch(), now, false);
        Self { engine, pool, groups: Vec::new() }
    }

    /// Returns the number that the page shows. `None` means the overflow number.
    fn show(&mut self, view: &View, visitor: u32) -> Option<PromoNumber> {
        let outcome = self.ask(view.at, view.visitor, &format!("visitor={visitor}"));
        if self.engine.pending_bytes() >= GROUP_BYTES {
            self.store();
        }
        match outcome {
            Outcome::Allocated { number } | Outcome::Kept { number } => Some(number),
            Outcome::Exhausted { .. } | Outcome::Refused(_) => None,
        }
    }

    fn ask(&mut self, at: Millis, visitor: VisitorId, name: &str) -> Outcome {
        let now = self.engine.at(at);
        let ask = Ask {
            pool: 0,
            id: self.pool.id,
            params: [name.as_bytes(), b""],
            visitor: Some(visitor),
            retry: None,
        };
        let mut outcome = Outcome::Refused(Refusal::Late);
        self.engine.allocate(now, &ask, &mut outcome);
        outcome
    }

    fn store(&mut self) {
        while let Some(group) = self.engine.seal(Vec::new()) {
            self.groups.push(group);
        }
    }

    /// Kills the server at `at`. All allocations that visitors received are stored, but a request
    /// in progress is lost. Restarts the server at `again` with the contents of the journal.
    fn crash(&mut self, at: Millis, again: Millis) {
        self.store();
        self.ask(at, VisitorId([0; 16]), "visitor=lost");
        let mut restore = Restore::new(vec![self.pool.clone()], 0);
        let mut tip = Tip::FIRST;
        for group in &self.groups {
            let read = restore.group(&group.header, &group.body);
            assert!(read.is_ok(), "a group that the engine wrote cannot be read: {read:?}");
            tip = Tip::after(&group.header);
        }
        self.engine = restore.finish(tip.raise_epoch(), again, false).0;
    }

    /// Returns the allocations of `number` up to the time `at`, newest first.
    fn holders(&self, number: PromoNumber, mut at: Millis) -> Vec<ReportedAllocation> {
        let mut all = Vec::new();
        while all.len() < LOOKED_UP_MAX {
            let Some(held) = self.holder(number, at) else { break };
            at = Millis(held.allocated_wall.0.saturating_sub(1));
            all.push(ReportedAllocation {
                pool: held.pool,
                allocated_at: held.allocated_wall,
                locked_until: held.locked_until,
                tapped_at: None,
                parameters: ringwell_wire::params::decode(&held.params),
            });
        }
        all
    }

    fn holder(&self, number: PromoNumber, at: Millis) -> Option<ringwell_engine::PastAllocation> {
        let (mut walk, mut step) = self.engine.attribution(number, Moment::Wall(at), &[]);
        loop {
            let position = match step {
                Step::Done(past) => return past.held,
                Step::Read(position) => position,
            };
            // The virtual clock is also the wall clock.
            let fed = if let Some(record) = self.engine.pending_record(position) {
                walk.feed(&record, None)
            } else {
                let (n, _) = position_parts(position);
                let place = self.groups.binary_search_by_key(&n, |group| group.header.n).ok()?;
                walk.feed(&self.groups[place].record(position).ok()?, None)
            };
            step = fed.ok()?;
        }
    }
}

/// A source of random numbers that depends only on the seed.
struct Random(blake3::OutputReader);

impl Random {
    fn new(seed: u64) -> Self {
        Self(blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof())
    }

    /// Returns a random number from 0 to 1, excluding 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    fn next(&mut self) -> f64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        (u64::from_le_bytes(bytes) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a random delay between seeing the number and calling it.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "days at most")]
    fn delay(&mut self, callers: &Callers) -> Millis {
        let (mut part, wait) = (self.next(), -(1.0 - self.next()).ln());
        let mut mean = 0.0;
        for (share, of) in callers.parts() {
            mean = *of;
            part -= share;
            if part < 0.0 {
                break;
            }
        }
        Millis((mean * wait * 1_000.0) as u64)
    }
}
