//! A server whose ring pools are in a database, tested with SQLite and with a real PostgreSQL.
//! Changes in the database take effect within a second and affect no lockout.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]
#![allow(clippy::expect_used, reason = "as above")]

#[path = "directory/doctor.rs"]
mod doctor;
#[path = "directory/full_disk.rs"]
mod full_disk;
#[path = "directory/journals.rs"]
mod journals;
#[path = "directory/older_copy.rs"]
mod older_copy;
#[path = "directory/refused.rs"]
mod refused;
#[path = "../../ringwell-store/tests/rig/mod.rs"]
mod rig;
#[path = "directory/stopped.rs"]
mod stopped;
#[path = "directory/strangers.rs"]
mod strangers;
mod support;
#[path = "directory/wall.rs"]
mod wall;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rig::Rig;
use ringwell_config::demo_pools;
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::RingPoolKey;
use ringwell_store::{Change, Leave, Location, Role, Scope, Store, StoreError};
use support::batch::{self, Ask, BULK};
use support::client::Client;
use support::server::Server;
use support::site::{Pool, Site, TOKEN};
use tokio::runtime::{Builder, Runtime};

const LONG: Duration = Duration::from_mins(1);
/// The time limit for changes to pools in the database to take effect, including additional time
/// for a busy machine.
const SOON: Duration = Duration::from_secs(4);

/// A server with its pools in a database, and a second connection to that database.
struct Managed {
    rig: Rig,
    site: Site,
    runtime: Runtime,
    store: Store,
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Millis(u64::try_from(since.as_millis()).unwrap())
}

fn range(first: u64, count: u32) -> NumberRange {
    NumberRange::new(PromoNumber::from_code(first).unwrap(), count).unwrap()
}

impl Managed {
    fn new(rig: Rig, pools: Vec<Pool>) -> Self {
        Self::with(rig, pools, "management.address = \"127.0.0.1:0\"")
    }

    /// Like `new`, but with additional settings, such as the management address.
    fn with(rig: Rig, pools: Vec<Pool>, settings: &str) -> Self {
        let database = match &rig.location {
            Location::File(path) => format!("sqlite:{}", path.display()),
            Location::Url(url) => url.clone(),
        };
        let more = format!("shards = 2\n{settings}");
        let site = Site::new(pools, &format!("{more}\n[directory]\ndatabase = \"{database}\""));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let store = runtime.block_on(Store::open(&rig.location)).unwrap();
        Self { rig, site, runtime, store }
    }

    fn start(&self) -> Server {
        Server::start(self.site.serve(&[]))
    }

    fn change<T>(
        &self,
        what: impl AsyncFnOnce(&mut Change) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.runtime.block_on(async {
            let mut change = self.store.change("a test", now()).await?;
            let done = what(&mut change).await?;
            change.commit().await?;
            Ok(done)
        })
    }

    /// Returns the name of the PostgreSQL database, and the folder that contains PostgreSQL's
    /// socket.
    fn database(&self) -> (String, String) {
        let Location::Url(url) = &self.rig.location else { panic!("it is PostgreSQL") };
        let (name, query) = url.rsplit_once('/').unwrap().1.split_once('?').unwrap();
        (name.to_owned(), query.trim_start_matches("host=").replace("%2F", "/"))
    }

    /// Executes an SQL statement in the PostgreSQL database `database`.
    fn execute(&self, database: &str, statement: &str) {
        let mut psql = Command::new("psql");
        psql.args(["-q", "-h", &self.database().1, "-U", "ringwell"]);
        psql.args(["-d", database, "-c", statement]);
        assert!(psql.stdout(std::process::Stdio::null()).status().unwrap().success());
    }

    fn add(&self, pool: u64, numbers: NumberRange) {
        self.change(async |change| {
            change.add_to_inventory(&[numbers], None).await?;
            change.add_numbers(PoolId(pool), &[numbers]).await
        })
        .unwrap();
    }
}

/// Connects a client to the management address.
fn management(server: &Server) -> Client {
    Client::connect(&management_address(server)).unwrap()
}

