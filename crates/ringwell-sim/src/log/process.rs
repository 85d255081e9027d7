//! One process, which starts as the server does. Its copy of the log is empty or outdated, so it
//! reads the log before it serves its shards.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringwell_config::{Config, Durability};
use ringwell_core::Millis;
use ringwell_driver::clock::{Clock, reading};
use ringwell_driver::local::Executor;
use ringwell_driver::maintenance::task as maintenance;
use ringwell_driver::message::Message;
use ringwell_driver::node::{Node, Phase};
use ringwell_driver::open::{self, Believed, CopySource, Followed, Opened};
use ringwell_driver::queue::{Peers, QUEUE_MESSAGES_MAX};
use ringwell_driver::serve::serve as serve_queue;
use ringwell_driver::store::{
    Beat, HistoryLimits, Inline, InlineJournal, JournalReader, KeptNotes, LastOwner, LogEnd,
    LogNotes, LogReader, LogStore, Numbered, Settings, Sign, Store, lost_logs, reached_ends,
    snapshot_indexes,
};
use ringwell_driver::{Platform, Shard, lifecycle, writer};
use tokio::sync::mpsc;

use super::judge::Begun;
use super::servers::{Incarnation, Shared as Servers, lock};
use super::sim_log::SimLog;
use super::snapshot_store::SimSnapshots;
use super::watcher::Watcher;
use crate::cluster::Cluster;
use crate::files::{DATA, SimFiles};
use crate::machine::{Life, Shared, Sim};
use crate::model::SKEW_MAX_MS;

/// The size of a segment, and the number of bytes between two snapshots in the journal. Both are
/// small, so that a run has many segments and snapshots.
const SEGMENT_BYTES: u64 = 16 << 10;
const SNAPSHOT_EVERY_BYTES: u64 = 12 << 10;
const HISTORY_BYTES: u64 = 6 * SEGMENT_BYTES;

const ANSWER_ROWS_MAX: usize = 10_000;

/// The time that the servers take to look up a stream or to create one.
const META_US: u64 = 2_000;

pub(super) type LogFiles = LogStore<Numbered<SimLog>, InlineJournal<SimFiles>, Sim>;

/// A process that has not ended.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) number: u64,
    pub(super) platform: Sim,
    pub(super) life: Rc<Life>,
    pub(super) busy_until: u64,
    pub(super) began_us: u64,
    pub(super) state: Rc<RefCell<ProcessPhase>>,
    /// The batches that were sent to the process but not yet answered.
    pub(super) batches: BTreeSet<u64>,
}

/// The phase of a process.
#[derive(Debug)]
pub(super) enum ProcessPhase {
    Starting,
    /// The shards have been read and taken over, but the judge has not yet examined them.
    Opened(Vec<Begun>),
    Serving(Serving),
    /// The process cannot continue.
    Ended(String),
}

/// Shards that serve.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) node: Arc<Node>,
    pub(super) shards: BTreeMap<u16, Served>,
}

/// A shard that serves.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) shard: Rc<Shard<Sim>>,
    pub(super) store: Rc<LogFiles>,
    pub(super) author: Incarnation,
}

impl Served {
    pub(super) fn reader(&self) -> LogReader<JournalReader<SimFiles>> {
        self.store.reader()
    }
}

/// Everything that a process needs to start.
pub(super) struct Begin<'a> {
    pub(super) shared: &'a Rc<Shared>,
    pub(super) servers: &'a Servers,
    pub(super) judge: &'a Rc<RefCell<super::judge::Judge>>,
    pub(super) cluster: &'a Rc<Cluster>,
    pub(super) files: &'a SimFiles,
    pub(super) machine: usize,
    pub(super) life: u32,
    pub(super) boot: u64,
    pub(super) number: u64,
    pub(super) last_owner: Option<LastOwner>,
    /// The last heartbeat that the process's machine received. `None` if there was none, or if all
    /// lockouts from before it have ended.
    pub(super) heard: Option<Sign>,
}

