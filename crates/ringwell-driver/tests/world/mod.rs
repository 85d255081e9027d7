//! Two nodes of a cluster in one thread and in virtual time: the driver on a network that delays and
//! loses, on disks that take their time, with processes that are killed between any two polls.
//!
//! Everything is drawn from a seed. Judged is what clients see: no number goes to two of them within a
//! lifetime.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Future, ready};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use ringwell_core::{Millis, PromoNumber};
use ringwell_directory::{Cluster, Config, Directory, Owners, demo_pools};
use ringwell_driver::batch::{self, Answered, Terms};
use ringwell_driver::clock::{Clock, reading};
use ringwell_driver::link::{serve, to_others};
use ringwell_driver::local::{Executor, turn};
use ringwell_driver::membership::Membership;
use ringwell_driver::node::{Begun, Node, Phase};
use ringwell_driver::platform::NetStats;
use ringwell_driver::queue::{Peers, QUEUE_MESSAGES_MAX};
use ringwell_driver::rows;
use ringwell_driver::serve::serve as serve_queue;
use ringwell_driver::stats::Kind;
use ringwell_driver::store::{
    Appended, FileError, Memory, MemoryReader, Part, Stats, Store, write_whole,
};
use ringwell_driver::writer;
use ringwell_driver::{Moment, Net, Path, Platform, Shard, Trouble};
use ringwell_engine::Restore;
use ringwell_journal::{Clocks, Durability, Group, Tip};
use ringwell_mesh::frame;
use ringwell_os::OsFiles;
use ringwell_wire::Answer;
use tokio::sync::{mpsc, oneshot};

/// Lockouts are short, so that numbers come back while a run lasts.
const LIFETIME: Millis = Millis(2_000);
/// An answer leaves at most so long after its allocation.
const ON_THE_WAY: Duration = Duration::from_millis(200);
const POOLS: u32 = 6;
const NUMBERS: u32 = 12;
const ROWS: usize = 4;
const CLUSTER: &str = r#"version = 1
secret = "a-secret-of-the-tests"
[[node]]
name = "a"
shards = [0]
link = "127.0.0.1:9000"
listen = ["127.0.0.1:8080"]
[[node]]
name = "b"
shards = [1]
link = "127.0.0.1:9001"
listen = ["127.0.0.1:8081"]
"#;

/// What may go wrong.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// One poll in so many is a process's last; 0: none.
    pub kill_one_in: u64,
    /// One frame in so many is lost; 0: none.
    pub lose_one_in: u64,
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Of all that happened, in order.
    pub hash: u64,
    pub polls: u64,
    pub kills: u64,
    pub answers: u64,
    /// Numbers that clients got.
    pub numbers: u64,
    /// Numbers that a client got while another had them.
    pub doubles: Vec<u64>,
    /// Numbers that are locked at the end though no client got them.
    pub leaks: u64,
}

/// A process while it lives.
struct Life {
    executor: Executor,
    shard: Rc<Shard<Sim>>,
}

/// What outlives a process.
#[derive(Default)]
struct Disk {
    groups: Vec<Group>,
    in_flight: Option<Group>,
}

type Event = Box<dyn FnOnce(&Rc<World>)>;

pub struct World {
    random: Cell<u64>,
    now: Cell<Moment>,
    faults: Faults,
    cluster: Cluster,
    directory: Directory,
    lives: [RefCell<Option<Life>>; 2],
    disks: [RefCell<Disk>; 2],
    events: RefCell<BTreeMap<(Moment, u64), Event>>,
    scheduled: Cell<u64>,
    /// When clients got which number last.
    got: RefCell<BTreeMap<u64, Moment>>,
    summary: RefCell<Summary>,
}

impl World {
    /// Lets two nodes serve for `time`.
    pub fn run(seed: u64, faults: Faults, time: Duration) -> Summary {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster.toml");
        write_whole(&OsFiles, &file, CLUSTER.as_bytes()).unwrap();
        let cluster = Cluster::load(&file).unwrap();
        let directory = directory(&cluster);
        let world = Rc::new(Self {
            random: Cell::new(seed.wrapping_mul(2).wrapping_add(1)),
            now: Cell::default(),
            faults,
            cluster,
            directory,
            lives: Default::default(),
            disks: Default::default(),
            events: RefCell::default(),
            scheduled: Cell::default(),
            got: RefCell::default(),
            summary: RefCell::default(),
        });
        let end = Moment(time);
        for node in 0..2 {
            world.start(node);
            world.clients(node, end);
        }
        while world.now.get() < end + Duration::from_secs(1) && world.step() {}
        world.look_for_leaks();
        let summary = world.summary.borrow().clone();
        for life in world.lives.iter().filter_map(RefCell::take) {
            life.executor.end();
        }
        world.events.take();
        summary
    }

