//! The world of a run: two or three machines, of which one should serve, the log's servers, and the
//! clients.
//!
//! It polls the tasks of processes one at a time. As in the real system, heartbeats are only hints:
//! they may be late or lost, and a standby may start while another process serves.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringwell_driver::Moment;
use ringwell_driver::store::{BEAT_EVERY, Fenced, Sign, Silence};

use super::client::{Answers, ClientAnswer, Sent, ask};
use super::fault::Strikes;
use super::judge::{Begun, Judge};
use super::options::{LogOptions, LogReport};
use super::process::{Process, ProcessPhase};
use super::servers::{Servers, Shared as ServersHandle, Stream, lock};
use crate::cluster::{Cluster, Map};
use crate::fault::{Faults, Kind};
use crate::files::SimFiles;
use crate::machine::Shared;
use crate::model::{Judged, PoolRule, Violation};
use crate::pace::{MS, SECOND};
use crate::random::Random;

/// The interval between two heartbeats.
#[expect(clippy::cast_possible_truncation, reason = "half a second")]
pub(super) const SIGN_US: u64 = BEAT_EVERY.as_micros() as u64;

/// The maximum duration of a poll.
const POLL_US: u64 = 20;

/// The length of the calm period after the last fault. It is long enough for starts to complete and
/// for holds and lockouts to end.
const CALM_US: u64 = 130 * SECOND;

/// The maximum number of consecutive starts that may be refused because the log changed during the
/// start.
const REFUSALS_MAX: u32 = 3;

/// Parts of the error messages that a refused start may report. A start is refused if another
/// process started the log's journal, if a former leader answered for too long, or if an append
/// found a damaged message. After a refusal, a supervisor starts the process again.
const RETRIED: [&str; 4] =
    ["another journal", "has lost message", "is missing", "cannot be taken over"];

/// Parts of further error messages. These are permitted if the log has lost its newest messages and
/// another process appends new ones during the start.
const RETRIED_AFTER_LOSS: [&str; 2] = ["does not follow", "has changed since"];

/// The maximum time by which an answer may miss its deadline.
const LATE_US: u64 = 5 * MS;

/// An event in the run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Second,
    Sign,
    Client,
    StandBy(usize, u32),
    Calm,
    Probe,
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) files: SimFiles,
    pub(super) boot: u64,
    /// Increases whenever the machine's process ends.
    pub(super) life: u32,
    pub(super) process: Option<Process>,
    pub(super) paused_until: u64,
    pub(super) deaf_until: u64,
    /// The wait until the serving process stops sending heartbeats, if the machine is a standby.
    pub(super) waits: Option<Silence>,
    pub(super) waits_since: u64,
    /// The last heartbeat that the machine received during this wait, and the time of its arrival.
    pub(super) heard: Option<(Sign, u64)>,
    /// Tracks whether the machine's process has lost shards to another process.
    pub(super) fenced: Fenced,
    /// The number of consecutive starts that were refused because of the contents of the log.
    pub(super) refusals: u32,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) shared: Rc<Shared>,
    pub(super) servers: ServersHandle,
    pub(super) judge: Rc<RefCell<Judge>>,
    pub(super) cluster: Rc<Cluster>,
    pub(super) machines: Vec<Machine>,
    pub(super) queue: BTreeMap<(u64, u64), Event>,
    pub(super) events: u64,
    pub(super) random: Random,
    pub(super) turns: Random,
    pub(super) disk_faults: Faults,
    pub(super) answers: Answers,
    pub(super) sent: Sent,
    pub(super) batches: u64,
    pub(super) processes: u64,
    /// The time when the calm period ends, and the earliest time at which the run may end.
    pub(super) calm_end_us: u64,
    pub(super) end_us: u64,
    pub(super) is_over: bool,
    pub(super) probes: u64,
    pub(super) take_overs: u64,
    pub(super) from_the_living: u64,
}

impl Drop for World {
    fn drop(&mut self) {
        self.machines.iter().filter_map(|it| it.process.as_ref()).for_each(Process::end);
    }
}

