//! Injects machine faults once a second, and simulates the reactions of supervisors and operators.

use std::time::Duration;

use ringwell_core::Millis;
use ringwell_driver::Moment;
use ringwell_driver::node::JournalState;
use ringwell_driver::store::{Beat, Fenced, LastOwner, Silence};

use super::fault::LogFault;
use super::process::{Begin, ProcessPhase};
use super::servers::lock;
use super::world::{Event, SIGN_US, World};
use crate::model::Violation;
use crate::pace::{MS, SECOND};

/// The largest difference between wall clocks and true time.
const SKEW_US: u64 = 600 * SECOND;

/// If a start takes longer than this, another process may start too, because the first start might
/// never end.
const START_MAX_US: u64 = 50 * SECOND;

impl World {
    /// Handles one second of faults and operators' actions.
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
            self.tell(at, || format!("the wall clock is now off by {} s", skew / 1_000_000));
        }
        if self.strikes(LogFault::Deaf) {
            let length = self.drawn(LogFault::Deaf, SECOND, 8 * SECOND);
            self.machines[at].deaf_until = self.now() + length;
        }
        if let Some(waits) = self.machines[at].waits.clone()
            && self.strikes(LogFault::Hasty)
        {
            self.start_after(at, &waits);
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

    /// Ends a process that was fenced or that has failed.
    fn see_to(&mut self, at: usize) {
        let now = self.now();
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
        let moment = self.moment();
        if self.machines[at].fenced.is_final(states.iter().copied(), moment) {
            self.stop(at);
        }
    }

    /// Checks that a process gives up a shard only if another process has written to that shard's
    /// log.
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
                let text =
                    "the process gives up the shard, although no other process owns it".to_owned();
                let rule = "fenced without an owner";
                self.shared.judge(Err(Violation { rule, text, number: 0, shard }));
            }
        }
    }

    /// Starts a process.
    pub(super) fn begin(&mut self, at: usize, last_owner: Option<&LastOwner>) {
        self.processes += 1;
        let now = self.now();
        let lockout_us = self.judge.borrow().lockout_max_ms() * 1000;
        let machine = &mut self.machines[at];
        (machine.waits, machine.fenced) = (None, Fenced::default());
        // If the heartbeat is older than the longest lockout, all numbers that were handed out
        // before it are free again.
        let heard = machine.heard.take().filter(|(_, at_us)| now - at_us <= lockout_us);
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
            heard: heard.map(|(sign, _)| sign),
        };
        machine.process = Some(begin.process());
        machine.files.disk().accept();
        let number = self.processes;
        self.tell(at, || format!("process {number} starts; last owner {last_owner:?}"));
    }

    /// Ends a process. Some time later, the machine becomes a standby.
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
        machine.paused_until = 0;
        let life = machine.life;
        self.tell(at, || format!("process {} ends", process.number));
        self.add(now + down, Event::StandBy(at, life));
    }

    /// Makes the machine wait until no other machine serves.
    pub(super) fn stand_by(&mut self, at: usize) {
        let apart = Duration::from_millis(400) * u32::try_from(at).unwrap_or(0);
        self.machines[at].waits = Some(Silence::begin(self.moment(), apart));
        self.machines[at].waits_since = self.now();
        self.machines[at].heard = None;
    }

    /// Starts the process on a machine that has waited as a standby.
    fn start_after(&mut self, at: usize, waits: &Silence) {
        let since_boot = Duration::from_micros(self.shared.since_boot_us(at));
        let wall = Duration::from_micros(self.shared.wall_us(at));
        let boot = self.machines[at].boot;
        let reading = ringwell_driver::clock::reading(boot, since_boot, wall);
        let last_owner = waits.last_heartbeat(self.moment()).map(|heard| heard.owner(&reading));
        self.begin(at, last_owner.as_ref());
    }

    /// Delivers the heartbeats of processes. If a standby has received no heartbeat for long
    /// enough, it starts.
    pub(super) fn signs(&mut self) {
        let now = self.now();
        self.add(now + SIGN_US, Event::Sign);
        for at in 0..self.machines.len() {
            let Some(mut waits) = self.machines[at].waits.take() else { continue };
            let others = self.machines.iter().filter(|it| it.paused_until <= now);
            let beats = others.filter_map(|it| it.process.as_ref()?.beat());
            let mut hears_one = false;
            if self.machines[at].deaf_until <= now {
                let beats: Vec<Beat> = beats.collect();
                for beat in beats {
                    if let Beat::Serving(Some(sign)) = &beat {
                        self.machines[at].heard = Some((sign.clone(), now));
                    }
                    waits.received(beat, self.moment());
                    hears_one = true;
                }
            }
            if waits.left(self.moment()).is_zero() {
                if hears_one && now < self.machines[at].waits_since + START_MAX_US {
                    let text = format!(
                        "machine {at} starts a process, although another machine is starting or \
                        serving"
                    );
                    let rule = "needless start";
                    self.shared.judge(Err(Violation { rule, text, number: 0, shard: 0 }));
                }
                self.start_after(at, &waits);
            } else {
                self.machines[at].waits = Some(waits);
            }
        }
    }

    /// Returns the time of the monotonic clock, which has no faults and is the same on every
    /// machine.
    fn moment(&self) -> Moment {
        Moment(Duration::from_micros(self.now()))
    }
}
