//! Makes random changes to the directory, which reach the nodes at random times. Tests that no
//! number is handed out while a visitor of another pool may hold it, and that no overflow number is
//! in a rotation.

#![expect(clippy::unwrap_used, reason = "a test program")]

mod rig;

use std::collections::HashMap;

use rig::Rig;
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{RingPool, RingPoolKey};
use ringwell_store::{Change, Leave, PoolSettings, Refusal, Scope, Store, StoreError};

const NUMBERS: u64 = 6;
const STEPS: u32 = 400;
const MINUTE: u64 = 60_000;

#[tokio::test]
async fn no_number_is_with_two_visitors_in_sqlite() {
    for seed in [1, 2] {
        World::new(Rig::sqlite(), seed).await.run().await;
    }
}

#[tokio::test]
async fn no_number_is_with_two_visitors_in_postgresql() {
    World::new(Rig::postgres(), 3).await.run().await;
}

/// A node, with the state of the directory that it serves.
#[derive(Default)]
struct Node {
    version: u64,
    pools: Vec<RingPool>,
}

struct World {
    store: Store,
    now: Millis,
    nodes: [Node; 2],
    /// For each number that a visitor holds, the pool that handed it out and the end of the
    /// lockout.
    held: HashMap<PromoNumber, (PoolId, Millis)>,
    /// The time until which visitors may see each overflow number.
    shown: HashMap<PromoNumber, Millis>,
    random: u64,
    seed: u64,
    /// The count of allocations of numbers that had been in another pool. The test is meaningful
    /// only if this count is high.
    moved: u32,
    last_pool: HashMap<PromoNumber, PoolId>,
    _rig: Rig,
}

impl World {
    async fn new(rig: Rig, seed: u64) -> Self {
        let store = Store::open(&rig.location).await.unwrap();
        let now = Millis(1_700_000_000_000);
        let mut change = store.change("test", now).await.unwrap();
        for id in 1..=3 {
            let key = RingPoolKey::parse("KEY45678").unwrap();
            change.create_pool(settings(id, 10), Some(PoolId(id)), key).await.unwrap();
        }
        change.commit().await.unwrap();
        let (held, shown, last_pool) = Default::default();
        let random = seed;
        let mut world = Self {
            store,
            now,
            nodes: Default::default(),
            held,
            shown,
            random,
            seed,
            moved: 0,
            last_pool,
            _rig: rig,
        };
        world.apply(0).await;
        world.apply(1).await;
        world
    }

    async fn run(mut self) {
        for _ in 0..STEPS {
            self.now = self.now + Millis(self.below(2 * MINUTE));
            let node = usize::from(self.below(2) == 0);
            match self.below(10) {
                0..=3 => self.change().await,
                4 | 5 => self.apply(node).await,
                6 => drop(self.store.due(self.now).await.unwrap()),
                _ => self.allocate(node),
            }
        }
        assert!(self.moved >= 3, "seed {}: only {} numbers moved", self.seed, self.moved);
    }

    /// Makes the node load the latest directory and confirm its version.
    async fn apply(&mut self, node: usize) {
        let loaded = self.store.load_all().await.unwrap();
        self.nodes[node] = Node { version: loaded.version, pools: loaded.pools };
        let name = format!("n{node}");
        self.store.confirm(&name, self.nodes[node].version, self.now).await.unwrap();
    }

    /// Makes every pool of the node hand out each free number to one visitor, and its overflow
    /// number to other visitors.
    fn allocate(&mut self, node: usize) {
        for pool in &self.nodes[node].pools {
            let until = self.now + pool.lifetime();
            for number in pool.numbers().iter().flat_map(|range| range.iter()) {
                let hold = self.held.get(&number).filter(|(_, until)| *until > self.now);
                if let Some((other, until)) = hold {
                    let (seed, id) = (self.seed, pool.id());
                    assert_eq!(*other, id, "seed {seed}: {number} is held until {until}");
                    continue;
                }
                let shown = self.shown.get(&number).is_some_and(|until| *until > self.now);
                assert!(!shown, "seed {}: {number} was an overflow number", self.seed);
                self.held.insert(number, (pool.id(), until));
                let before = self.last_pool.insert(number, pool.id());
                self.moved += u32::from(before.is_some_and(|before| before != pool.id()));
            }
            if let Some(number) = pool.overflow() {
                let hold = self.held.get(&number).filter(|(_, until)| *until > self.now);
                assert_eq!(hold, None, "seed {}: {number} is overflow", self.seed);
                // Pools that share an overflow number may have different lifetimes.
                let shown = self.shown.entry(number).or_default();
                *shown = until.max(*shown);
            }
        }
    }

    async fn change(&mut self) {
        let pool = 1 + self.below(3);
        let first = PromoNumber::from_e164(18_885_550_100 + self.below(NUMBERS)).unwrap();
        let range = NumberRange::new(first, 1 + u32::from(self.below(3) == 0)).unwrap();
        let (what, lifetime) = (self.below(9), 5 + self.below(16));
        let mut change = self.store.change("test", self.now).await.unwrap();
        let result = act(&mut change, what, PoolId(pool), range, lifetime).await;
        match result {
            Ok(()) => drop(change.commit().await),
            // Most of the random changes are impossible in the current state, so they are refused.
            Err(StoreError::Refused(_)) => {}
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// One random change.
async fn act(
    change: &mut Change,
    what: u64,
    pool: PoolId,
    range: NumberRange,
    minutes: u64,
) -> Result<(), StoreError> {
    match what {
        0 | 1 => drop(change.add_numbers(pool, &[range]).await?),
        2 => drop(change.take_out(&[range], Leave::Inventory).await?),
        3 => drop(change.take_out(&[range], Leave::Quarantine).await?),
        4 => drop(change.end_quarantine(&[range], Millis(minutes)).await?),
        5 if minutes == 5 => drop(change.reserve_for(&[range], None).await?),
        5 => drop(change.set_overflow(pool, Some(range.first())).await?),
        6 => change.update_pool(pool, settings(pool.0, minutes)).await?,
        7 => {
            // Moves numbers to another pool, as operators do.
            change.take_out(&[range], Leave::Inventory).await?;
            change.add_numbers(pool, &[range]).await?;
        }
        _ if minutes == 5 => {
            change.remove_pool(pool).await?;
            let key = RingPoolKey::parse("KEY45678").unwrap();
            change.create_pool(settings(pool.0, minutes), Some(pool), key).await?;
        }
        _ => return Err(Refusal::UnknownPool(pool).into()),
    }
    Ok(())
}

fn settings(id: u64, minutes: u64) -> PoolSettings {
    PoolSettings {
        scope: Scope::of_file(),
        id_from_network: id.to_string(),
        name: format!("Pool {id}"),
        lifetime: Millis(minutes * MINUTE),
        max_pool_size: 10,
        preferred: false,
        fill_immediately: false,
        allow_overflow: true,
        destination: None,
        tracking_url: String::new(),
        destination_url: String::new(),
        kept: serde_json::Map::new(),
    }
}
