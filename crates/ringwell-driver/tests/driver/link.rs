//! A link from one node to a shard of another. Answers are slow, late or lost, and the other node
//! receives incorrect requests.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringwell_config::{Cluster, Config, demo_pools};
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{Directory, PoolFields, RingPool, bucket};
use ringwell_driver::clock::{Clock, reading};
use ringwell_driver::lifetimes::{Lifetimes, longest};
use ringwell_driver::link::serve::{answer, body_bytes_max, frame_bytes_max, is_of_the_cluster};
use ringwell_driver::link::{Link, to_others};
use ringwell_driver::membership::{Membership, Neighbour};
use ringwell_driver::message::{Message, PeerAnswer, PeerRow, PeerRows};
use ringwell_driver::moves::announce_to_former;
use ringwell_driver::node::{Begun, Node, Phase};
use ringwell_driver::platform::{Net, NetStats, Trouble};
use ringwell_driver::queue::Peers;
use ringwell_driver::store::{Memory, read_nodes, write_whole};
use ringwell_driver::{Moment, Path, Platform, Shard, rows, serve, writer};
use ringwell_engine::{Moment as Asked, Outcome, Past, Refusal, Restore};
use ringwell_journal::Tip;
use ringwell_mesh::frame;
use ringwell_os::OsFiles;
use ringwell_wire::Span;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use crate::support::Virtual;

const LIFETIME: Millis = Millis(60_000);
/// The time by which the owner's shard time is behind the wall clock.
const BEHIND: Millis = Millis(5_000);
const CLUSTER: &str = r#"version = 7
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

/// A platform with virtual time and a simulated connection to the other node.
#[derive(Clone, Debug, Default)]
struct Wired(Virtual);

impl Platform for Wired {
    const TURNS_TO_READ: usize = 1;

    type Files = OsFiles;
    type Net = Wire;

    fn files(&self) -> OsFiles {
        OsFiles
    }

    fn moment(&self) -> Moment {
        self.0.moment()
    }

    fn boot_time(&self) -> Duration {
        self.0.boot_time()
    }

    fn wall(&self) -> Duration {
        self.0.wall()
    }

    fn sleep_until(&self, at: Moment) -> impl Future<Output = ()> + 'static {
        self.0.sleep_until(at)
    }

    fn turn(&self) -> impl Future<Output = ()> + 'static {
        self.0.turn()
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.spawn(task);
    }

    fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + 'static {
        self.0.offload(work)
    }
}

/// Carries requests to one of the other node's shards.
#[derive(Clone, Default)]
struct Wire {
    platform: Wired,
    to: Rc<RefCell<Option<Rc<Shard<Wired>>>>>,
    /// The time from sending a request until its answer arrives.
    delay: Rc<Cell<Duration>>,
    is_cut: Rc<Cell<bool>>,
    calls: Rc<RefCell<Vec<Path>>>,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl Net for Wire {
    fn call(
        &self,
        path: Path,
        body: Bytes,
    ) -> impl Future<Output = Result<Bytes, Trouble>> + 'static {
        self.calls.borrow_mut().push(path);
        let (wire, delay) = (self.clone(), self.delay.get());
        async move {
            if wire.is_cut.get() {
                return Err(Trouble::Lost("the wire is cut".to_owned()));
            }
            let to = wire.to.borrow().clone().unwrap();
            let answered = answer(&to, path, body, frame::VERSION).await;
            wire.platform.sleep_until(wire.platform.moment() + delay).await;
            answered.map(Bytes::from).map_err(|(status, why)| Trouble::Refused(status, why))
        }
    }

    fn close(&self) {}

    fn stats(&self) -> NetStats {
        let latency = hdrhistogram::Histogram::new(1).unwrap();
        NetStats { connections: 1, connects: 1, latency, clock_ahead_ms: 0 }
    }
}

/// A link, its queue, and the shard at its other end.
struct Joined {
    platform: Wired,
    peers: Peers,
    link: Rc<Link<Wired>>,
    wire: Wire,
    b: Rc<Shard<Wired>>,
    pools: Vec<PoolId>,
    folder: TempDir,
}

/// Returns a pool whose numbers have a country code other than 1.
fn abroad() -> PoolId {
    // Shard 1 owns the upper half of the buckets.
    (9_000..9_100).map(PoolId).find(|pool| bucket(*pool) >= 512).unwrap()
}