impl Begin<'_> {
    pub(super) fn process(self) -> Process {
        let life = Rc::new(Life {
            node: self.machine,
            number: self.life,
            is_dead: Cell::new(false),
            is_listing: Cell::new(false),
            newest_list: Cell::default(),
            away: RefCell::default(),
        });
        let watcher = Watcher {
            shared: Rc::clone(self.shared),
            judge: Rc::clone(self.judge),
            process: self.number,
        };
        let platform = Sim {
            shared: Rc::clone(self.shared),
            executor: Executor::new(),
            files: self.files.clone(),
            life: Rc::clone(&life),
            watcher: Some(Rc::new(watcher)),
        };
        platform.executor.advance(platform.moment());
        let state = Rc::new(RefCell::new(ProcessPhase::Starting));
        let start = Start {
            platform: platform.clone(),
            servers: Arc::clone(self.servers),
            cluster: Rc::clone(self.cluster),
            boot: self.boot,
            last_owner: self.last_owner,
            heard: self.heard,
            state: Rc::clone(&state),
        };
        platform.spawn(start.run());
        let now = self.shared.now.get();
        let batches = BTreeSet::new();
        Process {
            number: self.number,
            platform,
            life,
            busy_until: now,
            began_us: now,
            state,
            batches,
        }
    }
}

struct Start {
    platform: Sim,
    servers: Servers,
    cluster: Rc<Cluster>,
    boot: u64,
    last_owner: Option<LastOwner>,
    heard: Option<Sign>,
    state: Rc<RefCell<ProcessPhase>>,
}

/// The log of a shard that was taken over.
struct Taken {
    store: TakenStore,
    begun: Begun,
}

type TakenStore = Box<dyn FnOnce(InlineJournal<SimFiles>) -> LogFiles>;

impl Start {
    async fn run(self) {
        let state = Rc::clone(&self.state);
        let ended = Box::pin(self.start()).await;
        if let Err(why) = ended {
            *state.borrow_mut() = ProcessPhase::Ended(why);
        }
    }

