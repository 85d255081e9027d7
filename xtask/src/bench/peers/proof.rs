//! Proves that a server is correct before it is timed, so that no peer is fast because it is wrong.
//!
//! Sends a few batches, and judges the answers only by the times at which each batch was sent and
//! answered. The server handed out each number at some time between those two. An answer counts as
//! a fault only if it would be wrong for every time between those two.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

/// The lockout of the pools that are used only for the proof.
pub(super) const LOCKOUT: Duration = Duration::from_millis(500);
/// The tolerance for rounding, because servers count in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);
/// The time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A pool used for the proof. Its numbers are consecutive.
pub(super) struct Pool {
    pub(super) id: u32,
    pub(super) key: &'static str,
    pub(super) first: u64,
    pub(super) numbers: u64,
    pub(super) overflow: u64,
}

/// The pools used for the proof. The first is soon exhausted, the second is not.
pub(super) const POOLS: [Pool; 2] = [
    Pool {
        id: 900_001,
        key: "key-a-51",
        first: 7_000_000_000,
        numbers: 20,
        overflow: 7_100_000_000,
    },
    Pool {
        id: 900_002,
        key: "key-b-52",
        first: 7_200_000_000,
        numbers: 60,
        overflow: 7_300_000_000,
    },
];

/// The data that is known about a number's newest allocation.
#[derive(Clone, Copy)]
struct Allocation {
    batch: u32,
    sent: Instant,
    answered: Instant,
}

/// A row of a batch, and its required answer.
struct Row {
    suffix: String,
    request_id: Option<Value>,
    /// The index of the row's pool; `None` if the row must be refused.
    pool: Option<usize>,
    refused: &'static str,
}

struct Proof {
    stream: TcpStream,
    /// The newest allocation of each number.
    newest: BTreeMap<u64, Allocation>,
    batches: u32,
    overflow_rows: u32,
}

/// Sends the batches and checks the answers.
///
/// # Errors
/// A description of the first fault.
pub(super) fn prove(address: SocketAddr) -> anyhow::Result<()> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut proof = Proof { stream, newest: BTreeMap::new(), batches: 0, overflow_rows: 0 };
    // 25 rows for the pool of 20 numbers, with rows for the other pool in between.
    let first: Vec<_> = (0..40).map(|i| row(usize::from(i % 8 >= 5), i)).collect();
    proof.batch(&first)?;
    ensure!(proof.overflow_rows > 0, "25 rows of a pool of 20 numbers, and no overflow");
    let mut second: Vec<_> = (0..34).map(|i| row(usize::from(i % 17 > 0), i)).collect();
    second.extend(unusual_rows());
    proof.batch(&second)?;
    std::thread::sleep(LOCKOUT + ROUNDING);
    let before = proof.overflow_rows;
    let third: Vec<_> = (0..40).map(|i| row(usize::from(i % 2 > 0), i)).collect();
    proof.batch(&third)?;
    ensure!(proof.overflow_rows == before, "overflow although all lockouts had ended");
    Ok(())
}

fn row(pool: usize, i: u32) -> Row {
    let Pool { id, key, .. } = POOLS[pool];
    Row {
        suffix: format!("{id}/allocate_number.json?ring_pool_key={key}&m1=autos&m2=a%20ford"),
        request_id: Some(json!(format!("{:X}", i * 7919 + 3))),
        pool: Some(pool),
        refused: "",
    }
}

/// Rows in unusual forms that the published API allows, and rows that must be refused.
fn unusual_rows() -> Vec<Row> {
    let right = |suffix: &str, request_id| Row {
        suffix: suffix.to_owned(),
        request_id,
        pool: Some(1),
        refused: "",
    };
    let wrong = |suffix: &str, refused| Row {
        suffix: suffix.to_owned(),
        request_id: Some(json!("wrong")),
        pool: None,
        refused,
    };
    vec![
        right("900002/allocate_number.json?m1=&ring_pool_key=key-b-52", None),
        right("900002/allocate_number.json?ring_pool_key=key-%62-5%32&m1=", Some(json!(7))),
        right(
            "ring_pools/900002/allocate_number.json?ring_pool_key=key-b-52",
            Some(json!("last\"\\")),
        ),
        wrong(
            "900002/allocate_number.json?ring_pool_key=key-a-51&m1=autos",
            "API Key 'key-a-51' is not valid for resource '900002'",
        ),
        wrong(
            "900003/allocate_number.json?ring_pool_key=key-b-52&m1=autos",
            "API Key 'key-b-52' is not valid for resource '900003'",
        ),
    ]
}

