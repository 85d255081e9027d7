//! Simulates callers, their links and one owner in virtual time. The simulation uses a [`Window`]
//! in the same way as the real driver does.
//!
//! The owner either serves sub-requests one after the other, like a shard's engine, or answers each
//! one after a fixed time. It drops a sub-request whose caller gave up before the work on it began.
//! The network has no latency. Nothing here reads a clock: the same [`Scenario`] gives the same
//! figures.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use super::usual;
use crate::pacing::{Admission, Ending, Pacing, Shed, SplitMix64, Window};

pub(super) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(super) const fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}

/// The way the owner serves sub-requests.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    /// Sub-requests are served one after the other, and each takes this long.
    Queue(Duration),
    /// All sub-requests are served concurrently, and each takes this long.
    Delay(Duration),
}

/// The times of an event: it begins at `first`, lasts for `length`, and is repeated every `period`.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub first: Duration,
    pub length: Duration,
    pub period: Duration,
}

impl Times {
    pub(super) const NEVER: Self = Self::once(ms(0), ms(0));

    pub(super) const fn once(first: Duration, length: Duration) -> Self {
        Self { first, length, period: Duration::MAX }
    }

    pub(super) const fn every(first: Duration, length: Duration, period: Duration) -> Self {
        Self { first, length, period }
    }

    /// Returns the beginning and end of the event in progress at `at`, or of the next event if
    /// there is none.
    fn around(&self, at: Duration) -> Option<(Duration, Duration)> {
        let mut from = self.first;
        while from.saturating_add(self.length) <= at {
            from = from.saturating_add(self.period);
            if from == Duration::MAX {
                return None;
            }
        }
        Some((from, from + self.length))
    }

    fn covers(&self, at: Duration) -> Option<Duration> {
        self.around(at).filter(|(from, _)| *from <= at).map(|(_, to)| to)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Scenario {
    pub pacing: Pacing,
    pub owner: Owner,
    /// The times during which the owner stops. Afterwards, it continues the work that was in
    /// progress.
    pub stops: Times,
    /// The times during which the owner refuses every connection.
    pub refuses: Times,
    /// The times during which the callers themselves stop.
    pub caller_stops: Times,
    pub callers: usize,
    /// The time between two sub-requests of one caller, or the average time if `random` is set.
    pub spacing: Duration,
    pub random: bool,
    pub length: Duration,
    pub seed: u64,
}

impl Scenario {
    /// One caller sends 1,000 sub-requests per second to a healthy owner for ten seconds.
    pub(super) fn healthy() -> Self {
        Self {
            pacing: usual(),
            owner: Owner::Queue(us(300)),
            stops: Times::NEVER,
            refuses: Times::NEVER,
            caller_stops: Times::NEVER,
            callers: 1,
            spacing: ms(1),
            random: false,
            length: ms(10_000),
            seed: 1,
        }
    }
}

/// The outcome of one sub-request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Good,
    Shed(Shed),
    Failed(Ending),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub asked: Duration,
    pub sent: Option<Duration>,
    pub took: Duration,
    pub outcome: Outcome,
}

#[derive(Default)]
pub(super) struct History {
    pub rows: Vec<Row>,
    pub pings: Vec<Duration>,
    /// The first caller's window after each event.
    pub windows: Vec<(Duration, f64)>,
    /// The times when a link shut.
    pub shut: Vec<Duration>,
    /// The number of sub-requests at the owner, and the total number of slots in all windows, after
    /// each event.
    pub queues: Vec<(Duration, f64, f64)>,
}

#[derive(Clone, Copy)]
enum Event {
    Ask,
    WaitOver(u64),
    Slow(u64),
    Ended(u64, Ending),
    PingDue,
    PingEnded(Duration, Ending),
}

struct Link {
    window: Window,
    waiting: VecDeque<u64>,
    ping_is_planned: bool,
}

struct Pending {
    asked: Duration,
    sent: Option<Duration>,
    reported_slow: bool,
}

pub(super) struct World {
    scenario: Scenario,
    links: Vec<Link>,
    pending: BTreeMap<u64, Pending>,
    events: BTreeMap<(Duration, u64), (usize, Event)>,
    next_id: u64,
    owner_free_at: Duration,
    /// The time when each sub-request leaves the owner, because it was served or because its caller
    /// gave up.
    owner_queue: Vec<Duration>,
    random: SplitMix64,
    history: History,
}

#[expect(clippy::large_types_passed_by_value, reason = "written in place, once a run")]
pub(super) fn run(scenario: Scenario) -> History {
    let mut world = World {
        scenario,
        links: Vec::new(),
        pending: BTreeMap::new(),
        events: BTreeMap::new(),
        next_id: 0,
        owner_free_at: ms(0),
        owner_queue: Vec::new(),
        random: SplitMix64(scenario.seed),
        history: History::default(),
    };
    for caller in 0..scenario.callers {
        let window = Window::new(scenario.pacing, world.random.next());
        world.links.push(Link { window, waiting: VecDeque::new(), ping_is_planned: false });
        let phase = scenario.spacing.mul_f64(world.unit());
        world.plan(phase, caller, Event::Ask);
    }
    while let Some(((due, _), (caller, event))) = world.events.pop_first() {
        let now = scenario.caller_stops.covers(due).unwrap_or(due);
        world.step(now, now - due, caller, event);
    }
    assert!(world.pending.is_empty(), "every sub-request ends");
    assert!(world.links.iter().all(|link| link.window.in_flight() == 0), "every place is returned");
    world.history
}

impl World {
    /// Returns a random number from 0 up to but not including 1.
    #[expect(clippy::cast_precision_loss, reason = "a random number of 32 bits")]
    fn unit(&mut self) -> f64 {
        (self.random.next() >> 32) as f64 / (1_u64 << 32) as f64
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn plan(&mut self, at: Duration, caller: usize, event: Event) {
        let id = self.id();
        self.events.insert((at, id), (caller, event));
    }

    fn step(&mut self, now: Duration, lag: Duration, caller: usize, event: Event) {
        let was_shut = self.links[caller].window.is_shut();
        match event {
            Event::Ask => self.ask(now, caller),
            Event::WaitOver(id) => self.wait_over(now, caller, id),
            Event::Slow(id) => self.slow(now, lag, caller, id),
            Event::Ended(id, ending) => self.ended(now, lag, caller, id, ending),
            Event::PingDue => self.ping(now, caller),
            Event::PingEnded(sent, ending) => {
                self.links[caller].window.pinged(now, now - sent, ending, lag);
                self.links[caller].ping_is_planned = false;
            }
        }
        let window = &self.links[caller].window;
        if window.is_shut() && !was_shut {
            self.history.shut.push(now);
            let waiting = core::mem::take(&mut self.links[caller].waiting);
            for id in waiting {
                self.finish(now, id, Outcome::Shed(Shed::Shut));
            }
        }
        while self.links[caller].window.next_waiting() {
            let id = self.links[caller].waiting.pop_front().expect("the window counts as we do");
            self.send(now, caller, id);
        }
        self.plan_ping(caller, now);
        self.note(now);
    }

    fn note(&mut self, now: Duration) {
        self.owner_queue.retain(|leaves| *leaves > now);
        let windows = self.links.iter().map(|link| link.window.window().floor()).sum();
        #[expect(clippy::cast_precision_loss, reason = "a short queue")]
        let queue = self.owner_queue.len() as f64;
        self.history.queues.push((now, queue, windows));
        self.history.windows.push((now, self.links[0].window.window()));
    }

    fn ask(&mut self, now: Duration, caller: usize) {
        let gap = if self.scenario.random {
            self.scenario.spacing.mul_f64(-(1.0 - self.unit()).ln())
        } else {
            self.scenario.spacing
        };
        if now + gap < self.scenario.length {
            self.plan(now + gap, caller, Event::Ask);
        }
        let id = self.id();
        self.pending.insert(id, Pending { asked: now, sent: None, reported_slow: false });
        match self.links[caller].window.ask(now) {
            Admission::Send => self.send(now, caller, id),
            Admission::Wait => {
                self.links[caller].waiting.push_back(id);
                self.plan(now + self.scenario.pacing.wait, caller, Event::WaitOver(id));
            }
            Admission::Overflow(shed) => self.finish(now, id, Outcome::Shed(shed)),
        }
    }

    fn wait_over(&mut self, now: Duration, caller: usize, id: u64) {
        let link = &mut self.links[caller];
        if let Some(place) = link.waiting.iter().position(|waits| *waits == id) {
            link.waiting.remove(place);
            link.window.gave_up();
            self.finish(now, id, Outcome::Shed(Shed::Full));
        }
    }

    fn send(&mut self, now: Duration, caller: usize, id: u64) {
        self.pending.get_mut(&id).expect("is pending").sent = Some(now);
        let (at, ending) = self.owner_takes(now);
        self.owner_queue.push(at);
        self.plan(now + self.scenario.pacing.slow, caller, Event::Slow(id));
        self.plan(at, caller, Event::Ended(id, ending));
    }

    fn slow(&mut self, now: Duration, lag: Duration, caller: usize, id: u64) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.reported_slow = true;
            self.links[caller].window.slow(now, lag);
        }
    }