impl World {
    pub(super) fn new(options: &LogOptions) -> Self {
        let seed = options.seed;
        let mut random = Random::new(seed, 1_003);
        let shards = random.between(1, 2);
        let count = usize::try_from(random.between(2, 3)).unwrap_or(2);
        let shards = usize::try_from(shards).unwrap_or(1);
        let cluster = cluster(&mut random, shards);
        let no_faults = || Faults::draw(seed, &[], Kind::ALL, None);
        let shared = Rc::new(Shared::new(seed, count, no_faults(), options.keeps_tale));
        let salts = Arc::new(Mutex::new(Random::new(seed, 1_004)));
        let machine = |at: usize| Machine {
            files: SimFiles::new(&shared.call_faults, &salts),
            // Each machine has its own range of boot numbers.
            boot: (at as u64 + 1) << 32,
            life: 0,
            process: None,
            paused_until: 0,
            deaf_until: 0,
            waits: None,
            waits_since: 0,
            heard: None,
            fenced: Fenced::default(),
            refusals: 0,
        };
        let strikes = Strikes::draw(seed, &options.on, &options.off);
        let mut judge = Judge::default();
        let lifetimes = cluster.pools.iter().map(|(pool, rule)| (*pool, rule.lifetime_ms));
        judge.lifetimes_ms = lifetimes.collect();
        let length_us = random.between(40, 120) * SECOND;
        let mut world = Self {
            machines: (0..count).map(machine).collect(),
            servers: Arc::new(Mutex::new(Servers::new(seed, shards, strikes))),
            judge: Rc::new(RefCell::new(judge)),
            cluster: Rc::new(cluster),
            shared,
            queue: BTreeMap::new(),
            events: 0,
            random,
            turns: Random::new(seed, 1_005),
            disk_faults: no_faults(),
            answers: Answers::default(),
            sent: Sent::new(),
            batches: 0,
            processes: 0,
            calm_end_us: length_us + CALM_US + 5 * SECOND,
            end_us: length_us + CALM_US + 5 * SECOND,
            is_over: false,
            probes: 0,
            take_overs: 0,
            from_the_living: 0,
        };
        world.begin(0, None);
        for at in 1..count {
            world.stand_by(at);
        }
        world.add(SECOND, Event::Second);
        world.add(SIGN_US, Event::Sign);
        world.add(50 * MS, Event::Client);
        world.add(length_us, Event::Calm);
        for round in 0..3 {
            world.add(length_us + CALM_US + round * SECOND, Event::Probe);
        }
        world
    }

    pub(super) fn now(&self) -> u64 {
        self.shared.now.get()
    }

    pub(super) fn add(&mut self, at: u64, event: Event) {
        self.events += 1;
        self.queue.insert((at, self.events), event);
    }

    pub(super) fn tell(&self, machine: usize, text: impl FnOnce() -> String) {
        self.shared.tell(machine, &[], text);
    }

    /// Runs until the end, or until a promise is broken.
    pub(super) fn run(&mut self) -> Judged {
        self.run_until(self.calm_end_us)?;
        self.run_until(self.end_us)?;
        let (served, wanted) = (self.judge.borrow().served, self.probes);
        if served < wanted {
            let text = format!("{served} of {wanted} rows got a number after the faults");
            return Err(Violation { rule: "not live", text, number: 0, shard: 0 });
        }
        self.check_look_ups()
    }

    pub(super) fn run_until(&mut self, end: u64) -> Judged {
        loop {
            let event = self.queue.first_key_value().map(|((at, _), _)| *at);
            let turn = self.next_turn();
            let at = event.into_iter().chain(turn.map(|(at, _)| at)).min();
            let Some(at) = at.filter(|at| *at <= end) else { return Ok(()) };
            self.shared.now.set(self.now().max(at));
            match turn {
                Some((due, machine)) if event.is_none_or(|event| due < event) => {
                    self.poll(machine);
                }
                _ => {
                    if let Some((_, event)) = self.queue.pop_first() {
                        self.happen(event);
                    }
                }
            }
            self.after()?;
        }
    }

    fn next_turn(&self) -> Option<(u64, usize)> {
        let now = self.now();
        let due = |(at, machine): (usize, &Machine)| {
            let process = machine.process.as_ref()?;
            let executor = &process.platform.executor;
            let due = match executor.next_timer() {
                _ if executor.ready() > 0 => now,
                Some(Moment(at)) => u64::try_from(at.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX),
                None => return None,
            };
            Some((due.max(process.busy_until).max(machine.paused_until).max(now), at))
        };
        self.machines.iter().enumerate().filter_map(due).min()
    }

    fn poll(&mut self, machine: usize) {
        let (now, takes) = (self.now(), self.turns.between(1, POLL_US));
        let (is_in_order, drawn) = (self.turns.below(4) > 0, self.turns.next());
        let Some(process) = self.machines[machine].process.as_mut() else { return };
        process.busy_until = now + takes;
        let executor = process.platform.executor.clone();
        executor.advance(Moment(Duration::from_micros(now)));
        let place = |count: usize| {
            let drawn = usize::try_from(drawn % count.max(1) as u64).unwrap_or(0);
            if is_in_order { 0 } else { drawn }
        };
        let _ = executor.poll_drawn(place);
        self.shared.mix(now ^ (machine as u64).rotate_left(20));
    }

