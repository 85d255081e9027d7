//! Repeatedly kills the real program under load with `kill -9`. No answered allocation may be lost,
//! and no number may be handed out twice within its lockout.
//!
//! Each round starts a server on the same data. Sometimes the server is killed during startup and
//! started again. Several clients then send batches concurrently, while the previous round's
//! results are checked. The server is killed at a random moment. `RINGWELL_CRASH_ROUNDS` (default
//! 20) and `RINGWELL_CRASH_SEED` vary the run.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "support/history.rs"]
mod history;
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use history::Event;
use serde_json::Value;
use support::batch::{self, Ask, BULK, Row};
use support::client::Client;
use support::server::{Server, ringwell};
use support::site::{Pool, Site};

const CLIENTS: usize = 4;
const ROWS_A_BATCH: u64 = 10;
/// The number of answered allocations per round that are looked up after the crash, in addition to
/// those of the last batches.
const SAMPLE: usize = 300;
/// The number of allocations from all rounds that are looked up at the end of the test.
const SAMPLE_AT_END: usize = 2_000;
/// The number of answered batches per round that are repeated, in addition to the last batches.
const SENT_AGAIN: usize = 10;

/// The approximate duration of a startup. Some servers are killed within this time after they are
/// started.
const STARTING_MS: u64 = 250;

/// Segments and snapshots are so small that crashes also occur while the server switches to new
/// ones.
const SETTINGS: &str = "\
shards = 2
durability = \"disk\"
journal.segment_bytes = \"1MiB\"
journal.snapshot_every_bytes = \"1MiB\"";

/// Generates small pseudo-random numbers from a seed.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn pick<'a, T>(&mut self, from: &'a [T], count: usize) -> Vec<&'a T> {
        if from.is_empty() {
            return Vec::new();
        }
        (0..count).map(|_| &from[usize::try_from(self.below(from.len() as u64)).unwrap()]).collect()
    }
}

/// The current time on two clocks: the test's monotonic clock and the wall clock. The monotonic
/// clock continues when a server is restarted.
#[derive(Clone, Copy, Debug)]
struct Now {
    ns: u64,
    wall_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Now {
            ns: u64::try_from(self.0.elapsed().as_nanos()).unwrap(),
            wall_ms: u64::try_from(wall.as_millis()).unwrap(),
        }
    }
}

/// A batch that was sent.
#[derive(Debug)]
struct Sent {
    asks: Vec<Ask>,
    body: String,
    key: Option<String>,
    invoked: Now,
}

/// One client's observations in one round.
#[derive(Debug, Default)]
struct Seen {
    /// The numbers that the client got, in order.
    events: Vec<Event>,
    /// The count of numbers in the last received answer.
    last: usize,
    /// The answered batches with an idempotency key, and their answers.
    answered: Vec<(Sent, String)>,
    /// The batch whose answer was lost in the crash, if the batch had a key.
    lost: Option<Sent>,
    rows: u64,
    wrong: Vec<String>,
}

/// The state that the clients of all rounds share.
#[derive(Debug)]
struct World {
    pools: BTreeMap<u64, Pool>,
    list: Vec<Pool>,
    clock: Clock,
}

impl World {
    fn new(clock: Clock) -> Self {
        let lifetimes = [300, 1_000, 2_000, 5_000].map(Duration::from_millis);
        let pool = |id: u64| {
            Pool::new(id, 30 + id, lifetimes[usize::try_from(id).unwrap() % lifetimes.len()])
        };
        let list: Vec<Pool> = (1..=40).map(pool).collect();
        Self { pools: list.iter().map(|pool| (pool.id, pool.clone())).collect(), list, clock }
    }

    fn batch(&self, dice: &mut Dice, name: &str) -> Sent {
        let ask = |row| Ask {
            pool: self.list[usize::try_from(dice.below(self.list.len() as u64)).unwrap()].id,
            id: format!("{name}-{row}"),
        };
        let asks: Vec<Ask> = (0..ROWS_A_BATCH).map(ask).collect();
        let key = (dice.below(3) == 0).then(|| format!("key-{name}"));
        let body = batch::body(&asks, &self.list);
        Sent { asks, body, key, invoked: self.clock.now() }
    }

