//! One process: the driver's shards, each with its own executor, and the first tasks of each shard.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringwell_directory::Directory;
use ringwell_driver::clock::Clock;
use ringwell_driver::lifecycle;
use ringwell_driver::link::{Way, to_others};
use ringwell_driver::local::Executor;
use ringwell_driver::maintenance::task as maintenance;
use ringwell_driver::message::Message;
use ringwell_driver::node::Node as Process;
use ringwell_driver::open::Opened;
use ringwell_driver::queue::{Peers, QUEUE_MESSAGES_MAX};
use ringwell_driver::serve::serve as serve_queue;
use ringwell_driver::{Platform, Shard, moves, suspension, witness, writer};
use tokio::sync::mpsc;

use crate::cluster::Cluster;
use crate::files::SimFiles;
use crate::machine::{Life, Shared, Sim, Wire};
use crate::message::Sent;
use crate::stored::{Stored, stored};

/// The interval between two checks of whether a spare segment exists.
const SPARES_EVERY: Duration = Duration::from_secs(1);

/// A running process.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) node: Arc<Process>,
    pub(crate) life: Rc<Life>,
    pub(crate) threads: BTreeMap<u16, Thread>,
    /// The batches that were sent to the process but not yet answered.
    pub(crate) batches: BTreeSet<u64>,
    /// The number of shards that cannot serve yet.
    pub(crate) starting: usize,
    pub(crate) is_serving: bool,
    /// While the process shuts down, the number of shards that have not yet saved their state.
    pub(crate) stopping: Option<usize>,
    /// Whether any shard failed to save its state.
    pub(crate) is_unsaved: bool,
    /// Whether an operator has already been called.
    pub(crate) is_failing: bool,
    /// The time at which the process started.
    pub(crate) began_us: u64,
    /// The shards that started with old data, which lacks some of the allocations sent to clients.
    pub(crate) known: Vec<crate::older::Known>,
}

/// One shard's thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) sim: Sim,
    pub(crate) shard: Rc<Shard<Sim>>,
    pub(crate) journal: Rc<Stored>,
    pub(crate) busy_until: u64,
    pub(crate) slow_until: u64,
    pub(crate) slow_by: u64,
    /// The time until which the thread is slow or paused. Calls that began before that time are not
    /// judged.
    pub(crate) stalled_until: u64,
    /// The last time at which the thread had nothing left to do.
    pub(crate) idle_at: u64,
    /// The value of `idle_at` before the last poll on this thread.
    pub(crate) was_idle_at: u64,
    /// Whether the thread accepts requests from other nodes.
    pub(crate) is_open: Rc<Cell<bool>>,
}

/// Everything that is needed to start the threads of a process.
pub(crate) struct Start<'a> {
    pub(crate) shared: &'a Rc<Shared>,
    pub(crate) files: &'a SimFiles,
    pub(crate) cluster: &'a Cluster,
    pub(crate) node: Arc<Process>,
    pub(crate) life: Rc<Life>,
    pub(crate) clock: Clock,
}

impl Start<'_> {
    /// Starts a thread for each shard.
    pub(crate) fn threads(&self, opened: Vec<Opened<SimFiles>>) -> BTreeMap<u16, Thread> {
        let (mut peers, mut queues) = (Peers::default(), Vec::new());
        for Opened { shard, .. } in &opened {
            let (way, queue) = mpsc::channel(QUEUE_MESSAGES_MAX);
            peers.add(*shard, way);
            queues.push(queue);
        }
        let of = |(opened, queue)| self.thread(opened, queue, peers.clone());
        opened.into_iter().zip(queues).map(of).collect()
    }

    fn thread(
        &self,
        opened: Opened<SimFiles>,
        queue: mpsc::Receiver<Message>,
        mut peers: Peers,
    ) -> (u16, Thread) {
        let Opened { shard: id, engine, store, doubts, .. } = opened;
        let executor = Executor::new();
        let sim = Sim {
            shared: Rc::clone(self.shared),
            executor,
            files: self.files.clone(),
            life: Rc::clone(&self.life),
            watcher: None,
        };
        sim.executor.advance(sim.moment());
        let net = |neighbour: &ringwell_driver::membership::Neighbour| {
            Wire::new(&sim, id, neighbour.shard, self.cluster.home(neighbour.shard))
        };
        let ways = to_others(&sim, &self.node, id, &mut peers, net);
        let (node, clock) = (Arc::clone(&self.node), self.clock.clone());
        let shard = Rc::new(Shard::new(id, node, sim.clone(), engine, clock, peers));
        let journal = Rc::new(stored(&sim, store));
        let is_open = Rc::new(Cell::new(false));
        sim.spawn(writer::run(Rc::clone(&shard), Rc::clone(&journal)));
        let begins = Begins {
            shard: Rc::clone(&shard),
            journal: Rc::clone(&journal),
            ways,
            queue,
            is_lengthened: doubts.lengthened.is_some(),
            is_open: Rc::clone(&is_open),
        };
        sim.spawn(begins.run());
        let now = self.shared.now.get();
        let thread = Thread {
            sim,
            shard,
            journal,
            busy_until: now,
            slow_until: 0,
            slow_by: 0,
            stalled_until: now,
            idle_at: now,
            was_idle_at: now,
            is_open,
        };
        (id, thread)
    }
}

