//! The ring pools of the demo: the same on every machine.
//!
//! Owns their ids, keys and numbers, and the file that lists them. Independent of servers.
//! Invariant: no demo number is a real telephone number, because the area codes 200 and 999 are
//! unassigned, and no exchange starts with 0 or 1.

use std::io::{self, Write};

use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{KeyError, PoolFault, PoolFields, RingPool, RingPoolKey};
use sha2::{Digest, Sha256};

use crate::values::format_seconds;

/// The name of the file that lists the demo's pools, in the demo's data directory.
pub const DEMO_LIST: &str = "demo-pools.csv";
/// The demo's default count of pools.
pub const DEMO_POOLS: u32 = 200;
/// The default count of numbers in each pool.
pub const DEMO_NUMBERS: u32 = 500;
/// The default lifetime: 30 minutes, as in the examples of the published API. Visitors seldom stay
/// on a page for longer than that, and most callers call soon after they open it.
pub const DEMO_LIFETIME: Millis = Millis(30 * 60 * 1000);

/// The first number in rotation: 200-000-0000.
const ROTATION_FIRST: u64 = 12_000_000_000;
/// The first overflow number: 999-000-0000.
const OVERFLOW_FIRST: u64 = 19_990_000_000;
/// The maximum number of pools; more would exceed the range of overflow numbers.
const POOLS_MAX: u32 = 1_000_000;

/// The reason why the requested demo pools are impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DemoError {
    /// The count of pools is zero or too large.
    #[error("a demo has 1 to 1,000,000 pools, not {0}")]
    Pools(u32),
    /// The pools need more numbers than ten digits allow.
    #[error("{pools} pools of {numbers} numbers need more telephone numbers than exist")]
    Numbers {
        /// The requested count of pools.
        pools: u32,
        /// The requested count of numbers in each pool.
        numbers: u32,
    },
    /// A pool breaks a rule for ring pools, such as the maximum count of numbers.
    #[error("{}: {fault}", .fault.field())]
    Pool {
        /// The broken rule.
        #[from]
        fault: PoolFault,
    },
    /// A key is invalid. This never occurs, because the demo's keys are valid; returning an error
    /// avoids an assertion.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Returns the demo's pools, with the ids 1 to `pools`. Each has `numbers` numbers, a key and an
/// overflow number of its own.
///
/// # Errors
/// [`DemoError`] if these pools are impossible.
pub fn demo_pools(pools: u32, numbers: u32, lifetime: Millis) -> Result<Vec<RingPool>, DemoError> {
    if !(1..=POOLS_MAX).contains(&pools) {
        return Err(DemoError::Pools(pools));
    }
    if numbers == 0 {
        return Err(PoolFault::NumberCount(0).into());
    }
    let too_many = DemoError::Numbers { pools, numbers };
    (0..pools)
        .map(|place| {
            let first = ROTATION_FIRST + u64::from(place) * u64::from(numbers);
            let range = PromoNumber::from_e164(first)
                .and_then(|first| NumberRange::new(first, numbers))
                .filter(|range| range.last().to_e164() < OVERFLOW_FIRST)
                .ok_or_else(|| too_many.clone())?;
            let id = PoolId(u64::from(place) + 1);
            let fields = PoolFields {
                id,
                name: Some(format!("Demo {id}")),
                key: key(id)?,
                next_key: None,
                lifetime,
                numbers: vec![range],
                overflow: PromoNumber::from_e164(OVERFLOW_FIRST + u64::from(place)),
                tracking: None,
            };
            RingPool::new(fields).map_err(|faults| match faults.first() {
                Some(fault) => DemoError::from(*fault),
                None => too_many.clone(),
            })
        })
        .collect()
}

/// Writes `pools` with their keys to `out`, in the format of `demo-pools.csv`.
///
/// # Errors
/// If writing to `out` fails.
pub fn write_demo_csv(pools: &[RingPool], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "id,ring_pool_key,overflow_number,lifetime_seconds,first_number,numbers")?;
    for pool in pools {
        let first = pool.numbers().first().map_or(String::new(), |range| range.first().to_string());
        let overflow = pool.overflow().map_or(String::new(), |number| number.to_string());
        let seconds = format_seconds(pool.lifetime());
        let (id, key, count) = (pool.id(), pool.key().reveal(), pool.number_count());
        writeln!(out, "{id},{key},{overflow},{seconds},{first},{count}")?;
    }
    Ok(())
}

/// 32 hexadecimal digits that look like a key and are the same everywhere, because a demo has no
/// secrets.
fn key(id: PoolId) -> Result<RingPoolKey, KeyError> {
    let digest = Sha256::digest(format!("ringwell demo pool {id}"));
    let half = digest.first_chunk().copied().unwrap_or_default();
    RingPoolKey::parse(&format!("{:032x}", u128::from_be_bytes(half)))
}

#[cfg(test)]
mod tests;