    /// Returns an event for each number that a batch handed out.
    fn events(&self, sent: &Sent, rows: &[Row]) -> Vec<Event> {
        let returned = self.clock.now();
        let event = |(ask, row): (&Ask, &Row)| Event {
            number: row.number,
            pool: ask.pool,
            id: ask.id.clone(),
            invoked_ns: sent.invoked.ns,
            returned_ns: returned.ns,
            invoked_ms: sent.invoked.wall_ms,
            returned_ms: returned.wall_ms,
        };
        sent.asks.iter().zip(rows).filter(|(_, row)| !row.overflow).map(event).collect()
    }

    /// Sends batches until the server is gone.
    fn load(&self, address: &str, name: &str, mut dice: Dice, stop: &AtomicBool) -> Seen {
        let mut seen = Seen::default();
        let Ok(mut client) = Client::connect(address) else { return seen };
        for number in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let mut sent = self.batch(&mut dice, &format!("{name}-{number}"));
            sent.invoked = self.clock.now();
            let Ok(answer) = post(&mut client, &sent) else {
                seen.lost = sent.key.is_some().then_some(sent);
                break;
            };
            let rows = batch::rows(&answer);
            seen.wrong.extend(history::rows(&sent.asks, &rows, &self.pools));
            let events = self.events(&sent, &rows);
            seen.rows += rows.len() as u64;
            seen.last = events.len();
            seen.events.extend(events);
            if sent.key.is_some() {
                seen.answered.push((sent, answer.body));
            }
            // Waits because numbers become free one by one. Faster requests would only get overflow
            // numbers.
            thread::sleep(Duration::from_millis(1));
        }
        seen
    }
}

fn post(client: &mut Client, sent: &Sent) -> std::io::Result<support::client::HttpAnswer> {
    let key = sent.key.as_deref().map(|key| ("idempotency-key", key));
    client.post(BULK, key.as_slice(), &sent.body)
}

/// A run of many rounds.
#[derive(Debug)]
struct Run {
    world: Arc<World>,
    dice: Dice,
    events: Vec<Event>,
    rows: u64,
    looked_up: usize,
    lost: usize,
    again: usize,
    wrong: Vec<String>,
}

impl Run {
    fn dice(&mut self) -> Dice {
        Dice(self.dice.below(u64::MAX) | 1)
    }