    async fn start(self) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let (platform, settings) = (&self.platform, settings());
        let files = platform.files();
        let directory = self.cluster.directory(&BTreeSet::new());
        let on_disk = open::shards_on_disk(&files, &settings.data).map_err(|e| text(&e))?;
        let own: Vec<u16> = (0..directory.shards()).collect();
        let (mut reads, mut taken) = (Vec::new(), BTreeMap::<_, Taken>::new());
        let longest = open::lockout_max(&files, &settings, &directory).map_err(|e| text(&e))?;
        let reached = reached_ends(&own, self.last_owner.as_ref(), longest);
        let logs = self.open_logs(&own, &reached).await;
        for &shard in &own {
            let (read, of) = self.take_over(shard, &directory, &logs[&shard]).await?;
            reads.push(read);
            taken.insert(shard, of);
        }
        let reading = self.reading();
        let start = open::Start {
            files: &files,
            settings: &settings,
            directory: &directory,
            reading,
            on_disk: &on_disk,
            has_log: true,
            noted: &KeptNotes::default(),
            last_owner: self.last_owner.as_ref(),
            member: None,
            withholds: false,
            only: None,
        };
        // Determines without production code whether the process has the previous owner's time. It
        // does if the heartbeat contains the previous owner's epoch for every shard.
        let before: Vec<u64> =
            reads.iter().map(|it| it.recovered.tip.epoch.saturating_sub(1)).collect();
        let is_of_last = self.last_owner.as_ref().is_some_and(|owner| owner.epochs == before);
        for of in taken.values_mut() {
            of.begun.knows_time |= is_of_last;
        }
        let begun = open::begin(reads, &start).map_err(|e| text(&e))?;
        let opened = (None, begun.facts);
        let clock = Clock::going_on(begun.clocks, reading.since_boot);
        let node = Node::new(config(), directory, &own, None, opened);
        self.serve(Arc::new(node), begun.shards, taken, &clock).await
    }

    fn reading(&self) -> ringwell_engine::Reading {
        reading(self.boot, self.platform.boot_time(), self.platform.wall())
    }

    /// Creates all missing logs, as the server does before it takes over the first shard.
    async fn open_logs(
        &self,
        own: &[u16],
        reached: &BTreeMap<u16, LogEnd>,
    ) -> BTreeMap<u16, (LogNotes, u64, LogEnd)> {
        let mut found = Vec::new();
        for shard in own {
            self.platform.after_us(META_US).await;
            found.push((*shard, lock(&self.servers).find(usize::from(*shard))));
        }
        let (all, lost) = (own.iter().copied().collect(), lost_logs(&found, reached));
        let mut notes = BTreeMap::new();
        for (shard, log) in found {
            self.platform.after_us(META_US).await;
            let wanted = log.notes(&all, lost.contains(&shard));
            let stored = lock(&self.servers).create(usize::from(shard), wanted);
            let reached = reached.get(&shard).copied().unwrap_or_default();
            notes.insert(shard, (stored, log.end(), reached));
        }
        notes
    }

    async fn take_over(
        &self,
        shard: u16,
        directory: &ringwell_directory::Directory,
        (notes, end, reached): &(LogNotes, u64, LogEnd),
    ) -> Result<(open::Read<SimFiles>, Taken), String> {
        let (files, settings) = (self.platform.files(), settings());
        let specs = open::specs(directory.pools_of(shard));
        let clock_skew_max = Millis(SKEW_MAX_MS);
        let boot = self.boot;
        let believed = Believed { answer_rows_max: ANSWER_ROWS_MAX, clock_skew_max, boot };
        let read = open::read_copy(&files, &settings, shard, &specs, believed);
        let read = read.map_err(|error| error.to_string())?;
        let index = usize::from(shard);
        let servers = Arc::clone(&self.servers);
        let log = SimLog { platform: self.platform.clone(), servers, shard: index };
        let log = Numbered::new(log, shard);
        let beside_log =
            Arc::new(SimSnapshots { servers: Arc::clone(&self.servers), shard: index });
        let copied = read.recovered.tip.next_n;
        let through = snapshot_indexes(&*beside_log).unwrap_or_default();
        let through = through.iter().map(|it| it.1.through + 1).max().unwrap_or(0);
        let source = CopySource {
            snapshots: &*beside_log,
            settings: &settings,
            specs: &specs,
            believed,
            is_replacement: notes.is_replacement,
            end: *end,
            reached: *reached,
            failed_at: notes.failed_at,
        };
        let followed = open::follow(&self.platform, &files, read, &log, &source).await;
        let Followed { read, author, prefix, kept, .. } =
            followed.map_err(|error| error.to_string())?;
        let first_n = read.recovered.tip.next_n - 1;
        let is_own_boot = read.recovered.tip.clocks.is_some_and(|it| it.boot == self.boot);
        let has_evidence =
            copied.max(through) > first_n || self.has_heard_of(index, &read, first_n);
        let begun = Begun {
            shard,
            author: author.incarnation,
            first_n,
            numbers: BTreeMap::new(),
            held_until_ms: 0,
            is_in_doubt: read.is_in_doubt,
            has_evidence,
            has_lost: false,
            is_owner: false,
            take_overs: 0,
            last_at_ms: read.recovered.tip.last_at.0,
            knows_time: is_own_boot,
            now_ms: 0,
            now_us: 0,
        };
        let limits = HistoryLimits { bytes: settings.history_bytes, age: settings.history_age };
        let platform = self.platform.clone();
        let store: TakenStore = Box::new(move |copy| {
            LogStore::new(log, copy, platform, author)
                .with_snapshots(beside_log, kept, prefix, limits)
        });
        Ok((read, Taken { store, begun }))
    }

    /// Whether the last heartbeat that the machine received contains an epoch or a group that the
    /// log lacks. The judge uses this rule, which is independent of production code.
    fn has_heard_of(&self, shard: usize, read: &open::Read<SimFiles>, first_n: u64) -> bool {
        let of = |list: fn(&Sign) -> &[u64]| {
            self.heard.as_ref().and_then(|sign| list(sign).get(shard)).copied()
        };
        let (epoch, group) = (of(|sign| &sign.epochs), of(|sign| &sign.stored));
        epoch.is_some_and(|epoch| epoch >= read.recovered.tip.epoch)
            || group.is_some_and(|group| group >= first_n)
    }

    async fn serve(
        self,
        node: Arc<Node>,
        opened: Vec<Opened<SimFiles>>,
        mut taken: BTreeMap<u16, Taken>,
        clock: &Clock,
    ) -> Result<(), String> {
        let platform = self.platform.clone();
        let (mut peers, mut queues) = (Peers::default(), Vec::new());
        for Opened { shard, .. } in &opened {
            let (way, queue) = mpsc::channel(QUEUE_MESSAGES_MAX);
            peers.add(*shard, way);
            queues.push(queue);
        }
        let (mut begun, mut begins, mut shards) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (opened, queue) in opened.into_iter().zip(queues) {
            let Opened { shard: id, engine, store, doubts, .. } = opened;
            let Inline::Left(copy) = store else { unreachable!("the copy is in files") };
            let Some(of) = taken.remove(&id) else { unreachable!("each shard was taken over") };
            let (node, clock) = (Arc::clone(&node), clock.clone());
            let shard = Shard::new(id, node, platform.clone(), engine, clock, peers.clone());
            let (shard, store) = (Rc::new(shard), Rc::new((of.store)(copy)));
            begun.push(state(of.begun, &shard, platform.now_us()));
            let author = begun[begun.len() - 1].author;
            platform.spawn(writer::run(Rc::clone(&shard), Rc::clone(&store)));
            begins.push(begin(Rc::clone(&shard), Rc::clone(&store), queue, doubts.lengthened));
            shards.insert(id, Served { shard, store, author });
        }
        *self.state.borrow_mut() = ProcessPhase::Opened(begun);
        for begin in begins {
            begin.await?;
        }
        node.enter(Phase::Serving);
        *self.state.borrow_mut() = ProcessPhase::Serving(Serving { node, shards });
        Ok(())
    }
}

