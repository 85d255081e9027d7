//! Two nodes with two shards each, in one process and in virtual time. They answer each other's
//! requests.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringwell_config::{Cluster, Config, demo_pools};
use ringwell_core::{Millis, PoolId, PromoNumber, Retired, Slot, VisitorId};
use ringwell_directory::{Directory, RingPool};
use ringwell_driver::clock::{Clock, reading};
use ringwell_driver::link::serve::answer;
use ringwell_driver::lists::lists;
use ringwell_driver::membership::Membership;
use ringwell_driver::message::{Message, PeerAnswer, PeerRow, PeerRows};
use ringwell_driver::node::{Begun, Node, Phase};
use ringwell_driver::queue::Peers;
use ringwell_driver::store::write_whole;
use ringwell_driver::{Path, Platform, Shard, moves, rows, serve, writer};
use ringwell_engine::{Ask, Outcome, Refusal, Restore, RowKey};
use ringwell_journal::Tip;
use ringwell_mesh::frame::{self, RowAnswer};
use ringwell_os::OsFiles;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use crate::slow_store::Hanging;
use crate::support::Virtual;

pub const LIFETIME: Millis = Millis(60_000);
/// All lockouts and holds end within this time.
pub const LIFETIME_AND_MORE: Duration = Duration::from_secs(90);
const POOLS: u32 = 40;
const NUMBERS: u32 = 300;
pub const CLUSTER: &str = r#"version = 1
secret = "a-secret-of-the-tests"
[[node]]
name = "a"
shards = [0, 1]
link = "127.0.0.1:9000"
listen = ["127.0.0.1:8080"]
[[node]]
name = "b"
shards = [2, 3]
link = "127.0.0.1:9001"
listen = ["127.0.0.1:8081"]
"#;

/// The state of the links from one node to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Every request is answered.
    Up,
    /// No request is answered, and each failure is noticed at once.
    Gone,
    /// Like `Gone`, but only for this many look-ups; all other requests are answered.
    GoneFor(u8),
    /// This many look-ups are answered, and then the links are `Gone`.
    UpFor(u8),
    /// No request is answered, and no failure is noticed.
    Silent,
    /// Like `Gone`, but only for requests with this path, which do not arrive.
    Without(Path),
    /// Requests with this path arrive, but their answers are lost.
    Deaf(Path),
    /// Requests with this path take a second.
    Slow(Path),
    /// Requests longer than this are refused.
    UpTo(usize),
    /// The other node agrees to a move, and reports this as the maximum length of the move's
    /// requests.
    Accepts(usize),
}

/// One of the two nodes.
pub struct Side {
    pub node: Arc<Node>,
    pub peers: Peers,
    /// Only the node's own shards, as if the other node had left the cluster.
    pub alone: Peers,
    shards: Vec<Rc<Shard<Virtual>>>,
    /// The shards' stores.
    pub stores: Vec<Rc<Hanging>>,
}

impl Side {
    pub fn shard(&self, shard: u16) -> &Rc<Shard<Virtual>> {
        self.shards.iter().find(|it| it.id == shard).unwrap()
    }

    /// Continues this node's interrupted moves.
    pub fn resume_moves(&self, platform: &Virtual) {
        let (node, peers) = (Arc::clone(&self.node), self.peers.clone());
        platform.spawn(moves::resume(platform.clone(), node, peers));
    }

    /// Answers a request from the other node.
    pub async fn answer(&self, path: Path, body: Bytes) -> Result<Bytes, String> {
        let answered = answer(&self.shards[0], path, body, 2).await;
        answered.map(Bytes::from).map_err(|(_, reason)| reason)
    }
}

pub struct Pair {
    pub platform: Virtual,
    pub a: Rc<Side>,
    pub b: Rc<Side>,
    pub a_to_b: Rc<Cell<Links>>,
    pub b_to_a: Rc<Cell<Links>>,
    /// The requests that the first node has sent.
    sent: Rc<RefCell<Vec<(Path, Bytes)>>>,
    _folder: TempDir,
}

