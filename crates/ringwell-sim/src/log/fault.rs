//! The faults of a run with a shared log, and how often each of them happens.

use crate::fault::named;
use crate::random::Random;

macro_rules! faults {
    ($($(#[doc = $doc:literal])* $fault:ident $name:literal $odds:literal $low:literal $high:literal;)*) => {
        /// The faults of machines and of the log's servers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum LogFault { $($(#[doc = $doc])* $fault,)* }

        named! { LogFault $($fault $name)* }

        impl LogFault {
            /// The percentage of runs in which the fault is enabled, and the range of its rate.
            const fn odds(self) -> (u64, u64, u64) {
                match self { $(Self::$fault => ($odds, $low, $high),)* }
            }
        }
    };
}

// Rates are per million opportunities. There is one opportunity each second for each machine and
// for the servers, and one at each request to the servers.
faults! {
    /// The process is killed.
    Kill "kill" 60 10_000 60_000;
    /// The machine loses power.
    Power "power" 40 5_000 40_000;
    /// The machine loses its disk.
    Wipe "wipe" 30 5_000 30_000;
    /// The process is paused for up to 12 s.
    Pause "pause" 60 10_000 80_000;
    /// The heartbeats of the serving process do not arrive for a while.
    Deaf "deaf" 50 20_000 120_000;
    /// A standby starts immediately.
    Hasty "hasty" 50 10_000 80_000;
    /// A wall clock is set to a time up to ten minutes before or after true time.
    Clock "clock" 60 10_000 80_000;
    /// A message is stored, but its acknowledgement is lost.
    AckLost "ack-lost" 60 1_000 40_000;
    /// A message arrives long after its sender stopped waiting for the acknowledgement.
    Late "late" 50 1_000 20_000;
    /// The leader has no quorum for a while. After that, its proposals are either stored or
    /// dropped.
    NoQuorum "no-quorum" 50 10_000 60_000;
    /// A former leader still answers the requests of some machines.
    StaleLeader "stale-leader" 50 10_000 60_000;
    /// All answers from the servers are slow.
    Slow "slow" 40 10_000 60_000;
    /// The leader has lost or damaged a message that the other servers have intact.
    Hole "hole" 40 50_000 200_000;
    /// The servers lose the newest messages although they had acknowledged them.
    LostTail "lost-tail" 25 3_000 15_000;
    /// The log has no space for a message.
    Full "full" 25 1_000 20_000;
    /// A request for the parts of a snapshot fails. Half of the failed requests are nevertheless
    /// carried out.
    Snapshots "snapshots" 40 5_000 100_000;
    /// A part of a snapshot on the log's servers is damaged.
    Rot "rot" 30 10_000 100_000;
    /// Another program publishes a message to the log's stream.
    Foreign "foreign" 30 5_000 60_000;
    /// The stream of one shard is deleted with its snapshots, while another shard keeps its stream.
    LostStream "lost-stream" 15 2_000 10_000;
    /// The streams of all shards are deleted with their snapshots.
    LostStreams "lost-streams" 15 2_000 10_000;
}

/// The part of a shard's messages that the servers have lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Nothing,
    /// The newest messages.
    Tail,
    /// All messages and snapshots of one shard. The loss is visible in the notes that are kept with
    /// the other shard's log.
    Stream,
    /// All messages and snapshots of all shards. The loss is visible only in the machines' copies
    /// of the logs and in heartbeats.
    Streams,
}

/// The faults of one run.
#[derive(Debug)]
pub(super) struct Strikes {
    streams: Vec<Random>,
    rates: Vec<u64>,
    counts: Vec<u64>,
    pub(super) are_over: bool,
}

impl Strikes {
    pub(super) fn draw(seed: u64, on: &[LogFault], off: &[LogFault]) -> Self {
        let mut random = Random::new(seed, 1_001);
        let rate = |fault: &LogFault| {
            let (odds, low, high) = fault.odds();
            let (is_on, rate) = (random.below(100) < odds, random.between(low, high));
            match (on.contains(fault), off.contains(fault)) {
                (_, true) => 0,
                (true, false) => high,
                (false, false) => rate * u64::from(is_on),
            }
        };
        let rates: Vec<u64> = LogFault::ALL.iter().map(rate).collect();
        let purposes = (0..rates.len() as u64).map(|at| Random::new(seed, 1_100 + at));
        Self { streams: purposes.collect(), counts: vec![0; rates.len()], rates, are_over: false }
    }

    /// Decides at random whether the fault happens at this opportunity.
    pub(super) fn strikes(&mut self, fault: LogFault) -> bool {
        let (at, rate) = (fault as usize, self.rates[fault as usize]);
        let strikes = !self.are_over && self.streams[at].chance(rate);
        self.counts[at] += u64::from(strikes);
        strikes
    }

    /// Returns the random stream for the details of this fault.
    pub(super) fn stream(&mut self, fault: LogFault) -> &mut Random {
        &mut self.streams[fault as usize]
    }

    pub(super) fn counts(&self) -> Vec<(LogFault, u64)> {
        let all = LogFault::ALL.iter().copied().zip(self.counts.iter().copied());
        all.filter(|(_, count)| *count > 0).collect()
    }
}
