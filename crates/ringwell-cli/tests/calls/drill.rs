//! The kill drill: 200 call events arrive per second, the server is killed repeatedly, and the
//! webhook receiver sometimes fails, hangs or drops connections. No call may be lost or duplicated,
//! and each event must be delivered.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Switchboard;
use super::phone::{Phone, Provider};
use super::support::client::Client;
use super::support::server::Server;
use super::webhooks::{Delivery, is_signed, read_request, verified_by_libraries};

/// The number of senders. Each makes eight calls per second, with three events per call.
const SENDERS: usize = 9;
const PAUSE: Duration = Duration::from_millis(125);
const KILLS: usize = 3;
const ROUND: Duration = Duration::from_secs(4);
/// The time limit for all deliveries, including those whose first attempt hangs. The server
/// abandons an attempt after 15 s and makes the second one 5 s later. If the server is killed
/// during an attempt, the lease on the delivery expires only after 20 s.
const PATIENCE: Duration = Duration::from_mins(4);

/// The received events, and the count of attempts for each.
#[derive(Default)]
struct Taken {
    deliveries: Vec<Delivery>,
    tries: BTreeMap<String, u32>,
}

/// Starts a receiver that fails, in several ways, at the first delivery attempt of some events.
fn receiver() -> (u16, Arc<Mutex<Taken>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken: Arc<Mutex<Taken>> = Arc::default();
    let all = Arc::clone(&taken);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let all = Arc::clone(&all);
            thread::spawn(move || serve(stream, &all));
        }
    });
    (port, taken)
}

fn serve(stream: TcpStream, all: &Mutex<Taken>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    // If the server was killed in the middle of the request, the event was not delivered.
    let (headers, body) = read_request(&mut reader)?;
    let name = headers.get("webhook-id")?.clone();
    let is_first = {
        let mut all = all.lock().unwrap();
        let tries = all.tries.entry(name.clone()).or_default();
        *tries += 1;
        *tries == 1
    };
    let kind = name.bytes().map(usize::from).sum::<usize>() % 100;
    match kind {
        // The receiver hangs.
        0 if is_first => {
            thread::sleep(Duration::from_secs(30));
            return None;
        }
        // The receiver closes the connection without an answer.
        1..=5 if is_first => return None,
        6..=10 if is_first => {
            let answer = b"HTTP/1.1 500 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            return reader.get_mut().write_all(answer).ok();
        }
        _ => {}
    }
    let delivery = Delivery { headers, body, status: Some(200), at: Instant::now() };
    all.lock().unwrap().deliveries.push(delivery);
    let answer = b"HTTP/1.1 200 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    reader.get_mut().write_all(answer).ok()
}

/// Makes calls until `is_over` is set. Returns the calls whose beginning the server confirmed, and
/// the calls whose end it confirmed.
fn calls(phone: &Phone, number: u64, names: &str, is_over: &AtomicBool) -> [Vec<String>; 2] {
    let (mut begun, mut ended) = (Vec::new(), Vec::new());
    let twilio = Provider::twilio(phone);
    for call in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("CA{names}{call:04}");
        let ring = format!("CallSid={name}&From=%2B14155551234&To=%2B1{number}");
        let is_taken = |target: &str, body: &str| {
            let mut client = Client::connect(phone.address()).ok()?;
            let answer = twilio.try_post_on(&mut client, target, body)?;
            (answer.status == 200).then_some(())
        };
        if is_taken("/t/main/answer", &ring).is_some() {
            begun.push(name.clone());
            let done = format!("CallSid={name}&DialCallStatus=completed&DialCallDuration=5");
            if is_taken("/t/main/dial?leg=0&last=1", &done).is_some() {
                ended.push(name);
            }
        }
        thread::sleep(PAUSE);
    }
    [begun, ended]
}

/// Returns all events in the log, in order.
fn events(board: &Switchboard) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let part = board.get(&format!("/v1/events?after={after}&limit=1000")).json();
        let part = part["events"].as_array().unwrap().clone();
        let Some(last) = part.last() else { return all };
        after = last["cursor"].as_u64().unwrap();
        all.extend(part);
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask telephony runs it"]
fn no_call_is_lost_or_doubled_and_each_event_arrives() {
    let (port, taken) = receiver();
    let mut board = Switchboard::new(&format!(
        "[calls.webhooks]\nallow_networks = [\"127.0.0.0/8\"]\nallow_http = true\nallow_ports = [{port}]\n"
    ));
    let made =
        board.manage("/v1/webhooks", &json!({ "url": format!("http://127.0.0.1:{port}/in") }));
    let secret = made.json()["secret"].as_str().unwrap().to_owned();
    let number = board.visitor("17");
    let [mut begun, mut ended] = [BTreeSet::new(), BTreeSet::new()];
    for round in 0..KILLS {
        let Switchboard { site, server, phone } = board;
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (phone, is_over) = (&phone, &is_over);
            let senders: Vec<_> = (0..SENDERS)
                .map(|it| {
                    scope.spawn(move || calls(phone, number, &format!("{round}{it}"), is_over))
                })
                .collect();
            thread::sleep(ROUND);
            server.kill();
            is_over.store(true, Ordering::Relaxed);
            for sender in senders {
                let [rings, ends] = sender.join().unwrap();
                begun.extend(rings);
                ended.extend(ends);
            }
        });
        let server = Server::start(site.serve(&[]));
        board = Switchboard { phone: Phone::at(&server), site, server };
    }
    println!("{} calls, {} ended, {KILLS} kills", begun.len(), ended.len());
    assert!(ended.len() > 200, "{}", ended.len());

    // After the visitors of the last calls have been looked up, each call has exactly one event of
    // each type.
    let until = Instant::now() + PATIENCE;
    let mut all = events(&board);
    let is_done = |all: &[Value]| {
        let names: BTreeSet<_> = all.iter().map(|it| it["id"].as_str().unwrap()).collect();
        let completed = all.iter().filter(|it| it["type"] == "call.completed").count();
        let got: BTreeSet<_> = {
            let taken = taken.lock().unwrap();
            taken.deliveries.iter().map(|it| it.headers["webhook-id"].clone()).collect()
        };
        completed >= ended.len() && names.iter().all(|name| got.contains(*name))
    };
    while !is_done(&all) {
        assert!(Instant::now() < until, "{} events, some of them not delivered", all.len());
        thread::sleep(Duration::from_millis(500));
        all = events(&board);
    }
    let mut found: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for event in &all {
        let call = event["data"]["provider_call_id"].as_str().unwrap();
        *found.entry((call, event["type"].as_str().unwrap())).or_default() += 1;
    }
    let count = |call: &str, kind: &str| found.get(&(call, kind)).copied().unwrap_or_default();
    for call in &begun {
        assert_eq!(count(call, "call.started"), 1, "{call}");
    }
    for call in &ended {
        assert_eq!(count(call, "call.completed"), 1, "{call}");
    }
    assert!(found.values().all(|count| *count == 1), "{found:?}");
    let taken = taken.lock().unwrap();
    assert!(taken.deliveries.iter().all(|it| is_signed(it, &secret)));
    verified_by_libraries(&taken.deliveries, &secret);
    println!("{} events, {} deliveries taken", all.len(), taken.deliveries.len());
}
