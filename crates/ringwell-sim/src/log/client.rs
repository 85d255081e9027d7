//! The clients of a run: their requests, and the answers that they get.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringwell_driver::batch::{self, Terms};
use ringwell_driver::stats::Kind;
use ringwell_driver::{Platform, Shard};

use crate::clients::read_answer;
use crate::cluster::KEY;
use crate::machine::Sim;
use crate::message::Mark;
use crate::message::RowAnswer;
use crate::pace::MS;

/// The time for which a client waits for the answer to a batch.
pub(super) const DEADLINE_US: u64 = 100 * MS;

/// An answer that a process has sent.
#[derive(Debug)]
pub(super) struct ClientAnswer {
    pub(super) process: u64,
    pub(super) batch: u64,
    pub(super) rows: Vec<RowAnswer>,
    pub(super) deadline_us: u64,
    pub(super) is_failed: bool,
}

/// The answers that the simulation has not processed yet.
pub(super) type Answers = Rc<RefCell<Vec<ClientAnswer>>>;

/// Builds a batch with one row for each of `pools`.
fn body(batch: u64, pools: &[u64]) -> Bytes {
    let row = |(at, pool): (usize, &u64)| {
        let mark = Mark {
            batch,
            row: u16::try_from(at).unwrap_or(u16::MAX),
            is_repeatable: false,
            visitor: None,
        };
        let suffix = format!("{pool}/allocate_number.json?ring_pool_key={KEY}&{}", mark.text());
        format!(r#"{{"api_suffix":"{suffix}","request_id":"{at}"}}"#)
    };
    let rows: Vec<String> = pools.iter().enumerate().map(row).collect();
    format!(r#"{{"requests":[{}]}}"#, rows.join(",")).into()
}

/// Sends a batch to a shard of a process, and records the answer at the time when the process sends
/// it.
pub(super) async fn ask(
    shard: Rc<Shard<Sim>>,
    process: u64,
    batch: u64,
    pools: Vec<u64>,
    answers: Answers,
) {
    let platform = shard.platform.clone();
    let deadline = platform.moment() + Duration::from_micros(DEADLINE_US);
    let terms = Terms { retry: None, deadline, traced: None };
    let body = body(batch, &pools);
    let read = |batch: &mut ringwell_wire::Batch| batch.parse(body, &shard.node.wire_limits);
    let render = |answered: &batch::Answered<'_>| {
        if platform.life.is_dead.get() {
            return;
        }
        answers.borrow_mut().push(ClientAnswer {
            process,
            batch,
            rows: (0..pools.len()).map(|row| read_answer(answered, row)).collect(),
            deadline_us: crate::machine::micros(deadline),
            is_failed: answered.is_failed(),
        });
    };
    let _ = batch::answer(&shard, Kind::Bulk, &terms, read, render).await;
}

/// The time at which each batch was sent, by batch number.
pub(super) type Sent = BTreeMap<u64, u64>;
