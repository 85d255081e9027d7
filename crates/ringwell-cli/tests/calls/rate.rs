//! Measures how long a provider waits for the document that answers a call. The provider sends 500
//! calls per second while a client sends batches.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::Switchboard;
use super::phone::Provider;
use super::support::batch::{self, Ask, BULK};
use super::support::client::Client;
use super::support::site::Pool;

const RATE: u32 = 500;
const BATCHES: u32 = 1_000;
const SENDERS: u32 = 50;
/// The account's hook.
const ANSWER: &str = "/t/main/answer";
/// The duration of a time slot. Within a slot, either all calls are sent to the same server or no
/// calls are sent. The first [`SETTLING`] of each slot is not measured, because calls from the
/// previous slot may still be in progress.
const SLOT: Duration = Duration::from_millis(250);
const SETTLING: Duration = Duration::from_millis(50);

/// The server that receives a slot's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    Nowhere,
    /// The calls are sent to the server that also gets the batches.
    Here,
    /// The calls are sent to another server process on the same machine.
    Elsewhere,
}

/// All six orders of the three variants, so that each variant follows each of the others equally
/// often.
const ORDERS: [[Calls; 3]; 6] = {
    use Calls::{Elsewhere, Here, Nowhere};
    [
        [Nowhere, Here, Elsewhere],
        [Here, Nowhere, Elsewhere],
        [Nowhere, Elsewhere, Here],
        [Elsewhere, Here, Nowhere],
        [Here, Elsewhere, Nowhere],
        [Elsewhere, Nowhere, Here],
    ]
};

/// The latencies of the requests in one slot. Each latency is measured from the time when the
/// request was due, so that it includes the delay if the sender was late.
#[derive(Clone, Default)]
struct Times {
    calls: Vec<Duration>,
    batches: Vec<Duration>,
}

/// Two servers. `here` gets batches and calls, and `elsewhere` gets only the calls of
/// [`Calls::Elsewhere`].
struct Servers<'a> {
    here: &'a Switchboard,
    elsewhere: &'a Switchboard,
}

/// A schedule of requests. Each request is sent when it is due, whether or not earlier requests
/// were answered.
struct Plan {
    began: Instant,
    slots: Vec<Calls>,
    times: Mutex<Vec<Times>>,
}

impl Plan {
    fn new(slots: Vec<Calls>) -> Self {
        let times = Mutex::new(vec![Times::default(); slots.len()]);
        Self { began: Instant::now() + Duration::from_millis(200), slots, times }
    }

    /// Lists `rate` requests per second, each with its index, its due time and its slot.
    fn due(&self, rate: u32) -> impl Iterator<Item = (u32, Instant, usize)> {
        let all = SLOT * u32::try_from(self.slots.len()).unwrap();
        let count = u32::try_from(all.as_millis()).unwrap() * rate / 1000;
        (0..count).map(move |nth| {
            let since = Duration::from_secs(1) * nth / rate;
            let slot = since.as_nanos() / SLOT.as_nanos();
            (nth, self.began + since, usize::try_from(slot).unwrap())
        })
    }

    /// Records the latency of a request that was due at `due` and has just been answered.
    fn note(&self, slot: usize, due: Instant, of: fn(&mut Times) -> &mut Vec<Duration>) {
        let since = due - (self.began + SLOT * u32::try_from(slot).unwrap());
        if since >= SETTLING {
            of(&mut self.times.lock().unwrap()[slot]).push(due.elapsed());
        }
    }

    fn send_batches(&self, board: &Switchboard, client: &mut Client) {
        for (batch, due, slot) in self.due(BATCHES) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let ask = Ask { pool: 16, id: batch.to_string() };
            let body = batch::body(&[ask], &board.site.pools);
            let answer = client.post(BULK, &[], &body).unwrap();
            self.note(slot, due, |times| &mut times.batches);
            assert!(!batch::rows(&answer)[0].overflow, "{}", answer.body);
        }
    }

    /// Sends the calls of one sender. The calls are divided among [`SENDERS`] senders.
    fn send_calls(&self, sender: u32, servers: &Servers<'_>, [here, elsewhere]: [u64; 2]) {
        lower_priority();
        let phones = [&servers.here.phone, &servers.elsewhere.phone].map(Provider::twilio);
        for (call, due, slot) in self.due(RATE).filter(|(call, ..)| call % SENDERS == sender) {
            let (twilio, number) = match self.slots[slot] {
                Calls::Nowhere => continue,
                Calls::Here => (&phones[0], here),
                Calls::Elsewhere => (&phones[1], elsewhere),
            };
            thread::sleep(due.saturating_duration_since(Instant::now()));
            // Each call has a different caller, like most real calls.
            let from = 2_000_000_000 + u64::from(call);
            let ring = format!("CallSid=CA{call}&From=%2B1{from}&To=%2B1{number}");
            let answer = twilio.post(ANSWER, &ring);
            self.note(slot, due, |times| &mut times.calls);
            assert!(answer.body.contains(">+18005550199</Number>"), "{}", answer.body);
        }
    }

    /// Sends all requests, and returns the latencies of each slot.
    fn run(self, servers: &Servers<'_>, sends_batches: bool) -> Vec<(Calls, Times)> {
        let numbers = [servers.here, servers.elsewhere].map(|board| board.visitor("17"));
        let mut client = servers.here.server.client();
        thread::scope(|scope| {
            let plan = &self;
            for sender in 0..SENDERS {
                scope.spawn(move || plan.send_calls(sender, servers, numbers));
            }
            if sends_batches {
                scope.spawn(|| plan.send_batches(servers.here, &mut client));
            }
        });
        self.slots.into_iter().zip(self.times.into_inner().unwrap()).collect()
    }
}

