//! Measures the time to parse batches and to render their answers, in nanoseconds per row. For
//! comparison, also measures a JSON library that parses the same batches.
//!
//! ```text
//! cargo run --release -p ringwell-wire --example rows [-- BATCHES A ROUND]
//! ```
//! Each batch contains 40 rows and is 6.3 KB long; the batches use 200 pools. Runs several rounds
//! with the same batches, and prints the best and the median time. The best time shows the cost of
//! the code; the difference between it and the median is due to the machine.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it measures time")]
#![expect(clippy::cast_precision_loss, reason = "counts of rows are far below 2^52")]

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use ringwell_core::PromoNumber;
use ringwell_wire::{Batch, BulkResponse, Limits, ResponseRow};
use serde::Deserialize;

const ROWS: usize = 40;
const POOLS: usize = 200;
const ROUNDS: usize = 15;
/// The count of batches in a round, unless the first argument gives another count.
const BATCHES: usize = 4_000;

/// A row as the JSON library reads it: its strings are copied, but not parsed further.
#[derive(Deserialize)]
struct TypedRow {
    api_suffix: String,
    request_id: Option<String>,
}

#[derive(Deserialize)]
struct TypedBody {
    requests: Vec<TypedRow>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bodies: Vec<Bytes> = (0..POOLS / ROWS).map(body).collect();
    let limits = Limits::default();
    let number = PromoNumber::parse("8885550142")?;
    let batches = std::env::args().nth(1).map_or(Ok(BATCHES), |count| count.parse())?;
    let measure = |name: &str, once: &mut dyn FnMut(&Bytes)| measure(name, batches, &bodies, once);
    let mut batch = Batch::default();
    println!("{ROWS} rows over {POOLS} pools, {} bytes per batch", bodies[0].len());

    measure("parse", &mut |body| {
        let parsed = batch.parse(body.clone(), &limits);
        assert!(parsed.is_ok() && batch.rows().iter().all(|row| row.ask.is_ok()));
    });
    measure("parse, serde_json typed", &mut |body| {
        let parsed: Result<TypedBody, _> = serde_json::from_slice(body);
        let used = |row: &TypedRow| row.api_suffix.len() > row.request_id.iter().len();
        assert!(parsed.is_ok_and(|body| body.requests.iter().all(used)));
    });
    batch.parse(bodies[0].clone(), &limits)?;
    let mut out = Vec::new();
    measure("render", &mut |_| {
        out.clear();
        let mut response = BulkResponse::new(&mut out, batch.text());
        for row in batch.rows() {
            let answer =
                ResponseRow::Number { number: black_box(number), overflow: false, tracking: None };
            response.row(row.request_id, &answer);
        }
        response.finish();
        black_box(&out);
    });
    println!("{} bytes an answer", out.len());
    Ok(())
}

/// Runs `once` on each body in turn, and prints the cost per row.
fn measure(name: &str, batches: usize, bodies: &[Bytes], once: &mut dyn FnMut(&Bytes)) {
    let mut round = || {
        let started = Instant::now();
        for turn in 0..batches {
            once(black_box(&bodies[turn % bodies.len()]));
        }
        started.elapsed().as_secs_f64() * 1e9 / (batches * ROWS) as f64
    };
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<26} {:6.1} ns/row best, {:6.1} middle", rounds[0], rounds[ROUNDS / 2]);
}

/// Returns a batch with [`ROWS`] rows, one for each pool from `turn * ROWS + 1` onward.
fn body(turn: usize) -> Bytes {
    let row = |row: usize| {
        let pool = turn * ROWS + row + 1;
        format!(
            "{{\"api_suffix\":\"{pool}/allocate_number.json?ring_pool_key=K{pool:031}\
             &utm_medium=cpc&utm_source=paper&m{row:02}=ford\",\"request_id\":\"{pool:06X}\"}}"
        )
    };
    let rows: Vec<String> = (0..ROWS).map(row).collect();
    format!("{{\"requests\":[{}]}}", rows.join(",")).into()
}