/// A thread's first task.
struct Begins {
    shard: Rc<Shard<Sim>>,
    journal: Rc<Stored>,
    ways: Vec<Way<Sim>>,
    queue: mpsc::Receiver<Message>,
    is_lengthened: bool,
    is_open: Rc<Cell<bool>>,
}

impl Begins {
    /// Performs the first steps of a shard, in the same order as the server's threads.
    async fn run(self) {
        let Self { shard, journal, ways, queue, is_lengthened, is_open } = self;
        let sim = shard.platform.clone();
        let (node, life) = (sim.life.node, sim.life.number);
        if lifecycle::begin_shard(&shard, &*journal, is_lengthened).await.is_err() {
            sim.send(Sent::GivesUp { node, life });
            return;
        }
        let links = ways.iter().map(|way| Rc::clone(&way.link)).collect();
        sim.spawn(serve_queue(Rc::clone(&shard), links, Rc::clone(&journal), || 0, queue));
        sim.spawn(maintenance::run(Rc::clone(&shard), Rc::clone(&journal)));
        sim.spawn(suspension::run(Rc::clone(&shard)));
        sim.spawn(keep_spares(sim.clone(), journal));
        for way in ways {
            sim.spawn(way.run());
        }
        is_open.set(true);
        if shard.node.shards().next() == Some(shard.id) {
            sim.spawn(keep_list(sim.clone(), Arc::clone(&shard.node)));
            let (process, peers) = (Arc::clone(&shard.node), shard.peers.clone());
            let away = witness::begin(&sim, &process, &peers).await;
            sim.life.away.replace(away.clone());
            sim.spawn(witness::go_on(sim.clone(), Arc::clone(&process), peers.clone(), away));
            sim.spawn(moves::watch_versions(sim.clone(), Arc::clone(&process), peers.clone()));
            sim.spawn(moves::resume(sim.clone(), process, peers));
        }
        sim.send(Sent::Ready { node, life });
    }
}

/// Passes on the shards' requests to read the list of pools again.
async fn keep_list(sim: Sim, process: Arc<Process>) {
    let mut asked = process.reload_requests.asked();
    let (node, life) = (sim.life.node, sim.life.number);
    while asked.changed().await.is_ok() {
        let request = *asked.borrow_and_update();
        sim.send(Sent::WantsList { node, life, request });
    }
}

/// Prepares spare segments. In a server, a separate journal thread does this.
async fn keep_spares(sim: Sim, journal: Rc<Stored>) {
    loop {
        if let Stored::Left(filed) = &*journal {
            filed.keep_spare();
        }
        sim.sleep_until(sim.moment() + SPARES_EVERY).await;
    }
}

impl Running {
    /// Returns the thread that does the work for the whole node.
    pub(crate) fn first(&self) -> Option<&Thread> {
        self.threads.values().next()
    }

    /// Returns the directory that the shards use for the next look-up.
    pub(crate) fn directory(&self) -> Arc<Directory> {
        self.node.directory()
    }

    /// Drops all tasks. The tasks refer to shards, which refer to the executors that own the tasks.
    /// If the tasks were not dropped, the process would therefore stay in memory forever, with
    /// everything that it refers to.
    pub(crate) fn end(&self) {
        self.life.is_dead.set(true);
        for thread in self.threads.values() {
            thread.sim.executor.end();
        }
    }
}