    /// A number below `below`. Source: Steele et al., "Fast splittable pseudorandom number generators",
    /// 2014, `SplitMix64`.
    fn draw(&self, below: u64) -> u64 {
        self.random.set(self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut z = self.random.get();
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn one_in(&self, count: u64) -> bool {
        count > 0 && self.draw(count) == 0
    }

    fn micros(&self, from: u64, to: u64) -> Duration {
        Duration::from_micros(from + self.draw(to - from))
    }

    fn note(&self, what: u64) {
        let mut summary = self.summary.borrow_mut();
        let at = u64::try_from(self.now.get().0.as_nanos()).unwrap();
        summary.hash = (summary.hash ^ what ^ at).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
    }

    fn schedule(&self, after: Duration, event: impl FnOnce(&Rc<Self>) + 'static) {
        let number = self.scheduled.replace(self.scheduled.get() + 1);
        self.events.borrow_mut().insert((self.now.get() + after, number), Box::new(event));
    }

    /// Polls one task, or moves time on. `false`: nothing will ever happen again.
    fn step(self: &Rc<Self>) -> bool {
        let executor =
            |node: usize| self.lives[node].borrow().as_ref().map(|it| it.executor.clone());
        let all = [0, 1].map(executor);
        let is_ready = |node: &usize| all[*node].as_ref().is_some_and(|it| it.ready() > 0);
        let ready: Vec<usize> = (0..2).filter(is_ready).collect();
        if !ready.is_empty() {
            let node = ready[usize::try_from(self.draw(ready.len() as u64)).unwrap()];
            let executor = all[node].as_ref().unwrap();
            self.now.set(self.now.get() + self.micros(1, 40));
            executor.advance(self.now.get());
            let in_order = self.draw(4) > 0;
            let drawn = |count: usize| usize::try_from(self.draw(count as u64)).unwrap();
            let _ = executor.poll_drawn(|count| if in_order { 0 } else { drawn(count) });
            self.summary.borrow_mut().polls += 1;
            if self.one_in(self.faults.kill_one_in) {
                self.kill(node);
            }
            return true;
        }
        let timers = all.iter().flatten().filter_map(Executor::next_timer);
        let event = self.events.borrow().first_key_value().map(|((at, _), _)| *at);
        let Some(next) = timers.chain(event).min() else { return false };
        self.now.set(self.now.get().max(next));
        all.iter().flatten().for_each(|executor| executor.advance(self.now.get()));
        loop {
            let mut events = self.events.borrow_mut();
            let first = events.first_entry().filter(|event| event.key().0 <= self.now.get());
            let Some(event) = first.map(std::collections::btree_map::OccupiedEntry::remove) else {
                return true;
            };
            drop(events);
            event(self);
        }
    }

    /// The process ends between two polls; what its disk was about to write is there, or not.
    fn kill(self: &Rc<Self>, node: usize) {
        let Some(Life { executor, shard }) = self.lives[node].take() else { return };
        self.note(1);
        executor.end();
        assert_eq!(Rc::strong_count(&shard), 1, "something refers to a dead process's shard");
        let in_flight = self.disks[node].borrow_mut().in_flight.take();
        let is_there = self.draw(2) == 0;
        self.disks[node].borrow_mut().groups.extend(in_flight.filter(|_| is_there));
        self.summary.borrow_mut().kills += 1;
        self.schedule(self.micros(20_000, 400_000), move |world| world.start(node));
    }

    /// Opens the node's shard from what its disk has, and starts its tasks.
    fn start(self: &Rc<Self>, node: usize) {
        let id = u16::try_from(node).unwrap();
        let executor = Executor::new();
        executor.advance(self.now.get());
        let platform = Sim { world: Rc::clone(self), executor: executor.clone(), node };
        let config = Config::new("unused".into(), 1);
        let membership = Membership::new(self.cluster.clone(), ["a", "b"][node]).unwrap();
        let opened = (Some(Owners::of_map(self.cluster.map())), Begun::default());
        let directory = directory(&self.cluster);
        let process =
            Node::new(config, directory, Durability::Disk, &[id], Some(membership), opened);
        process.enter(Phase::Serving);
        let process = Arc::new(process);
        let specs = process.directory().pools_of(id).map(|pool| rows::spec(pool)).collect();
        let mut restore = Restore::new(specs, 1_000);
        let mut tip = Tip::FIRST;
        for group in &self.disks[node].borrow().groups {
            restore.group(&group.header, &group.body).unwrap();
            tip = Tip::after(&group.header);
        }
        let now = reading(1, platform.boot_time(), platform.wall());
        let clock = Clock::going_on(now.resume(&[restore.recorded(&tip)]), now.since_boot);
        restore.resume(clock.clocks(platform.boot_time(), platform.wall()));
        let time = clock.now(platform.boot_time());
        let (engine, _) = restore.finish(tip.raise_epoch(), time, false);
        let mut peers = Peers::default();
        let (queue, asked) = mpsc::channel(QUEUE_MESSAGES_MAX);
        peers.add(id, queue);
        let net = |_: &_| Wire { world: Rc::clone(self), to: 1 - node };
        let ways = to_others(&platform, &process, id, &mut peers, net);
        let shard = Shard::new(id, process, platform.clone(), engine, clock, peers);
        let shard = Rc::new(shard);
        let unread = Memory::new([0; 16], 0);
        let disk = Rc::new(Slow { platform: platform.clone(), unread });
        let links = ways.iter().map(|way| Rc::clone(&way.link)).collect();
        executor.spawn(writer::run(Rc::clone(&shard), Rc::clone(&disk)));
        executor.spawn(serve_queue(Rc::clone(&shard), links, disk, || 0, asked));
        for way in ways {
            executor.spawn(way.run());
        }
        *self.lives[node].borrow_mut() = Some(Life { executor, shard });
    }

    /// Sends the node a batch now and then; some clients hang up.
    fn clients(self: &Rc<Self>, node: usize, end: Moment) {
        if self.now.get() >= end {
            return;
        }
        self.schedule(self.micros(2_000, 30_000), move |world| {
            world.ask(node);
            world.clients(node, end);
        });
    }

    fn ask(self: &Rc<Self>, node: usize) {
        let life = self.lives[node].borrow();
        let Some(Life { executor, shard }) = life.as_ref() else { return };
        let pools: Vec<_> = self.directory.pools().collect();
        let row = |at: usize| {
            let pool = &pools[usize::try_from(self.draw(pools.len() as u64)).unwrap()];
            let key = pool.key().reveal();
            let suffix = format!("{}/allocate_number.json?ring_pool_key={key}", pool.id());
            format!(r#"{{"api_suffix":"{suffix}","request_id":"{at}"}}"#)
        };
        let rows: Vec<String> = (0..ROWS).map(row).collect();
        let body = Bytes::from(format!("{{\"requests\":[{}]}}", rows.join(",")));
        let patience = self.micros(500, if self.one_in(4) { 20_000 } else { 400_000 });
        let (world, shard) = (Rc::clone(self), Rc::clone(shard));
        executor.spawn(async move {
            let platform = shard.platform.clone();
            let deadline = platform.moment() + Duration::from_millis(100);
            let terms = Terms { retry: None, deadline };
            let read = |batch: &mut ringwell_wire::Batch| {
                batch.parse(body, &shard.node.wire_limits).map_err(drop)
            };
            let render = |answered: &Answered<'_>| world.answered(answered);
            let answer = batch::answer(&shard, Kind::Bulk, &terms, read, render);
            let _ = platform.within(patience, answer).await;
        });
    }

    /// From here on the numbers are the client's.
    fn answered(&self, answered: &Answered<'_>) {
        self.summary.borrow_mut().answers += 1;
        for row in 0..ROWS {
            let Answer::Number { number, overflow: false, .. } = answered.row(row) else {
                continue;
            };
            self.client_gets(number);
        }
    }

    fn client_gets(&self, number: PromoNumber) {
        let (code, now) = (number.to_code(), self.now.get());
        self.note(code);
        let mut summary = self.summary.borrow_mut();
        summary.numbers += 1;
        let before = self.got.borrow_mut().insert(code, now);
        let lifetime = Duration::from_millis(LIFETIME.0).saturating_sub(ON_THE_WAY);
        if before.is_some_and(|before| now.since(before) < lifetime) {
            summary.doubles.push(code);
        }
    }

    fn look_for_leaks(&self) {
        let got = self.got.borrow();
        for life in &self.lives {
            let life = life.borrow();
            let Some(Life { shard, .. }) = life.as_ref() else { continue };
            let now = shard.now();
            let engine = shard.engine.borrow();
            let locked = engine.shard().slots().iter().filter(|slot| !slot.is_free(now));
            let is_nobodys = |number: PromoNumber| {
                let at = got.get(&number.to_code());
                at.is_none_or(|at| {
                    self.now.get().since(*at) > Duration::from_millis(2 * LIFETIME.0)
                })
            };
            let leaks = locked.filter(|slot| is_nobodys(slot.number)).count();
            self.summary.borrow_mut().leaks += leaks as u64;
        }
    }
}

/// All pools, by their owners.
fn directory(cluster: &Cluster) -> Directory {
    let pools = demo_pools(POOLS, NUMBERS, LIFETIME).unwrap();
    Directory::new(1, pools, 2).unwrap().placed(Owners::of_map(cluster.map()).placement())
}

/// The platform of one process's life.
#[derive(Clone)]
pub struct Sim {
    world: Rc<World>,
    executor: Executor,
    node: usize,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Platform for Sim {
    const TURNS_TO_READ: usize = 1;

    type Files = OsFiles;
    type Net = Wire;

    fn files(&self) -> OsFiles {
        OsFiles
    }

    fn moment(&self) -> Moment {
        self.executor.now()
    }

    fn boot_time(&self) -> Duration {
        Duration::from_secs(1_000) + self.executor.now().0
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(1_700_000_000) + self.executor.now().0
    }

    fn sleep_until(&self, at: Moment) -> impl Future<Output = ()> + 'static {
        self.executor.sleep_until(at)
    }

    fn turn(&self) -> impl Future<Output = ()> + 'static {
        turn()
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.executor.spawn(task);
    }

    fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + 'static {
        ready(Some(work()))
    }
}

/// The way to the other node: frames take their time, and some are lost.
pub struct Wire {
    world: Rc<World>,
    to: usize,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("to", &self.to).finish_non_exhaustive()
    }
}