fn joined(platform: &Wired) -> Joined {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.toml");
    write_whole(&OsFiles, &file, CLUSTER.as_bytes()).unwrap();
    let cluster = Cluster::load(&file).unwrap();
    let owners = cluster.map().owners();
    let node = |own: u16, name: &str| {
        let directory = Directory::new(1, pools(), 2).unwrap().placed(owners.placement());
        let membership = Membership::new(cluster.clone(), name).unwrap();
        let opened = (Some(owners.clone()), Begun::default());
        let config = Config::new(folder.path().join(name), 1);
        let member = Some(membership);
        let node = Node::new(config, directory, &[own], member, opened);
        node.enter(Phase::Serving);
        Arc::new(node)
    };
    let (a, b) = (node(0, "a"), node(1, "b"));
    let wire = Wire { platform: platform.clone(), ..Wire::default() };
    let mut peers = Peers::default();
    let mut ways = to_others(platform, &a, 0, &mut peers, |_| wire.clone());
    let way = ways.pop().unwrap();
    let link = Rc::clone(&way.link);
    platform.spawn(way.run());
    let b = shard(platform, &b);
    *wire.to.borrow_mut() = Some(Rc::clone(&b));
    let pools = b.node.directory().pools_of(1).map(|pool| pool.id()).collect();
    Joined { platform: platform.clone(), peers, link, wire, b, pools, folder }
}

fn pools() -> Vec<RingPool> {
    let mut pools = demo_pools(40, 300, LIFETIME).unwrap();
    let first = PromoNumber::from_e164(442_071_838_750).unwrap();
    let mut fields: PoolFields = pools[0].fields().clone();
    fields.id = abroad();
    fields.numbers = vec![NumberRange::new(first, 10).unwrap()];
    fields.overflow = PromoNumber::from_e164(442_071_838_799);
    pools.push(RingPool::new(fields).unwrap());
    pools
}

fn shard(platform: &Wired, node: &Arc<Node>) -> Rc<Shard<Wired>> {
    let specs = node.directory().pools_of(1).map(|pool| rows::spec(pool)).collect();
    let read = reading(1, platform.boot_time(), platform.wall());
    let mut clocks = read.resume(&[]);
    clocks.shard_offset -= i64::try_from(BEHIND.0).unwrap();
    let clock = Clock::going_on(clocks, read.since_boot);
    let now = clock.now(platform.boot_time());
    let (engine, _) = Restore::new(specs, 1_000).finish(Tip::FIRST.raise_epoch(), now, false);
    let mut peers = Peers::default();
    let (way, queue) = mpsc::channel(8);
    peers.add(1, way);
    let shard = Shard::new(1, Arc::clone(node), platform.clone(), engine, clock, peers);
    let shard = Rc::new(shard);
    let store = Rc::new(Memory::new([1; 16], 1 << 20));
    platform.spawn(writer::run(Rc::clone(&shard), Rc::clone(&store)));
    platform.spawn(serve::serve(Rc::clone(&shard), Vec::new(), store, || 0, queue));
    shard
}

impl Joined {
    /// Requests a number from each of the first `count` pools. The returned receiver gets the
    /// answer later.
    fn ask(&self, count: usize, retry: Option<[u8; 16]>) -> oneshot::Receiver<PeerAnswer> {
        let (reply, answer) = oneshot::channel();
        let row = |(row, id): (usize, &PoolId)| {
            let (row, params) = (u16::try_from(row).unwrap(), [Span::new(0, 0); 2]);
            PeerRow { pool: 0, id: *id, row, params, visitor: None }
        };
        let rows = self.pools.iter().take(count).enumerate().map(row).collect();
        let deadline = self.platform.moment() + Duration::from_secs(1);
        let ask = PeerRows { text: Bytes::new(), rows, retry, deadline, traced: None, reply };
        assert!(self.peers.send(1, Message::Rows(ask)));
        answer
    }

    async fn pass(&self, ms: u64) {
        self.platform.sleep_until(self.platform.moment() + Duration::from_millis(ms)).await;
    }

    fn locked(&self) -> Vec<PromoNumber> {
        let now = self.b.now();
        let engine = self.b.engine.borrow();
        let slots = engine.shard().slots().iter().filter(|slot| !slot.is_free(now));
        slots.map(|slot| slot.number).collect()
    }
}

fn numbers(answer: &PeerAnswer) -> Vec<PromoNumber> {
    answer.outcomes.iter().filter_map(Outcome::number).collect()
}

fn all_are(answer: &PeerAnswer, why: Refusal) -> bool {
    answer.outcomes.iter().all(|outcome| *outcome == Outcome::Refused(why))
}