    /// Judges the effects of a poll or of an event.
    fn after(&mut self) -> Judged {
        let broken = lock(&self.servers).take_broken();
        if let Some(violation) = broken.or_else(|| self.shared.broken.borrow_mut().take()) {
            return Err(violation);
        }
        let answers = std::mem::take(&mut *self.answers.borrow_mut());
        for answer in answers {
            self.answer_leaves(answer)?;
        }
        for at in 0..self.machines.len() {
            self.look_at(at)?;
        }
        Ok(())
    }

    fn answer_leaves(&mut self, answer: ClientAnswer) -> Judged {
        let (now, ClientAnswer { process, batch, rows, deadline_us, is_failed }) =
            (self.now(), answer);
        let sent_us = self.sent.remove(&batch).unwrap_or(0);
        let of = self
            .machines
            .iter_mut()
            .find(|it| it.process.as_ref().is_some_and(|p| p.number == process));
        let Some(machine) = of else { return Ok(()) };
        if let Some(process) = machine.process.as_mut() {
            process.batches.remove(&batch);
        }
        if is_failed {
            let text = format!("batch {batch} failed as a whole");
            return Err(Violation { rule: "panic", text, number: 0, shard: 0 });
        }
        let was_paused = machine.paused_until >= sent_us;
        if now > deadline_us + LATE_US && !was_paused {
            let text = format!("batch {batch} was answered {} us too late", now - deadline_us);
            return Err(Violation { rule: "late", text, number: 0, shard: 0 });
        }
        let servers = lock(&self.servers);
        for (row, answer) in (0..).zip(rows) {
            self.judge.borrow_mut().answered(&servers, (process, batch, row), answer, now)?;
            if let crate::model::Shown::Number(number) = answer.shown {
                self.shared.mix(number);
                self.shared.tell(0, &[number], || {
                    format!("process {process} answers batch {batch} row {row} with {number}")
                });
            }
        }
        Ok(())
    }

    /// Handles a process that has opened its shards or has ended.
    fn look_at(&mut self, at: usize) -> Judged {
        let Some(process) = self.machines[at].process.as_ref() else { return Ok(()) };
        let number = process.number;
        let (opened, ended) = match &mut *process.state.borrow_mut() {
            ProcessPhase::Opened(begun) => (std::mem::take(begun), None),
            ProcessPhase::Ended(why) => (Vec::new(), Some(why.clone())),
            ProcessPhase::Starting | ProcessPhase::Serving(_) => return Ok(()),
        };
        if let Some(why) = ended {
            return self.has_ended(at, &why);
        }
        if opened.is_empty() {
            return Ok(());
        }
        self.machines[at].refusals = 0;
        self.take_overs += 1;
        let lives = |(other, it): (usize, &Machine)| {
            other != at && it.process.as_ref().is_some_and(|it| it.sign().is_some())
        };
        self.from_the_living += u64::from(self.machines.iter().enumerate().any(lives));
        for mut begun in opened {
            {
                let servers = lock(&self.servers);
                let stream = &servers.streams[usize::from(begun.shard)];
                let is_unvouched = stream.follows_foreign(begun.first_n);
                // If groups were dropped from the log, only snapshots contain their effects, and
                // all of these snapshots may be damaged.
                let has_rotted = servers.snapshots[usize::from(begun.shard)].has_rotted;
                let lacks_past = stream.ends().start > 1 && has_rotted;
                begun.has_lost = stream.has_ever_lost() || is_unvouched || lacks_past;
                begun.is_owner = stream.owner().is_some_and(|(author, _)| author == begun.author);
                begun.take_overs = stream.take_overs();
            }
            let begun = &begun;
            self.tell(at, || {
                let Begun { shard, first_n, is_in_doubt, now_ms, held_until_ms, .. } = begun;
                format!(
                    "process {number} owns shard {shard} from group {first_n} on; history in \
                    doubt: {is_in_doubt}; time {now_ms}; pools held until {held_until_ms}"
                )
            });
            self.judge.borrow_mut().begins(number, begun)?;
        }
        Ok(())
    }

