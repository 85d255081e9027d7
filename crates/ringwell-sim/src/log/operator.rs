//! Faults of machines, second by second, and how supervisors and operators react to them.

use std::time::Duration;

use ringwell_core::Millis;
use ringwell_driver::node::JournalState;
use ringwell_driver::store::{Heard, LastOwner, Sign};

use super::fault::LogFault;
use super::process::{Begin, ProcessPhase};
use super::servers::lock;
use super::world::{Event, World};
use crate::model::Violation;
use crate::world::{MS, SECOND};

/// The interval of heartbeats, and the silence after which a standby starts.
pub(super) const SIGN_US: u64 = 500 * MS;
const SILENCE_US: u64 = 3 * SECOND;

/// Wall clocks are up to this far from true time.
const SKEW_US: u64 = 600 * SECOND;

impl World {
    /// Runs each second: faults, and the actions of operators.
    pub(super) fn second(&mut self) {
        self.add(self.now() + SECOND, Event::Second);
        let (lines, lost) = lock(&self.servers).inject(self.now(), self.machines.len());
        for line in lines {
            self.tell(0, || line);
        }
        for (shard, loss) in lost {
            self.judge.borrow_mut().lost(&lock(&self.servers), shard, loss);
        }
        for at in 0..self.machines.len() {
            self.see_to(at);
            if !self.is_over {
                self.inject(at);
            }
        }
    }

    fn strikes(&self, fault: LogFault) -> bool {
        lock(&self.servers).strikes.strikes(fault)
    }

    fn drawn(&self, fault: LogFault, low: u64, high: u64) -> u64 {
        lock(&self.servers).strikes.stream(fault).between(low, high)
    }

    fn inject(&mut self, at: usize) {
        if self.strikes(LogFault::Clock) {
            let skew = self.drawn(LogFault::Clock, 0, 2 * SKEW_US);
            let skew = skew.cast_signed() - SKEW_US.cast_signed();
            self.shared.clocks[at].skew_us.set(skew);
            self.tell(at, || format!("the wall clock is {} s off now", skew / 1_000_000));
        }
        if self.strikes(LogFault::Deaf) {
            let length = self.drawn(LogFault::Deaf, SECOND, 8 * SECOND);
            self.machines[at].deaf_until = self.now() + length;
        }
        if self.machines[at].stands_by && self.strikes(LogFault::Hasty) {
            let heard = self.heard(at);
            self.begin(at, heard.as_ref());
        }
        if self.machines[at].process.is_none() {
            return;
        }
        if self.strikes(LogFault::Pause) {
            let length = self.drawn(LogFault::Pause, 50 * MS, 12 * SECOND);
            self.machines[at].paused_until = self.now() + length;
            self.tell(at, || format!("stops for {} ms", length / MS));
        }
        if self.strikes(LogFault::Power) {
            self.stop(at);
            self.machines[at].files.disk().power_cut(&mut self.disk_faults);
            self.machines[at].files.next_life();
            self.machines[at].boot += 1;
            self.shared.clocks[at].booted_at.set(self.now());
        } else if self.strikes(LogFault::Wipe) {
            self.stop(at);
            self.machines[at].files.disk().wipe();
        } else if self.strikes(LogFault::Kill) {
            self.stop(at);
        }
    }

    /// A process that was fenced ends, and an operator ends one that has failed.
    fn see_to(&mut self, at: usize) {
        let (now, life) = (self.now(), self.machines[at].life);
        let Some(process) = self.machines[at].process.as_ref() else { return };
        if self.machines[at].paused_until > now {
            return;
        }
        let states: Vec<JournalState> = match &*process.state.borrow() {
            ProcessPhase::Serving(serving) => {
                serving.node.journals().map(|(_, state)| state).collect()
            }
            _ => return,
        };
        if process.owns_all(&self.servers) {
            let time = process.sign().map(|sign| sign.at);
            let shards = u16::try_from(self.cluster.homes.len()).unwrap_or(0);
            let mut judge = self.judge.borrow_mut();
            for (shard, Millis(time)) in (0..shards).zip(time.into_iter().cycle()) {
                self.shared.judge(judge.check_time(process.number, shard, time, now));
            }
        }
        self.check_fenced(at);
        if states.iter().all(|state| *state == JournalState::Taken) {
            self.stop(at);
        } else if states
            .iter()
            .any(|state| matches!(state, JournalState::Failed | JournalState::Taken))
        {
            let patience = self.random.between(SECOND, 10 * SECOND);
            if !std::mem::replace(&mut self.machines[at].is_seen_to, true) {
                self.add(now + patience, Event::Stop(at, life));
            }
        }
    }