#[test]
fn numbers_of_answers_that_nobody_waits_for_are_returned() {
    // An answer is slow after 25 ms and too late after 50 ms.
    for (delay, retry) in
        [(0, None), (24, None), (30, None), (49, None), (51, None), (900, None), (25_000, None)]
            .into_iter()
            .chain([(0, Some([5; 16])), (900, Some([5; 16]))])
    {
        let platform = Wired::default();
        let joined = joined(&platform);
        platform.0.run(async {
            joined.wire.delay.set(Duration::from_millis(delay));
            let begun = platform.moment();
            let answer = joined.ask(5, retry).await.unwrap();
            let took = platform.moment().since(begun);
            assert_eq!(took, Duration::from_millis(delay.min(50)));
            let stats = joined.link.stats();
            assert_eq!(stats.slow, u64::from(delay > 25), "{delay}");
            assert_eq!(stats.lost, u64::from(delay > 50), "{delay}");
            assert_eq!((stats.requests, stats.paced_rows), (1, 0));
            if delay < 50 {
                assert_eq!(numbers(&answer), joined.locked());
                assert_eq!(answer.outcomes.len(), 5);
            } else {
                assert!(all_are(&answer, Refusal::Late));
                assert_eq!(joined.locked().len(), 5);
                joined.pass(delay + 1_100).await;
                assert_eq!(joined.locked(), [], "they are returned, also of a repeatable batch");
                assert_eq!(joined.link.stats().late_released, 5);
            }
            // By the time the answer arrives, the caller has gone.
            joined.wire.delay.set(Duration::from_millis(10));
            let before = joined.locked();
            drop(joined.ask(7, retry.map(|_| [6; 16])));
            joined.pass(1_000).await;
            assert_eq!(joined.locked(), before);
        });
    }
}

#[test]
fn rows_for_a_node_that_is_gone_or_slow_overflow_soon() {
    let platform = Wired::default();
    let joined = joined(&platform);
    platform.0.run(async {
        joined.wire.is_cut.set(true);
        let begun = platform.moment();
        for _ in 0..10 {
            let answer = joined.ask(3, None).await.unwrap();
            let is_shut = joined.link.stats().paced_rows > 0;
            assert!(all_are(&answer, if is_shut { Refusal::Paced } else { Refusal::Unreachable }));
        }
        assert_eq!(platform.moment(), begun);
        joined.pass(5_000).await;
        joined.wire.is_cut.set(false);
        joined.pass(5_000).await;
        assert!(joined.wire.calls.borrow().contains(&Path::Ping), "the link was not shut");
        assert_eq!(numbers(&joined.ask(3, None).await.unwrap()).len(), 3);
        // More sub-requests are made at the same time than the window allows, so some of them wait
        // and are then refused.
        joined.wire.delay.set(Duration::from_millis(20));
        let before = joined.link.stats().paced_rows;
        let sent: Vec<_> = (0..40).map(|_| joined.ask(1, None)).collect();
        let (mut given, mut paced) = (0, 0);
        let begun = platform.moment();
        for answer in sent {
            let answer = answer.await.unwrap();
            given += numbers(&answer).len();
            paced += usize::from(all_are(&answer, Refusal::Paced));
        }
        assert_eq!(given + paced, 40);
        assert!(given > 0 && paced > 0, "{given} {paced}");
        let took = platform.moment().since(begun);
        assert_eq!(took, Duration::from_millis(20), "waiting rows overflow after 15 ms");
        assert_eq!(joined.link.stats().paced_rows - before, u64::try_from(paced).unwrap());
        assert_eq!(joined.locked().len(), given + 3);
    });
}

#[test]
fn look_ups_and_releases_reach_the_owner() {
    let platform = Wired::default();
    let joined = joined(&platform);
    platform.0.run(async {
        let answer = joined.ask(1, None).await.unwrap();
        let [number] = numbers(&answer)[..] else { panic!("{answer:?}") };
        let look_up = async |number, at| {
            let (reply, past) = oneshot::channel();
            let ask = Message::Attribution { number, at, keep_alives: false, reply };
            assert!(joined.peers.send(1, ask));
            past.await.unwrap()
        };
        joined.pass(10).await;
        let past = look_up(number, Asked::Shard(joined.b.now())).await.unwrap();
        let held = past.held.unwrap();
        assert_eq!((held.pool, held.allocated_at), (Some(joined.pools[0]), answer.at));
        for (ms, is_held) in [(6_000, true), (4_000, false)] {
            let at = Asked::Wall(answer.at + Millis(ms));
            let held = look_up(number, at).await.unwrap().held;
            assert_eq!(held.is_some(), is_held, "{ms} ms later by the wall clock");
        }
        let never = PromoNumber::from_e164(number.to_e164() + 1).unwrap();
        assert_eq!(look_up(never, Asked::Shard(joined.b.now())).await, Ok(Past::default()));
        let release = async |allocated_at| {
            let (reply, released) = oneshot::channel();
            let ask = Message::Release { number, allocated_at, seen_at: None, reply };
            assert!(joined.peers.send(1, ask));
            released.await.unwrap()
        };
        assert_eq!(release(Some(answer.at - Millis(1))).await, Ok(false));
        assert_eq!(joined.locked(), [number]);
        assert_eq!(release(Some(answer.at)).await, Ok(true));
        joined.pass(1_000).await;
        assert_eq!(joined.locked(), []);
        assert_eq!(release(None).await, Ok(false));
        joined.wire.is_cut.set(true);
        assert_eq!(release(None).await, Err(Refusal::Unreachable));
        assert!(look_up(number, Asked::Shard(joined.b.now())).await.is_err());
    });
}