    fn ended(&mut self, now: Duration, lag: Duration, caller: usize, id: u64, ending: Ending) {
        let pending = &self.pending[&id];
        let took = now - pending.sent.expect("was sent");
        self.links[caller].window.ended(now, took, ending, lag, pending.reported_slow);
        let outcome =
            if ending == Ending::Answered { Outcome::Good } else { Outcome::Failed(ending) };
        self.finish(now, id, outcome);
    }

    fn finish(&mut self, now: Duration, id: u64, outcome: Outcome) {
        let Pending { asked, sent, .. } = self.pending.remove(&id).expect("ends once");
        self.history.rows.push(Row { asked, sent, took: now - asked, outcome });
    }

    fn plan_ping(&mut self, caller: usize, now: Duration) {
        let link = &mut self.links[caller];
        if let Some(at) = link.window.ping_at().filter(|_| !link.ping_is_planned) {
            link.ping_is_planned = true;
            if now < self.scenario.length {
                self.plan(at, caller, Event::PingDue);
            }
        }
    }

    fn ping(&mut self, now: Duration, caller: usize) {
        self.links[caller].window.ping_sent(now);
        self.history.pings.push(now);
        let (at, ending) = self.owner_takes(now);
        self.plan(at, caller, Event::PingEnded(now, ending));
    }

    /// Returns the time at which the request sent at `now` is answered, and the kind of answer.
    fn owner_takes(&mut self, now: Duration) -> (Duration, Ending) {
        let Scenario { owner, stops, refuses, pacing, .. } = self.scenario;
        if refuses.covers(now).is_some() {
            return (now + us(100), Ending::Lost);
        }
        let expires = now + pacing.deadline;
        let (from, takes) = match owner {
            Owner::Queue(takes) => (now.max(self.owner_free_at), takes),
            Owner::Delay(takes) => (now, takes),
        };
        let begins = stops.covers(from).unwrap_or(from);
        if begins >= expires {
            return (expires, Ending::Lost);
        }
        let done = match stops.around(begins) {
            Some((stop, _)) if stop < begins + takes => begins + takes + stops.length,
            _ => begins + takes,
        };
        self.owner_free_at = done;
        if done > expires { (expires, Ending::Lost) } else { (done, Ending::Answered) }
    }
}