impl Pair {
    pub fn new(platform: &Virtual) -> Self {
        Self::with(platform, pools(), |_| Begun::default())
    }

    /// Creates nodes that serve `pools`. `begun` returns the result of each node's startup.
    pub fn with(
        platform: &Virtual,
        pools: Vec<RingPool>,
        begun: impl Fn(&Directory) -> Begun,
    ) -> Self {
        Self::of(platform, pools, begun, CLUSTER)
    }

    /// Creates nodes with different cluster files: the first node has the file `newer`.
    pub fn with_newer(platform: &Virtual, newer: &str) -> Self {
        Self::of(platform, pools(), |_| Begun::default(), newer)
    }

    /// Like [`Self::with`]; the first node has the cluster file `of_a`.
    pub fn of(
        platform: &Virtual,
        pools: Vec<RingPool>,
        begun: impl Fn(&Directory) -> Begun,
        of_a: &str,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster.toml");
        let side = |of: &str, name: &str, pools: Vec<RingPool>| {
            write_whole(&OsFiles, &file, of.as_bytes()).unwrap();
            let cluster = Cluster::load(&file).unwrap();
            let directory = Directory::new(1, pools, cluster.shards()).unwrap();
            let own = &*cluster.node(name).unwrap().1.shards;
            let data = folder.path().join(name);
            std::fs::create_dir(&data).unwrap();
            // Each node has its own wall clock.
            let platform = &Virtual(platform.0.clone(), Rc::default());
            side(platform, &node(&cluster, own, &data, name, &directory, &begun), own)
        };
        let (a, to_b) = side(of_a, "a", pools.clone());
        let (b, to_a) = side(CLUSTER, "b", pools);
        let links = || Rc::new(Cell::new(Links::Up));
        let (a_to_b, b_to_a, sent) = (links(), links(), Rc::default());
        for (queues, to, links, sent) in
            [(to_b, &b, &a_to_b, Rc::clone(&sent)), (to_a, &a, &b_to_a, Rc::default())]
        {
            for queue in queues {
                platform.spawn(link(Rc::clone(to), Rc::clone(links), Rc::clone(&sent), queue));
            }
        }
        Self { platform: platform.clone(), a, b, a_to_b, b_to_a, sent, _folder: folder }
    }

    /// Returns all requests with this path that the first node has sent.
    pub fn all_sent(&self, path: Path) -> Vec<Value> {
        let sent = self.sent.borrow();
        let bodies = sent.iter().filter(|(of, _)| *of == path);
        bodies.map(|(_, body)| serde_json::from_slice(body).unwrap()).collect()
    }

    /// Returns the last request with this path that the first node has sent.
    pub fn sent(&self, path: Path) -> Value {
        self.all_sent(path).pop().unwrap()
    }
}

/// Returns the pools that the nodes serve. Every shard owns some of them.
pub fn pools() -> Vec<RingPool> {
    demo_pools(POOLS, NUMBERS, LIFETIME).unwrap()
}

fn node(
    cluster: &Cluster,
    own: &[u16],
    data: &FilePath,
    name: &str,
    directory: &Directory,
    begun: &impl Fn(&Directory) -> Begun,
) -> Arc<Node> {
    let membership = Membership::new(cluster.clone(), name).unwrap();
    let owners = cluster.map().owners();
    let directory = directory.moved(owners.placement());
    let begun = Begun {
        identity: name.to_owned(),
        journals: own.iter().map(|shard| (*shard, 1)).collect(),
        lists: lists(&directory),
        lifetimes: begun_lifetimes(&directory),
        ..begun(&directory)
    };
    let config = Config::new(data.into(), 1);
    let opened = (Some(owners), begun);
    let node = Node::new(config, directory, own, Some(membership), opened);
    node.enter(Phase::Serving);
    Arc::new(node)
}