/// Returns requests of several kinds that are addressed to the shard `shard`.
fn frames(shard: u16, pool: PoolId) -> Vec<(Path, Vec<u8>)> {
    let mut rows = Vec::new();
    let ask = frame::Ask { shard, remaining_ms: 50, map_version: 7, retry: None };
    let row = frame::AskRow { pool, row: 0, params: [b"", b""], visitor: None };
    frame::write_ask(&mut rows, &ask, [row].into_iter());
    let (mut ping, mut unseen) = (Vec::new(), Vec::new());
    frame::write_ping(&mut ping, shard);
    let (allocated_at, numbers) =
        (Millis(1), vec![PromoNumber::from_e164(12_000_000_000).unwrap()]);
    let numbers = frame::Unanswered { shard, allocated_at, kept: false, numbers };
    frame::write_unanswered(&mut unseen, &numbers);
    let json = |text: String| text.into_bytes();
    vec![
        (Path::Rows, rows),
        (Path::Ping, ping),
        (Path::Unanswered, unseen),
        (Path::Attribution, json(format!(r#"{{"shard":{shard},"number":2000000000,"at":1}}"#))),
        (
            Path::Release,
            json(format!(r#"{{"shard":{shard},"number":2000000000,"allocated_at":null}}"#)),
        ),
    ]
}

#[test]
fn requests_for_another_shard_or_in_another_phase_are_refused() {
    let platform = Wired::default();
    let joined = joined(&platform);
    platform.0.run(async {
        let b = &joined.b;
        let pool = joined.pools[0];
        for (shard, phase) in [(1, Phase::Serving), (1, Phase::Starting), (0, Phase::Serving)] {
            b.node.enter(phase);
            for (path, body) in frames(shard, pool) {
                let answered = answer(b, path, body.into(), frame::VERSION).await;
                let refused = answered.as_ref().err().map(|(status, _)| *status);
                let wanted = match (shard, phase, path) {
                    (0, ..) => Some(404),
                    (_, Phase::Starting, Path::Rows | Path::Ping | Path::Attribution) => Some(503),
                    _ => None,
                };
                assert_eq!(refused, wanted, "{path:?} for shard {shard}");
                if path == Path::Rows && wanted.is_none() {
                    let rows = frame::read_answer(&answered.unwrap(), 1).unwrap();
                    assert_eq!(rows.map_version, 7);
                    assert!(rows.rows[0].number().is_some());
                }
            }
        }
        for (path, mut body) in frames(1, pool) {
            b.node.enter(Phase::Serving);
            body[0] ^= 0x40;
            let (status, _) = answer(b, path, body.into(), frame::VERSION).await.unwrap_err();
            assert!([400, 426].contains(&status), "{status}");
        }
        assert!(is_of_the_cluster(&b.node, b"a-secret-of-the-tests"));
        assert!(!is_of_the_cluster(&b.node, b"a-secret-of-the-test"));
        let limits = &b.node.config.limits;
        assert_eq!(frame_bytes_max(&b.node), limits.body_bytes + limits.rows * 64);
        for path in [None, Some(Path::Rows), Some(Path::Unanswered), Some(Path::Release)] {
            assert_eq!(body_bytes_max(&b.node, path), frame_bytes_max(&b.node));
        }
        for path in [Path::Adopt, Path::Take, Path::Owners, Path::Journals, Path::Locked] {
            assert_eq!(body_bytes_max(&b.node, Some(path)), 256 * 1024);
        }
    });
}

/// A node that speaks only version 1 of the link protocol cannot read numbers with a country code
/// other than 1.
#[test]
fn numbers_that_a_node_cannot_read_are_not_handed_out() {
    let platform = Wired::default();
    let joined = joined(&platform);
    assert!(joined.pools.contains(&abroad()));
    platform.0.run(async {
        for (pool, speaks, is_given) in [
            (joined.pools[0], 1, true),
            (abroad(), 1, false),
            (abroad(), frame::NUMBERS_OF_THE_WORLD, true),
            (abroad(), frame::VERSION, true),
        ] {
            let before = joined.locked().len();
            let (path, body) = frames(1, pool).swap_remove(0);
            let answered = answer(&joined.b, path, body.into(), speaks).await.unwrap();
            let rows = frame::read_answer(&answered, 1).unwrap().rows;
            assert_eq!(rows[0].number().is_some(), is_given, "{rows:?}");
            assert!(is_given || rows[0] == frame::RowAnswer::Busy);
            joined.pass(10).await;
            assert_eq!(joined.locked().len() - before, usize::from(is_given));
        }
    });
}

#[test]
fn requests_between_nodes_have_a_known_path_and_the_secret() {
    let joined = joined(&Wired::default());
    let member = joined.b.node.membership.as_ref().unwrap();

    assert_eq!(member.authorization(), b"Bearer a-secret-of-the-tests");
    for path in [Path::Rows, Path::Unanswered, Path::Ping, Path::Take, Path::Journals] {
        assert_eq!(Path::parse(path.as_str()), Some(path));
    }
    assert_eq!(Path::parse("/link/v1/nothing"), None);
}

/// The newer file gives the shard of the omitted node to another node. The omitted node may be
/// started at any time, and must be informed at its former address.
#[test]
pub fn a_node_that_a_newer_file_omits_is_informed_at_its_former_address() {
    let platform = Wired::default();
    let joined = joined(&platform);
    platform.0.run(async {
        let (data, b) = (joined.folder.path().join("a"), &joined.b);
        std::fs::create_dir_all(&data).unwrap();
        let node = |name: &str, port: u16, shards: &str| {
            format!(
                "[[node]]\nname = \"{name}\"\nshards = {shards}\n\
                 link = \"127.0.0.1:{port}\"\nlisten = [\"127.0.0.1:{}\"]\n",
                port - 920
            )
        };
        let start = |version: u64, nodes: String| {
            let file = joined.folder.path().join("newer.toml");
            let text = format!("version = {version}\nsecret = \"a-secret-of-the-tests\"\n{nodes}");
            write_whole(&OsFiles, &file, text.as_bytes()).unwrap();
            let cluster = Cluster::load(&file).unwrap();
            let own = cluster.node("a").unwrap().1.shards.clone();
            let owners = cluster.map().owners();
            let directory = Directory::new(1, pools(), 2).unwrap().placed(owners.placement());
            let member = Membership::new(cluster, "a");
            let lifetimes = Lifetimes::default().followed_by(longest(&directory), Millis::ZERO);
            let opened = (Some(owners), Begun { lifetimes, ..Begun::default() });
            Arc::new(Node::new(Config::new(data.clone(), 1), directory, &own, member, opened))
        };
        let tell = async |a: Arc<Node>| {
            let net = |former: &Neighbour| {
                assert_eq!((&*former.node, former.shard), ("b", 1));
                joined.wire.clone()
            };
            announce_to_former(&platform, &a, &Peers::default(), net).await;
        };
        let known = || -> Vec<String> {
            let nodes = read_nodes(&OsFiles, &data).unwrap();
            nodes.iter().map(|node| format!("{} {}", node.name, node.link)).collect()
        };
        let has_pools = || b.node.directory().pools_of(1).next().is_some();
        let both = node("a", 9000, "[0]") + &node("b", 9001, "[1]");
        tell(start(7, both)).await;
        assert_eq!(known(), ["a 127.0.0.1:9000", "b 127.0.0.1:9001"]);
        assert_eq!(*joined.wire.calls.borrow(), [], "it is not a former node");
        joined.wire.is_cut.set(true);
        let newer = start(8, node("a", 9000, "[0, 1]"));
        tell(newer).await;
        assert_eq!(known(), ["a 127.0.0.1:9000", "b 127.0.0.1:9001"]);
        joined.pass(2 * LIFETIME.0).await;
        assert!(has_pools());
        assert_eq!(known(), ["a 127.0.0.1:9000", "b 127.0.0.1:9001"]);
        joined.wire.is_cut.set(false);
        joined.pass(3_000).await;
        assert!(!has_pools(), "it has stopped serving");
        assert_eq!(known(), ["a 127.0.0.1:9000"]);
    });
}