    /// Sends batches to a newly started server, checks the previous round's results, and kills the
    /// server.
    fn round(&mut self, server: Server, round: u64, before: &[Seen]) -> Vec<Seen> {
        let stop = Arc::new(AtomicBool::new(false));
        let began = Instant::now();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (world, stop, dice) = (Arc::clone(&self.world), Arc::clone(&stop), self.dice());
                let address = server.address().to_owned();
                let name = format!("r{round}-c{client}");
                thread::spawn(move || world.load(&address, &name, dice, &stop))
            })
            .collect();
        self.check_round(&server, before);
        let moment = Duration::from_millis(100 + self.dice.below(200));
        thread::sleep(moment.saturating_sub(began.elapsed()));
        server.kill();
        // A connected client stops at its next connection error. The flag stops clients that have
        // never connected.
        stop.store(true, Ordering::Relaxed);
        let seen: Vec<Seen> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        for one in &seen {
            self.rows += one.rows;
            self.events.extend_from_slice(&one.events);
            self.wrong.extend_from_slice(&one.wrong);
        }
        seen
    }

    fn check_round(&mut self, server: &Server, before: &[Seen]) {
        let mut client = server.client();
        for seen in before {
            if let Some(lost) = &seen.lost {
                self.send_lost(&mut client, lost);
            }
        }
        for seen in before {
            let last = seen.answered.len().saturating_sub(2);
            let more = self.dice.pick(&seen.answered[..last], SENT_AGAIN / CLIENTS);
            for (sent, body) in seen.answered[last..].iter().chain(more) {
                self.send_again(&mut client, sent, body);
            }
        }
        for seen in before {
            let (rest, last) = seen.events.split_at(seen.events.len() - seen.last);
            let sample = self.dice.pick(rest, SAMPLE / CLIENTS);
            self.look_up(&mut client, last.iter().chain(sample));
        }
    }

    /// Repeats a batch whose answer was lost in the crash. The batch must now be answered, and
    /// another repetition must get the same answer.
    fn send_lost(&mut self, client: &mut Client, lost: &Sent) {
        let answer = post(client, lost).unwrap();
        let rows = batch::rows(&answer);
        self.wrong.extend(history::rows(&lost.asks, &rows, &self.world.pools));
        let events = self.world.events(lost, &rows);
        for event in &events {
            // The number was allocated either before the crash or just now. A look-up at one of
            // these two times must find the allocation.
            let now = batch::attribution(client, event.number, event.returned_ms + 2).unwrap();
            let then = batch::attribution(client, event.number, event.invoked_ms + 50).unwrap();
            let fault = history::attributed(event, &now, &self.world.pools)
                .and(history::attributed(event, &then, &self.world.pools));
            self.wrong.extend(fault.map(|fault| format!("sent again after a crash: {fault}")));
        }
        self.events.extend(events);
        self.lost += 1;
        self.send_again(client, lost, &answer.body);
    }

    fn send_again(&mut self, client: &mut Client, sent: &Sent, body: &str) {
        self.again += 1;
        let again = post(client, sent).unwrap();
        if !self.is_same(sent, body, &again.body) {
            let key = sent.key.as_deref().unwrap_or_default();
            self.wrong.push(format!(
                "the batch {key} was answered\n{body}\nand when sent again\n{}",
                again.body
            ));
        }
    }

    /// Returns whether a repeated batch got the same answer as before. If a number's lockout is
    /// over, the row may overflow instead, because another visitor may have the number.
    fn is_same(&self, sent: &Sent, before: &str, again: &str) -> bool {
        let rows = |body: &str| serde_json::from_str::<Value>(body).unwrap()["responses"].clone();
        let (before, again) = (rows(before), rows(again));
        let pairs = before.as_array().unwrap().iter().zip(again.as_array().unwrap());
        let waited = self.world.clock.now().ns - sent.invoked.ns;
        before.as_array().unwrap().len() == again.as_array().unwrap().len()
            && pairs.zip(&sent.asks).all(|((before, again), ask)| {
                let is_over = u128::from(waited) > self.world.pools[&ask.pool].lifetime.as_nanos();
                before == again || (is_over && again["overflow"] == true)
            })
    }

    fn look_up<'a>(&mut self, client: &mut Client, events: impl Iterator<Item = &'a Event>) {
        for event in events {
            // The two milliseconds allow for rounding in the test's and the server's clocks. No
            // lifetime is that short.
            let found = batch::attribution(client, event.number, event.returned_ms + 2).unwrap();
            self.wrong.extend(history::attributed(event, &found, &self.world.pools));
            self.looked_up += 1;
        }
    }

    #[track_caller]
    fn assert_good(&self, when: &str) {
        let mut wrong = self.wrong.clone();
        wrong.extend(history::doubles(&self.events, &self.world.pools));
        assert!(
            wrong.is_empty(),
            "{when}: {} faults\n{}",
            wrong.len(),
            wrong[..wrong.len().min(20)].join("\n")
        );
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn answered_allocations_survive_kill_9_and_no_number_goes_out_twice() {
    let rounds = setting("RINGWELL_CRASH_ROUNDS", 20);
    let clock = Clock(Instant::now());
    let seed = setting("RINGWELL_CRASH_SEED", clock.now().wall_ms) | 1;
    println!("RINGWELL_CRASH_SEED={seed}");
    let world = Arc::new(World::new(clock));
    let site = Site::new(world.list.clone(), SETTINGS);
    let mut run = Run {
        world,
        dice: Dice(seed),
        events: Vec::new(),
        rows: 0,
        looked_up: 0,
        lost: 0,
        again: 0,
        wrong: Vec::new(),
    };
    let mut before = Vec::new();
    for round in 0..rounds {
        if run.dice.below(4) == 0 {
            // Kills a server while it reads its journal or writes the first snapshot.
            let moment = Duration::from_millis(run.dice.below(STARTING_MS));
            Server::start_and_kill(site.serve(&[]), moment);
        }
        before = run.round(Server::start(site.serve(&[])), round, &before);
        run.assert_good(&format!("round {round}"));
    }
    let server = Server::start(site.serve(&[]));
    run.check_round(&server, &before);
    let all = std::mem::take(&mut run.events);
    let sample: Vec<Event> = run.dice.pick(&all, SAMPLE_AT_END).into_iter().cloned().collect();
    run.look_up(&mut server.client(), sample.iter());
    run.events.extend(all);
    run.assert_good("the end");
    server.stop();
    let data = site.data().to_str().unwrap();
    let verified = ringwell(&["journal", "verify", data]).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
    println!(
        "{rounds} crashes: {} rows, {} numbers handed out, {} looked up, {} batches sent again, {} lost ones, {:?}",
        run.rows,
        run.events.len(),
        run.looked_up,
        run.again,
        run.lost,
        clock.0.elapsed()
    );
    let least = usize::try_from(rounds).unwrap() * 100;
    assert!(run.events.len() > least, "too little happened to prove anything");
}