fn begun_lifetimes(directory: &Directory) -> ringwell_driver::lifetimes::Lifetimes {
    let longest = ringwell_driver::lifetimes::longest(directory);
    ringwell_driver::lifetimes::Lifetimes::default().followed_by(longest, Millis::ZERO)
}

type Queue = mpsc::Receiver<Message>;

/// Creates the node's own shards and starts the tasks that process their queues. Also returns the
/// queues of the links to the other node's shards.
fn side(platform: &Virtual, node: &Arc<Node>, own: &[u16]) -> (Rc<Side>, Vec<(u16, Queue)>) {
    let (mut peers, mut alone) = (Peers::default(), Peers::default());
    let (mut links, mut queues) = (Vec::new(), Vec::new());
    for shard in 0..4 {
        let (way, queue) = mpsc::channel(8);
        peers.add(shard, way.clone());
        if own.contains(&shard) {
            alone.add(shard, way);
            queues.push((shard, queue));
        } else {
            links.push((shard, queue));
        }
    }
    let read = reading(1, platform.boot_time(), platform.wall());
    let clock = Clock::going_on(read.resume(&[]), read.since_boot);
    let now = clock.now(platform.boot_time());
    let shard = |(id, queue)| {
        let specs = node.directory().pools_of(id).map(|pool| rows::spec(pool)).collect();
        let (engine, _) = Restore::new(specs, 10_000).finish(Tip::FIRST.raise_epoch(), now, false);
        let (node, peers) = (Arc::clone(node), peers.clone());
        let shard = Shard::new(id, node, platform.clone(), engine, clock.clone(), peers);
        let shard = Rc::new(shard);
        let store = Hanging::new(platform, platform.moment(), None);
        platform.spawn(writer::run(Rc::clone(&shard), Rc::clone(&store)));
        platform.spawn(serve::serve(Rc::clone(&shard), Vec::new(), Rc::clone(&store), || 0, queue));
        (shard, store)
    };
    let (shards, stores) = queues.into_iter().map(shard).unzip();
    (Rc::new(Side { node: Arc::clone(node), peers, alone, shards, stores }), links)
}

/// Answers requests, and records them.
async fn link(
    to: Rc<Side>,
    links: Rc<Cell<Links>>,
    sent: Rc<RefCell<Vec<(Path, Bytes)>>>,
    (shard, mut queue): (u16, Queue),
) {
    let mut unanswered: Vec<oneshot::Sender<_>> = Vec::new();
    while let Some(message) = queue.recv().await {
        let (path, body, reply) = match message {
            Message::Post { path, body, reply, .. } => (path, body, reply),
            Message::Rows(rows) => {
                to.shards[0].platform.clone().spawn(answer_rows(Rc::clone(&to), shard, rows));
                continue;
            }
            Message::Attribution { number, at, keep_alives, reply } => {
                let is_away = match links.get() {
                    Links::GoneFor(count @ 1..) => {
                        links.set(Links::GoneFor(count - 1));
                        true
                    }
                    Links::UpFor(count @ 1..) => {
                        links.set(Links::UpFor(count - 1));
                        false
                    }
                    links => matches!(links, Links::Gone | Links::UpFor(0)),
                };
                if is_away {
                    let _ = reply.send(Err("the other node is away".to_owned()));
                } else {
                    let ask = Message::Attribution { number, at, keep_alives, reply };
                    assert!(to.peers.send(shard, ask), "its queue is full");
                }
                continue;
            }
            _ => continue,
        };
        sent.borrow_mut().push((path, body.clone()));
        match links.get() {
            Links::Gone => {}
            Links::Without(of) if of == path => {}
            Links::Silent => unanswered.push(reply),
            Links::UpTo(bytes) if body.len() > bytes => {
                let _ = reply.send(Err(format!("{} bytes are too many", body.len())));
            }
            links => {
                let to = Rc::clone(&to);
                let platform = to.shards[0].platform.clone();
                platform.clone().spawn(async move {
                    if links == Links::Slow(path) {
                        platform.sleep_until(platform.moment() + Duration::from_secs(1)).await;
                    }
                    let mut answer = to.answer(path, body).await;
                    if let (Links::Accepts(bytes), Path::Prepare, Ok(said)) =
                        (links, path, &mut answer)
                    {
                        *said = format!("{{\"body_bytes\":{bytes}}}").into();
                    }
                    if links != Links::Deaf(path) {
                        let _ = reply.send(answer);
                    }
                });
            }
        }
    }
}