impl Proof {
    fn batch(&mut self, rows: &[Row]) -> anyhow::Result<()> {
        self.batches += 1;
        let sent = Instant::now();
        let answer = self.post(rows)?;
        let now = Allocation { batch: self.batches, sent, answered: Instant::now() };
        let answers = answer["responses"].as_array().context("no array \"responses\"")?;
        ensure!(
            answers.len() == rows.len(),
            "{} rows in the answer to {} rows",
            answers.len(),
            rows.len()
        );
        let mut given: [Vec<u64>; POOLS.len()] = Default::default();
        let mut overflowed = [false; POOLS.len()];
        for (at, (row, answer)) in rows.iter().zip(answers).enumerate() {
            let what = || format!("batch {}, row {at}: {answer}", self.batches);
            let echoed = answer.get("request_id");
            ensure!(echoed == row.request_id.as_ref(), "{}: wrong order or request_id", what());
            let Some(pool) = row.pool else {
                let class = answer["error_class"] == "InvalidKey";
                ensure!(class && answer["message"] == row.refused, "{}: not refused", what());
                continue;
            };
            if let Some(number) = number(&POOLS[pool], answer).with_context(what)? {
                given[pool].push(number);
            } else {
                overflowed[pool] = true;
                self.overflow_rows += 1;
            }
        }
        for (pool, (given, overflowed)) in POOLS.iter().zip(given.into_iter().zip(overflowed)) {
            self.judge(pool, &given, overflowed, now)?;
        }
        Ok(())
    }

    /// Checks the numbers that a batch received from one pool.
    fn judge(
        &mut self,
        pool: &Pool,
        given: &[u64],
        overflowed: bool,
        now: Allocation,
    ) -> anyhow::Result<()> {
        let last_batch = |number: &u64| self.newest.get(number).map_or(0, |it| it.batch);
        let kept = (pool.first..pool.first + pool.numbers).filter(|it| !given.contains(it));
        let kept: Vec<_> = kept.collect();
        let newest_given = given.iter().map(last_batch).max().unwrap_or(0);
        let oldest_kept = kept.iter().map(last_batch).min().unwrap_or(u32::MAX);
        ensure!(
            newest_given <= oldest_kept,
            "pool {}: not the number that has been free longest",
            pool.id
        );
        for number in kept.iter().filter(|_| overflowed) {
            let free = self.newest.get(number).is_none_or(|it| now.sent - it.answered > LOCKOUT);
            ensure!(!free, "pool {}: overflow although {number} was free", pool.id);
        }
        for &number in given {
            if let Some(last) = self.newest.insert(number, now) {
                let apart = now.answered - last.sent;
                ensure!(
                    apart + ROUNDING >= LOCKOUT,
                    "{number} was handed out twice within {apart:?}"
                );
            }
        }
        Ok(())
    }

    fn post(&mut self, rows: &[Row]) -> anyhow::Result<Value> {
        let requests = rows.iter().map(|row| {
            let mut request = json!({"api_suffix": row.suffix});
            if let Some(request_id) = &row.request_id {
                request["request_id"] = request_id.clone();
            }
            request
        });
        let body = json!({"requests": requests.collect::<Vec<_>>()}).to_string();
        let mut request =
            "POST /api/2013-07-01/bulk.json HTTP/1.1\r\nhost: localhost\r\n".to_owned();
        write!(
            request,
            "content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )?;
        self.stream.write_all((request + &body).as_bytes())?;
        let mut received = Vec::new();
        loop {
            if let Some(answer) = whole(&received)? {
                return Ok(answer);
            }
            let mut piece = [0; 16_384];
            let count = self.stream.read(&mut piece).context("no answer")?;
            ensure!(count > 0, "the connection ended within an answer");
            received.extend_from_slice(&piece[..count]);
        }
    }
}

/// Returns the JSON of the answer when the whole answer has arrived.
fn whole(received: &[u8]) -> anyhow::Result<Option<Value>> {
    let text = std::str::from_utf8(received).context("not UTF-8")?;
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(None) };
    let head = head.to_ascii_lowercase();
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    ensure!(head.starts_with("http/1.1 200"), "{text}");
    let length: usize = header("content-length:").context("no Content-Length")?.parse()?;
    if body.len() < length {
        return Ok(None);
    }
    let took = header("processing-time:").context("no processing-time")?;
    took.parse::<u32>().with_context(|| format!("processing-time is {took}"))?;
    Ok(Some(serde_json::from_str(body)?))
}

/// The number of an answered row; `None` if it is the overflow number.
fn number(pool: &Pool, answer: &Value) -> anyhow::Result<Option<u64>> {
    let text = answer["promo_number"].as_str().context("no promo_number")?;
    let formatted = answer["promo_number_formatted"].as_str().context("not formatted")?;
    let dashed = [text.get(..3), text.get(3..6), text.get(6..)].map(Option::unwrap_or_default);
    ensure!(formatted == dashed.join("-"), "badly formatted");
    ensure!(answer["tracking_url"] == "", "a tracking_url that the pool does not have");
    let number: u64 = text.parse()?;
    match answer.get("overflow") {
        None if (pool.first..pool.first + pool.numbers).contains(&number) => Ok(Some(number)),
        Some(Value::Bool(true)) if number == pool.overflow => Ok(None),
        _ => bail!("the number is not in pool {}", pool.id),
    }
}