type Replied = Result<Bytes, Trouble>;

impl Net for Wire {
    fn call(&self, path: Path, body: Bytes) -> impl Future<Output = Replied> + 'static {
        let (reply, answer) = oneshot::channel();
        let to = self.to;
        send(&self.world, reply, move |world, reply| {
            let life = world.lives[to].borrow();
            let Some(Life { executor, shard }) = life.as_ref() else {
                let _ = reply.send(Err(Trouble::Lost("it is away".to_owned())));
                return;
            };
            let (world, shard) = (Rc::clone(world), Rc::clone(shard));
            executor.spawn(async move {
                let answer = serve::answer(&shard, path, body, frame::VERSION).await;
                let answer = answer.map(Bytes::from).map_err(|(of, why)| Trouble::Refused(of, why));
                send(&world, reply, |_, reply| drop(reply.send(answer)));
            });
        });
        async move { answer.await.unwrap_or(Err(Trouble::Lost("it broke".to_owned()))) }
    }

    fn close(&self) {}

    fn stats(&self) -> NetStats {
        NetStats { connections: 0, connects: 0, latency: Histogram::new(2).unwrap() }
    }
}

/// Brings a frame to the other side, or loses it: then its caller learns so much later.
fn send(
    world: &Rc<World>,
    reply: oneshot::Sender<Replied>,
    arrive: impl FnOnce(&Rc<World>, oneshot::Sender<Replied>) + 'static,
) {
    if world.one_in(world.faults.lose_one_in) {
        world.schedule(Duration::from_secs(3), move |_| drop(reply));
    } else {
        let delay = world.micros(50, if world.one_in(20) { 120_000 } else { 3_000 });
        world.schedule(delay, move |world| arrive(world, reply));
    }
}

