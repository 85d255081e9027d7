//! Runs one shard's engine alone: without HTTP, JSON or disk. The loop supplies the time.
//!
//! `engine BATCHES [POOLS [NUMBERS]]` allocates BATCHES batches of 40 rows and prints the time per
//! row. `cargo xtask bench instructions` runs this program under callgrind to count its
//! instructions, because other load on the machine does not change that count. It also measures the
//! time per row. This program is an example, and not part of `ringwell-bench`, because
//! `ringwell-bench` shares no code with the server that it measures.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use ringwell_core::{Millis, NumberRange, PoolId, PoolSpec, PromoNumber};
use ringwell_engine::{Ask, Engine, Outcome, Refusal, Restore};
use ringwell_journal::Tip;

const ROWS: usize = 40;
/// A journal group contains about this many batches if 64 connections send them.
const BATCHES_A_GROUP: usize = 16;
/// Shard time advances by a millisecond after this many batches, so the simulated rate is 80,000
/// batches a second.
const BATCHES_A_MILLISECOND: usize = 80;
const LIFETIME: Millis = Millis(10);
const START: Millis = Millis(1_700_000_000_000);
/// The distance between the pools of consecutive rows, as in `src/batch.rs`. It keeps these pools
/// far apart in memory.
const STRIDE: usize = 7_919;
const PARAMS: &[u8] = b"m1=autos&m2=ford&gclid=000042&utm_medium=cpc";

fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let mut next = |default| numbers.next().unwrap_or(Ok(default));
    let (batches, pools, numbers) = (next(40_000)?, next(200)?, next(500)?);
    let mut engine = engine(pools, numbers)?;
    let begun = Instant::now();
    let overflow = allocate(&mut engine, usize::try_from(batches)?, usize::try_from(pools)?)?;
    let nanos = begun.elapsed().as_secs_f64() * 1e9;
    ensure!(overflow == 0, "{overflow} rows found their pool exhausted");
    println!("{:.1}", nanos / f64::from(batches) / f64::from(u32::try_from(ROWS)?));
    Ok(())
}

fn engine(pools: u32, numbers: u32) -> anyhow::Result<Engine> {
    let mut specs = Vec::new();
    for index in 0..pools {
        let first = 12_000_000_000 + u64::from(index) * u64::from(numbers);
        let first = PromoNumber::from_e164(first).context("too many numbers")?;
        let range = NumberRange::new(first, numbers).context("too many numbers")?;
        let id = PoolId(u64::from(index) + 1);
        specs.push(PoolSpec { id, lockout: LIFETIME, numbers: vec![range] });
    }
    Ok(Restore::new(specs, 0).finish(Tip::FIRST.raise_epoch(), START, false).0)
}

/// Allocates numbers for `batches` batches, and seals a journal group after every few batches, as a
/// shard does. Returns the count of rows that got no number.
fn allocate(engine: &mut Engine, batches: usize, pools: usize) -> anyhow::Result<usize> {
    let mut spare = Vec::new();
    let mut exhausted = 0;
    for batch in 0..batches {
        let elapsed = u64::try_from(batch / BATCHES_A_MILLISECOND)?;
        let now = engine.at(Millis(START.0 + elapsed));
        let mut wanted = [0; ROWS];
        for (row, pool) in wanted.iter_mut().enumerate() {
            *pool = u32::try_from((batch * ROWS + row) * STRIDE % pools)?;
        }
        for pool in wanted {
            let id = PoolId(u64::from(pool) + 1);
            let ask = Ask { pool, id, params: [PARAMS, b""], visitor: None, retry: None };
            let mut outcome = Outcome::Refused(Refusal::Late);
            engine.allocate(now, &ask, &mut outcome);
            if !matches!(black_box(outcome), Outcome::Allocated { .. }) {
                exhausted += 1;
            }
        }
        if batch % BATCHES_A_GROUP == 0 {
            let sealed = engine.seal(std::mem::take(&mut spare));
            spare = black_box(sealed).map_or_else(Vec::new, |group| group.body);
            spare.clear();
        }
    }
    Ok(exhausted)
}