/// Returns the management address from the server's log.
fn management_address(server: &Server) -> String {
    let log = server.log();
    let line = log.lines().find(|line| line.contains(r#""message":"management""#)).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let fields = line.get("fields").unwrap_or(&line);
    fields["address"].as_str().unwrap().to_owned()
}

/// Returns the count of numbers in the server's pools.
fn numbers(client: &mut Client) -> u64 {
    client.get("/healthz", &[]).unwrap().json()["numbers"].as_u64().unwrap()
}

/// Checks the condition repeatedly until it holds.
fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn age_ms(client: &mut Client) -> u64 {
    client.get("/healthz", &[]).unwrap().json()["directory_age_ms"].as_u64().unwrap()
}

fn is_refused(client: &mut Client, pool: &Pool) -> bool {
    let asks = [Ask { pool: pool.id, id: "k".into() }];
    let body = batch::body(&asks, std::slice::from_ref(pool));
    client.post(BULK, &[], &body).unwrap().body.contains("InvalidKey")
}

fn pools_move_in_and_changes_take_effect(rig: Rig) {
    let pools: Vec<Pool> = (1..=4).map(|id| Pool::new(id, 2, LONG)).collect();
    let managed = Managed::new(rig, pools.clone());
    let server = managed.start();
    let mut client = server.client();
    for pool in &pools {
        assert_eq!(batch::one(&mut client, pool, "a").number, pool.first);
    }
    // Adds numbers.
    managed.add(1, range(pools[0].first + 2, 1));
    assert_eq!(batch::one(&mut client, &pools[0], "b").number, pools[0].first + 1);
    soon("the number that was added", || {
        batch::one(&mut client, &pools[0], "c").number == pools[0].first + 2
    });
    assert!(batch::one(&mut client, &pools[0], "d").overflow, "the others are locked out");
    // Adds a second key, then removes the first one.
    let next = RingPoolKey::parse("the-next-key-of-2").unwrap();
    managed.change(async |change| change.rotate_key(PoolId(2), next).await).unwrap();
    let renamed = Pool { key: "the-next-key-of-2".into(), ..pools[1].clone() };
    soon("the second key", || !is_refused(&mut client, &renamed));
    assert!(!is_refused(&mut client, &pools[1]), "both are valid");
    managed.change(async |change| change.end_key_overlap(PoolId(2)).await).unwrap();
    soon("the end of the first key", || is_refused(&mut client, &pools[1]));
    // A removed pool keeps its history.
    managed.change(async |change| change.remove_pool(PoolId(3)).await).unwrap();
    soon("the end of a pool", || is_refused(&mut client, &pools[2]));
    let held = batch::attribution(&mut client, pools[2].first, now().0).unwrap();
    assert_eq!(held["parameters"]["id"], "a", "{held}");
    assert!(age_ms(&mut client) < 2_000);
    // After a restart, the pools still come from the database. The pools in the configuration file
    // are not imported again.
    server.kill();
    let server = managed.start();
    let mut client = server.client();
    assert!(is_refused(&mut client, &pools[2]) && is_refused(&mut client, &pools[1]));
    assert_eq!(batch::one(&mut client, &pools[3], "e").number, pools[3].first + 1);
    assert!(batch::one(&mut client, &pools[0], "f").overflow);
    server.stop();
}

/// A tenant's system creates a pool through the published API, and then requests numbers.
#[test]
fn a_pool_that_the_published_api_makes_hands_out_numbers_at_once() {
    let managed = Managed::new(Rig::sqlite(), vec![Pool::new(1, 2, LONG)]);
    let server = managed.start();
    let mut operator = management(&server);
    let token = format!("Bearer {TOKEN}");
    let headers = [("authorization", &*token), ("content-type", "application/json")];
    let numbers = "{\"ranges\":[\"8885550100-8885550104\"]}";
    let added = operator.post("/v1/numbers", &headers, numbers).unwrap();
    assert!(added.status < 300, "{} {}", added.status, added.body);
    let path = "/api/2013-07-01/1/advertisers/7/advertiser_campaigns/8/ring_pools/spring.json";
    let wanted = "{\"name\":\"Spring\",\"lifetime_seconds\":\"60\",\"max_pool_size\":\"4\",\
                  \"fill_immediately\":true}";
    let headers = [("authorization", TOKEN)];
    let made = operator.post(path, &headers, wanted).unwrap();
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json();
    // A token that permits no changes does not reveal the key.
    let (_, reader) = managed
        .change(async |change| change.create_token("t", Role::Read, None, [9; 40]).await)
        .unwrap();
    let shown = operator.get(path, &[("authorization", reader.reveal())]).unwrap().json();
    assert_eq!((&shown["id"], &shown["api_key"]), (&made["id"], &serde_json::Value::Null));
    let id = made["id"].as_u64().unwrap();
    let pool = Pool { key: made["api_key"].as_str().unwrap().into(), ..Pool::new(id, 3, LONG) };
    let mut client = server.client();
    soon("the new pool", || !is_refused(&mut client, &pool));
    // The check above received one of the pool's three numbers. These rows receive the other two
    // and the overflow number.
    let mut given: Vec<(u64, bool)> = (0..3)
        .map(|_| batch::one(&mut client, &pool, "x"))
        .map(|row| (row.number, row.overflow))
        .collect();
    given.sort_unstable();
    assert_eq!(given.iter().filter(|(_, overflow)| *overflow).count(), 1, "{given:?}");
    assert!(given.iter().all(|(n, _)| (8_885_550_100..8_885_550_105).contains(n)), "{given:?}");
    let state = operator.get(&format!("/v1/pools/{id}/state"), &[("authorization", &token)]);
    let state = state.unwrap().json();
    assert_eq!((&state["free"], &state["locked"]), (&0.into(), &3.into()), "{state}");
    // The management API requires a token, and is not served at the address for clients.
    assert_eq!(operator.get("/v1/pools", &[]).unwrap().status, 401);
    assert_eq!(client.get("/v1/pools", &[("authorization", &token)]).unwrap().status, 404);
    server.stop();
}

#[test]
fn pools_are_imported_into_sqlite_and_changes_take_effect() {
    pools_move_in_and_changes_take_effect(Rig::sqlite());
}

#[test]
fn pools_are_imported_into_postgresql_and_changes_take_effect() {
    pools_move_in_and_changes_take_effect(Rig::postgres());
}

/// The test imports pools as another server would. The import takes longer than the time limit for
/// a change. The server must wait until the import ends.
#[test]
fn a_server_waits_while_another_one_imports_the_pools_of_the_file() {
    let pools = vec![Pool::new(1, 5, LONG)];
    let managed = Managed::new(Rig::postgres(), pools.clone());
    let of_other = demo_pools(3, 4, Millis(1000)).unwrap();
    let (began, server) = (
        Instant::now(),
        thread::scope(|scope| {
            let mut change = managed.runtime.block_on(managed.store.change("b", now())).unwrap();
            managed.runtime.block_on(change.import(&of_other, &Scope::of_file())).unwrap();
            let starting = scope.spawn(|| Server::try_start(managed.site.serve(&[])));
            thread::sleep(Duration::from_secs(12));
            managed.runtime.block_on(change.commit()).unwrap();
            starting.join().unwrap()
        }),
    );
    let server = server.unwrap_or_else(|it| panic!("it ended with {:?}:\n{}", it.code, it.log));
    assert!(began.elapsed() > Duration::from_secs(11));
    server.says("another server is importing its pools");
    let health = server.client().get("/healthz", &[]).unwrap().json();
    assert_eq!(health["numbers"], 12, "the pools of the other one: {health}");
    server.stop();
}

#[test]
fn the_server_continues_without_its_database_and_reports_the_age_of_its_pools() {
    let pools = vec![Pool::new(1, 50, LONG)];
    let managed = Managed::new(Rig::postgres(), pools.clone());
    let server = managed.start();
    let mut client = server.client();
    assert_eq!(batch::one(&mut client, &pools[0], "a").number, pools[0].first);
    let (name, _) = managed.database();
    let execute = |statement: &str| managed.execute("postgres", statement);
    managed.runtime.block_on(managed.store.close());
    execute(&format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false"));
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ";
    execute(&format!("{end}'{name}'"));
    soon("the age grows", || age_ms(&mut client) > 1_200);
    assert_eq!(batch::one(&mut client, &pools[0], "b").number, pools[0].first + 1);
    server.says("the server continues with its current pools");
    execute(&format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true"));
    let store = managed.runtime.block_on(Store::open(&managed.rig.location)).unwrap();
    let managed = Managed { store, ..managed };
    managed.add(1, range(pools[0].first + 50, 7));
    soon("it is there again", || age_ms(&mut client) < 800);
    soon("what has changed meanwhile", || numbers(&mut client) == 57);
    server.stop();
}

#[test]
fn a_database_that_goes_back_is_followed_and_reported() {
    let pool = Pool::new(1, 50, LONG);
    let managed = Managed::new(Rig::postgres(), vec![pool.clone()]);
    let server = managed.start();
    let mut client = server.client();
    let (name, _) = managed.database();
    managed.execute(&name, "CREATE TABLE before AS SELECT * FROM numbers");
    let added = range(pool.first + 50, 7);
    managed.add(1, added);
    soon("the numbers are there", || numbers(&mut client) == 57);
    managed.execute(
        &name,
        "BEGIN; DELETE FROM numbers; INSERT INTO numbers SELECT * FROM before; \
         UPDATE ring_pools SET version = version - 1; \
         DELETE FROM audit_log WHERE version > 1; \
         UPDATE directory SET version = version - 1; COMMIT",
    );
    soon("the numbers have left", || numbers(&mut client) == 50);
    server.says("contains an older version than the one this server was using");
    managed.add(1, added);
    soon("the numbers are there again", || numbers(&mut client) == 57);
    server.stop();
}

/// Numbers that have left a pool cannot be used until the server confirms the change.
#[test]
fn a_confirmation_that_the_database_missed_is_repeated() {
    let pool = Pool::new(1, 50, LONG);
    let managed = Managed::new(Rig::postgres(), vec![pool.clone()]);
    let server = managed.start();
    let mut client = server.client();
    let (name, _) = managed.database();
    managed.execute(
        &name,
        "CREATE FUNCTION refuse() RETURNS trigger AS 'BEGIN RAISE EXCEPTION ''no''; END' \
         LANGUAGE plpgsql; \
         CREATE TRIGGER refusal BEFORE INSERT OR UPDATE ON nodes EXECUTE FUNCTION refuse()",
    );
    let gone = range(pool.first, 10);
    managed.change(async |change| change.take_out(&[gone], Leave::Inventory).await).unwrap();
    soon("the numbers leave the pool", || numbers(&mut client) == 40);
    server.says("the directory's database cannot be read");
    let left = || {
        let numbers = managed.store.number(gone.first());
        managed.runtime.block_on(numbers).unwrap().unwrap().ready
    };
    assert_eq!(left(), None, "no server has confirmed that they are out");
    managed.execute(&name, "DROP TRIGGER refusal ON nodes");
    soon("the node confirms", || left().is_some());
    server.stop();
}

/// Numbers, pools and keys change while clients request numbers and the server is killed.
fn any_changes_cost_no_lockout(rig: Rig) {
    let pools: Vec<Pool> = (1..=6).map(|id| Pool::new(id, 300, LONG)).collect();
    let managed = Managed::new(rig, pools.clone());
    let mut given: Vec<u64> = Vec::new();
    for round in 0..3_u64 {
        let server = managed.start();
        let is_over = AtomicBool::new(false);
        given.extend(thread::scope(|scope| {
            let asking: Vec<_> = (0..2)
                .map(|caller| {
                    let (server, is_over, pools) = (&server, &is_over, &pools);
                    scope.spawn(move || {
                        let mut client = server.client();
                        let id = format!("r{round}c{caller}");
                        let asks: Vec<Ask> =
                            (1..=6).map(|pool| Ask { pool, id: id.clone() }).collect();
                        let body = batch::body(&asks, pools);
                        let mut numbers = Vec::new();
                        while !is_over.load(Ordering::Relaxed) {
                            let answer = client.post(BULK, &[], &body).unwrap();
                            let rows = batch::rows(&answer);
                            let own = rows.iter().filter(|row| !row.overflow && row.number > 0);
                            numbers.extend(own.map(|row| row.number));
                            thread::sleep(Duration::from_millis(8));
                        }
                        numbers
                    })
                })
                .collect();
            for step in 0..8_u64 {
                let pool = &pools[usize::try_from((round * 3 + step) % 5).unwrap()];
                let part = range(pool.first + 20 * (step % 4), 20);
                let id = PoolId(pool.id);
                let done = managed.change(async |change| match step % 4 {
                    0 => change.take_out(&[part], Leave::Inventory).await.map(drop),
                    1 => change.take_out(&[part], Leave::Quarantine).await.map(drop),
                    2 => {
                        let more = range(pool.first + 1_000 + 50 * (round * 8 + step), 10);
                        change.add_to_inventory(&[more], None).await?;
                        change.add_numbers(id, &[more]).await.map(drop)
                    }
                    _ => change.end_key_overlap(id).await.map(drop),
                });
                // Some changes are refused, because allocated numbers cannot be removed from a
                // pool.
                drop(done);
                thread::sleep(Duration::from_millis(130));
            }
            is_over.store(true, Ordering::Relaxed);
            asking.into_iter().flat_map(|asking| asking.join().unwrap()).collect::<Vec<_>>()
        }));
        server.end(round % 2 == 0);
    }
    let all = given.len();
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), all, "a number went out twice within its lockout");
    assert!(all > 300, "{all} numbers");
}

#[test]
fn any_changes_in_sqlite_cost_no_lockout_though_the_server_is_killed() {
    any_changes_cost_no_lockout(Rig::sqlite());
}

#[test]
fn any_changes_in_postgresql_cost_no_lockout_though_the_server_is_killed() {
    any_changes_cost_no_lockout(Rig::postgres());
}

/// In the published API, a pool of local numbers gets its numbers minutes after it is created.
#[test]
fn a_pool_without_numbers_answers_with_its_overflow_number() {
    let pool = Pool::new(1, 1, LONG);
    let managed = Managed::new(Rig::sqlite(), vec![pool.clone()]);
    let server = managed.start();
    let mut client = server.client();
    managed
        .change(async |change| change.take_out(&[range(pool.first, 1)], Leave::Inventory).await)
        .unwrap();
    soon("the only number leaves", || batch::one(&mut client, &pool, "a").overflow);
    assert_eq!(batch::one(&mut client, &pool, "b").number, pool.overflow);
    server.kill();
    let server = managed.start();
    assert_eq!(batch::one(&mut server.client(), &pool, "c").number, pool.overflow);
    server.stop();
}

/// If a pool got no numbers when it was created, the API reports this, and the pool gets numbers
/// once the inventory has some.
#[test]
fn a_pool_that_never_had_numbers_reports_that_and_gets_them_at_once() {
    let managed = Managed::new(Rig::sqlite(), vec![Pool::new(1, 1, LONG)]);
    let server = managed.start();
    let mut operator = management(&server);
    let path = "/api/2013-07-01/1/advertisers/7/advertiser_campaigns/8/ring_pools/spring.json";
    let wanted = "{\"name\":\"Spring\",\"max_pool_size\":2,\"allow_overflow\":false}";
    let made = operator.post(path, &[("authorization", TOKEN)], wanted).unwrap();
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json();
    let id = made["id"].as_u64().unwrap();
    let pool = Pool { key: made["api_key"].as_str().unwrap().into(), ..Pool::new(id, 1, LONG) };
    let mut client = server.client();
    let single =
        format!("/api/2015-12-09/ring_pools/{id}/allocate_number.json?ring_pool_key={}", pool.key);
    soon("the new pool", || client.get(&single, &[]).unwrap().status != 401);
    let refused = client.get(&single, &[]).unwrap();
    let message = format!("PoolExhausted: Ring pool {id} has no numbers and no overflow number\n");
    assert_eq!((refused.status, refused.body), (503, message));
    let token = format!("Bearer {TOKEN}");
    let headers = [("authorization", &*token), ("content-type", "application/json")];
    let added = operator.post("/v1/numbers", &headers, "{\"ranges\":[\"8885550100\"]}").unwrap();
    assert!(added.status < 300, "{} {}", added.status, added.body);
    soon("its number", || client.get(&single, &[]).unwrap().status == 200);
    server.stop();
}