/// The time that rows take to reach the other node.
pub const ROWS_TAKE: Duration = Duration::from_millis(3);

/// Answers rows for a shard of `to`.
async fn answer_rows(to: Rc<Side>, shard: u16, asked: PeerRows) {
    let platform = &to.shards[0].platform;
    let remaining = asked.deadline.since(platform.moment());
    let remaining_ms = u32::try_from(remaining.as_millis()).unwrap();
    let ask = frame::Ask { shard, remaining_ms, map_version: 1, retry: asked.retry };
    let row = |row: &PeerRow| frame::AskRow {
        pool: row.id,
        row: row.row,
        params: row.params.map(|span| span.of(&asked.text)),
        visitor: row.visitor,
    };
    let mut body = Vec::new();
    frame::write_ask(&mut body, &ask, asked.rows.iter().map(row));
    platform.sleep_until(platform.moment() + ROWS_TAKE).await;
    let answered = to.answer(Path::Rows, body.into()).await.unwrap();
    let answered = frame::read_answer(&answered, asked.rows.len()).unwrap();
    let outcome = |row: &RowAnswer| match *row {
        RowAnswer::Allocated { number } => Outcome::Allocated { number },
        RowAnswer::Kept { number } => Outcome::Kept { number },
        RowAnswer::Moved => Outcome::Refused(Refusal::Moved),
        _ => Outcome::Refused(Refusal::Busy),
    };
    let outcomes = answered.rows.iter().map(outcome).collect();
    let _ = asked.reply.send(PeerAnswer { at: answered.at, outcomes });
}

/// Requests a number from a pool, as one row of the batch `batch`, and has the journal store the
/// record.
pub fn allocate(shard: &Rc<Shard<Virtual>>, pool: PoolId, batch: u8) -> Outcome {
    let retry = Some(RowKey { batch: [batch; 16], row: u16::try_from(pool.0).unwrap() });
    let index = shard.directory().lookup(pool).unwrap().index();
    let visitor = Some(VisitorId([batch; 16]));
    let ask = Ask { pool: index, id: pool, params: [b"", b""], visitor, retry };
    let mut outcome = Outcome::Refused(Refusal::Late);
    let now = shard.now();
    shard.engine.borrow_mut().allocate(now, &ask, &mut outcome);
    shard.commit_soon();
    outcome
}

/// Returns the shard's locked numbers, with the ends of their lockouts.
pub fn locked(shard: &Shard<Virtual>) -> BTreeMap<PromoNumber, Millis> {
    let now = shard.now();
    let engine = shard.engine.borrow();
    let slots = engine.shard().slots().iter().filter(|slot| !slot.is_free(now));
    slots.map(|slot| (slot.number, slot.locked_until)).collect()
}

/// Adds to the shard's state a number that is in none of its pools and is locked until
/// `locked_until`.
pub fn know(shard: &Shard<Virtual>, number: PromoNumber, locked_until: Millis) {
    let at = Millis(shard.now().0 - 1_000);
    let slot = Slot { allocated_at: at, locked_until, ..Slot::new(number) };
    let known = Retired { slot, local_at: at, pool: PoolId(99), visitor: None };
    shard.engine.borrow_mut().adopt_unrecorded(&known);
}
