//! Tests rows whose pools are missing from the node's list but are found in another source.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringwell_config::{Config, Durability, demo_pools};
use ringwell_core::{Millis, PoolId};
use ringwell_directory::{PoolFields, RingPool, Tracking};
use ringwell_driver::node::Node;
use ringwell_driver::queue::Peers;
use ringwell_driver::shard::PoolSource;
use ringwell_driver::store::Memory;
use ringwell_driver::{Moment, Platform, change, serve, writer};
use tokio::sync::watch;

use crate::support::{Virtual, bulk, shards_with};

const LIFETIME: Millis = Millis(60_000);
const BASE: &str = "https://clicks.example/c";

/// A source that adds a requested pool to the node's list after a short delay.
#[derive(Debug)]
struct Source {
    platform: Virtual,
    node: Arc<Node>,
    peers: Peers,
    has: RingPool,
    asked: RefCell<Vec<PoolId>>,
}

impl PoolSource for Source {
    fn ask(&self, pool: PoolId) -> Option<watch::Receiver<()>> {
        self.asked.borrow_mut().push(pool);
        let found = Vec::from_iter(Some(self.has.clone()).filter(|it| it.id() == pool));
        let (done, answer) = watch::channel(());
        let (at, node, peers) = (self.platform.clone(), self.node.clone(), self.peers.clone());
        self.platform.spawn(async move {
            at.sleep_until(at.moment() + Duration::from_millis(5)).await;
            change::apply(&at, &node, &peers, |before| before.change(found, &[])).await.unwrap();
            drop(done);
        });
        Some(answer)
    }
}

/// Returns pool 101, whose answers contain tracking URLs.
fn pool() -> RingPool {
    let pool = demo_pools(101, 200, LIFETIME).unwrap().pop().unwrap();
    let (base_url, destination_url) = (BASE.to_owned(), "https://shop.example/".to_owned());
    let tracking = Some(Arc::new(Tracking { base_url, destination_url }));
    RingPool::new(PoolFields { tracking, ..pool.fields().clone() }).unwrap()
}

fn body(rows: &[(PoolId, &str)]) -> Bytes {
    let row = |(at, (id, key)): (usize, &(PoolId, &str))| {
        let suffix = format!("{id}/allocate_number.json?ring_pool_key={key}");
        format!(r#"{{"api_suffix":"{suffix}","request_id":"{at}"}}"#)
    };
    let rows: Vec<_> = rows.iter().enumerate().map(row).collect();
    format!("{{\"requests\":[{}]}}", rows.join(",")).into()
}

#[test]
fn a_pool_that_the_list_lacks_is_asked_for_and_its_rows_get_numbers() {
    let platform = Virtual::default();
    let data = tempfile::tempdir().unwrap();
    let config = Config::new(data.path().into(), 1);
    let (mut shard, queue) =
        shards_with(&platform, 1, LIFETIME, Durability::Disk, config).remove(0);
    let pool = pool();
    let (node, peers) = (Arc::clone(&shard.node), shard.peers.clone());
    let (has, asked) = (pool.clone(), RefCell::default());
    let source = Rc::new(Source { platform: platform.clone(), node, peers, has, asked });
    Rc::get_mut(&mut shard).unwrap().source = Some(source.clone());
    let store = Rc::new(Memory::new([1; 16], 1 << 20));
    platform.spawn(writer::run(Rc::clone(&shard), Rc::clone(&store)));
    platform.spawn(serve::serve(Rc::clone(&shard), Vec::new(), store, || 0, queue));
    let (id, key, nowhere) = (pool.id(), pool.key().reveal().to_string(), PoolId(99_999));
    platform.run(async {
        let ask =
            async |rows: &[(PoolId, &str)]| bulk(&shard, body(rows), &platform.terms(500)).await;
        let count = |answer: &str, text| answer.matches(text).count();
        // All rows name pools that are missing from the node's list, so the batch waits only for
        // the source.
        let answer = ask(&[(id, &key), (nowhere, "a"), (id, &key)]).await;
        assert_eq!(count(&answer, BASE), 2, "{answer}");
        assert_eq!(platform.moment(), Moment::default() + Duration::from_millis(5));
        let mut asked = source.asked.take();
        asked.sort_unstable();
        assert_eq!(asked, [id, nowhere], "each once");
        // By now, the node's list contains the pool.
        let answer = ask(&[(id, &key)]).await;
        assert_eq!((count(&answer, BASE), source.asked.take()), (1, Vec::new()), "{answer}");
    });
}