/// Lowers this thread's priority, so that it takes less processor time from the server and from the
/// client that sends batches. A real provider would run on another machine.
fn lower_priority() {
    rustix::process::setpriority_process(None, 19).unwrap();
}

/// Returns a percentile of `times`. `of` is in thousandths: 990 is the 99th percentile.
fn percentile(mut times: Vec<Duration>, of: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * of).div_ceil(1000) - 1]
}

#[test]
fn every_call_is_connected_at_500_a_second() {
    let board = Switchboard::new("");
    let servers = Servers { here: &board, elsewhere: &board };
    let times = Plan::new(vec![Calls::Here; 4]).run(&servers, false);
    let calls: usize = times.iter().map(|(_, times)| times.calls.len()).sum();
    assert_eq!(calls, 400, "a fifth of each slot does not count");
}

/// Measures the latencies of batches in three cases: without calls, with calls to the same server,
/// and with the same calls to another process. The cases alternate in slots of a quarter of a
/// second, so that other load on the machine affects all three. In the last two cases, the calls
/// take the same processor time. The difference between these cases therefore shows how calls and
/// batches affect each other inside one server. `RINGWELL_RATE_DATABASE` (`sqlite:PATH` or
/// `postgres://...`) sets the database of both call logs. Without it, each call log is in its
/// server's data directory.
#[test]
#[ignore = "measures: run alone, with --ignored --nocapture"]
fn a_document_is_out_soon_at_500_calls_a_second() {
    // A block is one of the `ORDERS`. All blocks together take four minutes.
    const BLOCKS: usize = 320;
    // Numbers become free after a minute, so the pool is large enough for any number of blocks.
    let pool = || Pool::new(16, 90_000, Duration::from_mins(1));
    let board = || match std::env::var("RINGWELL_RATE_DATABASE") {
        Ok(database) => Switchboard::with_log(pool(), &database),
        Err(_) => Switchboard::with_pool(pool(), "", "", &[]),
    };
    let (here, elsewhere) = (board(), board());
    let slots = ORDERS.iter().cycle().take(BLOCKS).flatten().copied().collect();
    let times = Plan::new(slots).run(&Servers { here: &here, elsewhere: &elsewhere }, true);
    let of = |wanted| -> Vec<&Times> {
        times.iter().filter(|(calls, _)| *calls == wanted).map(|(_, times)| times).collect()
    };
    let [alone, beside, other] = [Calls::Nowhere, Calls::Here, Calls::Elsewhere].map(of);
    for (name, slots) in
        [("alone", &alone), ("beside calls", &beside), ("beside calls to another process", &other)]
    {
        let [p50, p90, p99] = [500, 900, 990].map(|of| percentile(batches(slots), of));
        println!("batches {name}: p50 {p50:?}, p90 {p90:?}, p99 {p99:?}");
    }
    for of in [500, 900, 990] {
        let [low, mid, high] = ratio(&beside, &other, of);
        println!("p{of}: {mid:.2} of beside the other process (95 %: {low:.2} to {high:.2})");
        let [low, mid, high] = ratio(&beside, &alone, of);
        println!("p{of}: {mid:.2} of alone (95 %: {low:.2} to {high:.2})");
        // For comparison: the ratio between two halves of the slots without calls, which shows the
        // noise.
        let [one, other] = [0, 1]
            .map(|half| -> Vec<&Times> { alone.iter().skip(half).step_by(2).copied().collect() });
        let [low, mid, high] = ratio(&one, &other, of);
        println!("p{of}: {mid:.2} between halves of alone (95 %: {low:.2} to {high:.2})");
    }
    let calls: Vec<Duration> = beside.iter().flat_map(|times| times.calls.clone()).collect();
    let [p50, p99] = [500, 990].map(|of| percentile(calls.clone(), of));
    println!("documents: p50 {p50:?}, p99 {p99:?}");
}

fn batches(slots: &[&Times]) -> Vec<Duration> {
    slots.iter().flat_map(|times| times.batches.iter().copied()).collect()
}

/// Computes the ratio of a percentile of `over` to the same percentile of `under`. Returns the
/// lower end of the ratio's confidence interval, the ratio, and the upper end. The interval comes
/// from 400 random resamplings of the slots.
fn ratio(over: &Vec<&Times>, under: &Vec<&Times>, of: usize) -> [f64; 3] {
    let mut state = 1_u64;
    let mut draw = |slots: &Vec<&Times>| -> Duration {
        let drawn: Vec<&Times> = slots
            .iter()
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                slots[usize::try_from(state >> 33).unwrap() % slots.len()]
            })
            .collect();
        percentile(batches(&drawn), of)
    };
    let mut ratios: Vec<f64> =
        (0..400).map(|_| draw(over).as_secs_f64() / draw(under).as_secs_f64()).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let whole = |slots: &Vec<&Times>| percentile(batches(slots), of).as_secs_f64();
    [ratios[10], whole(over) / whole(under), ratios[389]]
}