/// A disk that takes its time. What is under way when the process is killed is there, or not.
struct Slow {
    platform: Sim,
    /// For look-ups, which this world does not make.
    unread: Memory,
}

impl Store for Slow {
    type Reader = MemoryReader;
    type Draft = Infallible;

    async fn append(&self, group: Group) -> Appended {
        let Sim { world, node, .. } = &self.platform;
        world.disks[*node].borrow_mut().in_flight = Some(group);
        let takes = world.micros(100, if world.one_in(30) { 150_000 } else { 4_000 });
        self.platform.sleep_until(self.platform.moment() + takes).await;
        let mut disk = world.disks[*node].borrow_mut();
        let group = disk.in_flight.take();
        disk.groups.extend(group);
        Appended::Stored { spare: Vec::new() }
    }

    fn reader(&self) -> MemoryReader {
        self.unread.reader()
    }

    fn expired(&self, _: Millis, _: Clocks) -> Option<Part> {
        None
    }

    fn waits_for_snapshot(&self) -> bool {
        false
    }

    async fn drop_part(&self, _: Part) -> Result<(), FileError> {
        Ok(())
    }

    fn draft(&self, replay_from: u64) -> Result<Infallible, FileError> {
        self.unread.draft(replay_from)
    }

    fn identity(&self) -> [u8; 16] {
        [0; 16]
    }

    fn stats(&self) -> Stats {
        self.unread.stats()
    }
}