    /// If a process detects that it was fenced, another one has indeed written to its log.
    fn check_fenced(&self, at: usize) {
        let Some(process) = self.machines[at].process.as_ref() else { return };
        let ProcessPhase::Serving(serving) = &*process.state.borrow() else { return };
        let servers = lock(&self.servers);
        for (shard, state) in serving.node.journals() {
            let served = serving.shards.get(&shard).filter(|_| state == JournalState::Taken);
            let stream = &servers.streams[usize::from(shard)];
            let owner = stream.owner();
            if let Some(served) = served
                && !stream.has_ever_lost()
                && owner.is_none_or(|(author, _)| author == served.author)
            {
                let text = "it gives the shard up, and is its owner".to_owned();
                let rule = "fenced without an owner";
                self.shared.judge(Err(Violation { rule, text, number: 0, shard }));
            }
        }
    }

    /// Starts a process.
    pub(super) fn begin(&mut self, at: usize, last_owner: Option<&LastOwner>) {
        self.processes += 1;
        let machine = &mut self.machines[at];
        machine.stands_by = false;
        let begin = Begin {
            shared: &self.shared,
            servers: &self.servers,
            judge: &self.judge,
            cluster: &self.cluster,
            files: &machine.files,
            machine: at,
            life: machine.life,
            boot: machine.boot,
            number: self.processes,
            last_owner: last_owner.cloned(),
        };
        machine.process = Some(begin.process());
        machine.files.disk().accept();
        let number = self.processes;
        self.tell(at, || format!("process {number} starts; last owner {last_owner:?}"));
    }

    /// Ends a process; after a while a standby starts there.
    pub(super) fn stop(&mut self, at: usize) {
        let (now, down) = (self.now(), self.random.between(20 * MS, 3 * SECOND));
        let machine = &mut self.machines[at];
        let Some(process) = machine.process.take() else { return };
        process.end();
        for batch in &process.batches {
            self.sent.remove(batch);
        }
        machine.files.disk().kill(&mut self.random);
        machine.files.next_life();
        machine.life += 1;
        (machine.paused_until, machine.heard, machine.is_seen_to) = (0, None, false);
        let life = machine.life;
        self.tell(at, || format!("process {} ends", process.number));
        self.add(now + down, Event::StandBy(at, life));
    }

    fn heard(&self, at: usize) -> Option<LastOwner> {
        let machine = &self.machines[at];
        let (sign, came) = machine.heard.clone()?;
        let ago = Duration::from_micros(self.now() - came);
        let since_boot = Duration::from_micros(self.shared.since_boot_us(at));
        let wall = Duration::from_micros(self.shared.wall_us(at));
        let reading = ringwell_driver::clock::reading(machine.boot, since_boot, wall);
        Some(Heard { sign, ago }.owner(&reading))
    }

    /// Serving processes report themselves; standbys that receive no report start.
    pub(super) fn signs(&mut self) {
        let now = self.now();
        self.add(now + SIGN_US, Event::Sign);
        let signs: Vec<Sign> = self
            .machines
            .iter()
            .enumerate()
            .filter(|(_, it)| it.paused_until <= now)
            .filter_map(|(_, it)| it.process.as_ref()?.sign())
            .collect();
        for at in 0..self.machines.len() {
            if !self.machines[at].stands_by {
                continue;
            }
            if self.machines[at].deaf_until <= now {
                for sign in &signs {
                    self.machines[at].heard = Some((sign.clone(), now));
                    self.machines[at].silent_since = now;
                }
            }
            let apart = (at as u64) * 400 * MS;
            if now - self.machines[at].silent_since > SILENCE_US + apart {
                let heard = self.heard(at);
                self.begin(at, heard.as_ref());
            }
        }
    }
}