/// Starts a shard with the same steps, in the same order, as the server's threads.
async fn begin(
    shard: Rc<Shard<Sim>>,
    store: Rc<LogFiles>,
    queue: mpsc::Receiver<Message>,
    lengthened: Option<Millis>,
) -> Result<(), String> {
    let platform = shard.platform.clone();
    lifecycle::begin_shard(&shard, &*store, lengthened.is_some()).await?;
    platform.spawn(serve_queue(Rc::clone(&shard), Vec::new(), Rc::clone(&store), || 0, queue));
    platform.spawn(maintenance::run(shard, store));
    Ok(())
}

/// Adds to `begun` the state of the shard, for the judge to check.
fn state(mut begun: Begun, shard: &Shard<Sim>, now_us: u64) -> Begun {
    let now = shard.now();
    let engine = shard.engine.borrow();
    let rules = engine.shard();
    let known = rules.slots().iter();
    let known =
        known.map(|slot| (slot.number.to_code(), (slot.allocated_at.0, slot.locked_until.0)));
    begun.numbers = known.collect();
    let held = rules.holds(now).filter(|(pool, _)| pool.is_none()).map(|(_, until)| until.0);
    begun.held_until_ms = held.max().unwrap_or(0);
    (begun.now_ms, begun.now_us) = (now.0, now_us);
    begun
}

impl Process {
    /// Drops all tasks.
    pub(super) fn end(&self) {
        self.life.is_dead.set(true);
        self.platform.executor.end();
        let _ = self.state.replace(ProcessPhase::Ended("it was killed".to_owned()));
    }

    /// Returns the contents of the process's heartbeat, if the process serves all its shards.
    pub(super) fn sign(&self) -> Option<Sign> {
        let state = self.state.borrow();
        let ProcessPhase::Serving(serving) = &*state else { return None };
        let is_own = |state| {
            use ringwell_driver::node::JournalState::{Failed, Taken};
            !matches!(state, Taken | Failed)
        };
        let serves = serving.node.journals().all(|(_, state)| is_own(state));
        let first = serving.shards.values().next().filter(|_| serves)?;
        let epoch = |served: &Served| served.shard.engine.borrow().tip().epoch;
        let epochs = serving.shards.values().map(epoch).collect();
        let stored = serving.node.stored().collect();
        Some(Sign { at: first.shard.clock_now(), epochs, stored })
    }

    /// Returns the heartbeat that the process sends to standbys.
    pub(super) fn beat(&self) -> Option<Beat> {
        let is_starting =
            matches!(&*self.state.borrow(), ProcessPhase::Starting | ProcessPhase::Opened(_));
        if is_starting {
            Some(Beat::Starting)
        } else {
            self.sign().map(|it| Beat::Serving(Some(it)))
        }
    }

    /// Whether the process owns all the shards that it serves, according to the log.
    pub(super) fn owns_all(&self, servers: &Servers) -> bool {
        let state = self.state.borrow();
        let ProcessPhase::Serving(serving) = &*state else { return false };
        let servers = lock(servers);
        let is_owner = |(shard, served): (&u16, &Served)| {
            let owner = servers.streams[usize::from(*shard)].owner();
            owner.is_some_and(|(author, _)| author == served.author)
        };
        serving.shards.iter().all(is_owner)
    }
}

fn config() -> Config {
    let mut config = Config::new(PathBuf::from(DATA), 1);
    config.journal.segment_bytes = SEGMENT_BYTES;
    config.journal.snapshot_every_bytes = SNAPSHOT_EVERY_BYTES;
    config.journal.history_bytes = HISTORY_BYTES;
    config.limits.idempotency_rows = ANSWER_ROWS_MAX;
    config.clock_skew_max = Duration::from_millis(SKEW_MAX_MS);
    config
}

fn settings() -> Settings {
    Settings {
        segment_bytes: SEGMENT_BYTES,
        history_bytes: HISTORY_BYTES,
        ..Settings::new(PathBuf::from(DATA), Durability::Os)
    }
}