    /// Judges a start that failed. The failure is a violation unless it has a valid cause, such as
    /// servers that did not answer.
    fn has_ended(&mut self, at: usize, why: &str) -> Judged {
        let waited = self.now() - self.machines[at].process.as_ref().map_or(0, |it| it.began_us);
        let is_one_of = |texts: &[&str]| texts.iter().any(|text| why.contains(text));
        let has_lost = lock(&self.servers).streams.iter().any(Stream::has_ever_lost);
        let is_of_log = is_one_of(&RETRIED) || has_lost && is_one_of(&RETRIED_AFTER_LOSS);
        self.machines[at].refusals += u32::from(is_of_log);
        let is_known =
            is_of_log || is_one_of(&["journal's servers failed", "full", "accept writes"]);
        self.tell(at, || format!("does not start: {why}"));
        if !is_known || self.machines[at].refusals > REFUSALS_MAX {
            let text = format!("after {waited} us: {why}");
            return Err(Violation { rule: "refused", text, number: 0, shard: 0 });
        }
        self.stop(at);
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Second => self.second(),
            Event::Sign => self.signs(),
            Event::Client => self.client(),
            Event::StandBy(at, life) if self.machines[at].life == life => self.stand_by(at),
            Event::StandBy(..) => {}
            Event::Calm => self.calm(),
            Event::Probe => self.probe(),
        }
    }

    fn calm(&mut self) {
        self.is_over = true;
        lock(&self.servers).calm(self.now());
        for machine in &mut self.machines {
            (machine.deaf_until, machine.paused_until) =
                (0, machine.paused_until.min(self.shared.now.get()));
        }
        self.tell(0, || "the last fault is over".to_owned());
    }

    /// Sends the next client's batch to a machine that serves.
    fn client(&mut self) {
        let now = self.now();
        if self.is_over {
            return;
        }
        let gap = self.random.between(MS, 60 * MS);
        self.add(now + gap, Event::Client);
        let pools: Vec<u64> = self.cluster.pools.keys().copied().collect();
        let rows = self.random.between(1, 6);
        let pools = (0..rows).map(|_| pools[self.random.index(pools.len())]).collect();
        let serving: Vec<usize> = (0..self.machines.len()).filter(|at| self.serves(*at)).collect();
        if !serving.is_empty() {
            let at = serving[self.random.index(serving.len())];
            self.send(at, pools);
        }
    }

    fn serves(&self, at: usize) -> bool {
        let state = self.machines[at].process.as_ref().map(|process| process.state.borrow());
        state.is_some_and(|state| matches!(&*state, ProcessPhase::Serving(_)))
    }

    pub(super) fn send(&mut self, at: usize, pools: Vec<u64>) {
        let (now, drawn) = (self.now(), self.random.next());
        let Some(process) = self.machines[at].process.as_mut() else { return };
        let ProcessPhase::Serving(serving) = &*process.state.borrow() else { return };
        let which = usize::try_from(drawn % serving.shards.len() as u64).unwrap_or(0);
        let Some(served) = serving.shards.values().nth(which) else { return };
        self.batches += 1;
        let (shard, answers) = (Rc::clone(&served.shard), Rc::clone(&self.answers));
        self.sent.insert(self.batches, now);
        process.batches.insert(self.batches);
        let asked = ask(shard, process.number, self.batches, pools, answers);
        process.platform.executor.spawn(asked);
    }

    pub(super) fn report(&self, violation: Option<Violation>) -> LogReport {
        let judge = self.judge.borrow();
        let numbers = violation.iter().map(|violation| violation.number).collect::<Vec<_>>();
        LogReport {
            violation,
            length_us: self.now(),
            rows: judge.rows,
            numbers: judge.numbers,
            take_overs: self.take_overs,
            from_the_living: self.from_the_living,
            faults: lock(&self.servers).strikes.counts(),
            hash: self.shared.hash.get(),
            story: self.shared.story.borrow().lines(&numbers),
        }
    }
}

/// Draws a cluster whose pools all belong to the same process.
fn cluster(random: &mut Random, shards: usize) -> Cluster {
    let (mut pools, mut owners) = (BTreeMap::new(), BTreeMap::new());
    for index in 0..random.between(2, 5) {
        let id = 100 + index * 7;
        let lifetime_ms = [2_000, 5_000, 10_000, 20_000][random.index(4)];
        let first = 2_005_550_000 + index * 1000;
        let count = [5, 20, 80, 300][random.index(4)];
        let numbers = (first..first + count).collect();
        pools.insert(id, PoolRule { lifetime_ms, numbers });
        owners.insert(id, u16::try_from(random.index(shards)).unwrap_or(0));
    }
    let maps = vec![Rc::new(Map { version: 1, owners })];
    Cluster { homes: vec![0; shards], nodes: 1, pools, lists: 0, maps }
}
