//! The limits of configuration fields. The minimum and maximum of each field are defined only here.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::values::{ValueError, parse_duration};

/// The values that a field may have, and a description of them for messages.
#[derive(Clone, Debug)]
pub(super) struct Bounds<T> {
    range: RangeInclusive<T>,
    text: &'static str,
}

impl<T: PartialOrd> Bounds<T> {
    const fn new(range: RangeInclusive<T>, text: &'static str) -> Self {
        Self { range, text }
    }

    pub(super) fn check(&self, value: T) -> Result<T, ValueError> {
        if self.range.contains(&value) { Ok(value) } else { Err(self.fault()) }
    }

    pub(super) fn fault(&self) -> ValueError {
        ValueError::new(format!("must be {}", self.text))
    }

    /// A hint with the minimum value as an example.
    pub(super) fn example(&self) -> String {
        let least = self.text.split(" to ").next().unwrap_or_default();
        format!("write it with its unit in quotes, e.g. \"{least}\"")
    }
}

impl Bounds<Duration> {
    /// Like [`Self::example`], but for a number `written` without a unit: the hint adds the
    /// smallest unit that makes the value valid.
    pub(super) fn example_of(&self, written: &str) -> String {
        let digits = !written.is_empty() && written.bytes().all(|byte| byte.is_ascii_digit());
        let with_units = ["ms", "s", "m", "h"].map(|unit| format!("{written}{unit}"));
        let fits = |text: &&String| {
            parse_duration(text).is_ok_and(|it| !it.is_zero() && self.range.contains(&it))
        };
        match with_units.iter().find(fits).filter(|_| digits) {
            Some(text) => format!("write it with its unit in quotes, e.g. \"{text}\""),
            None => self.example(),
        }
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The longest deadline that can be configured for a batch. The engine depends on this limit.
pub const DEADLINE_MAX: Duration = Duration::from_mins(1);
/// The longest body that can be configured, in bytes. The engine depends on this limit.
pub const BODY_BYTES_MAX: u64 = 64 * MIB;
/// The maximum number of rows that can be configured for a batch. The engine depends on this limit.
pub const ROWS_MAX: u64 = 10_000;

pub(super) const SHARDS: Bounds<u16> =
    Bounds::new(0..=ringwell_directory::SHARDS_MAX, "0 to 256 (0: one per core)");
/// The number of a shard in a cluster file. For a server without a cluster file, [`SHARDS`] limits
/// the count of shards.
pub(super) const SHARD: Bounds<u16> =
    Bounds::new(0..=ringwell_directory::SHARDS_MAX - 1, "0 to 255");
pub(super) const BUCKET: Bounds<u16> =
    Bounds::new(0..=ringwell_directory::BUCKETS - 1, "0 to 1023");
pub(super) const MAP_VERSION: Bounds<u64> =
    Bounds::new(1..=i64::MAX.cast_unsigned(), "a whole number above 0");
pub(super) const DEADLINE: Bounds<Duration> =
    Bounds::new(Duration::from_millis(1)..=DEADLINE_MAX, "1ms to 60s");
pub(super) const CLOCK_SKEW_MAX: Bounds<Duration> =
    Bounds::new(Duration::ZERO..=Duration::from_hours(24), "0s to 24h");
pub(super) const DRAIN_PAUSE: Bounds<Duration> =
    Bounds::new(Duration::ZERO..=Duration::from_mins(1), "0s to 60s");
pub(super) const REQUESTS_PER_SECOND: Bounds<u32> = Bounds::new(1..=100_000, "1 to 100000");
pub(super) const TRACES_ONE_IN: Bounds<u32> = Bounds::new(1..=1_000_000, "1 to 1000000");
pub(super) const LEASES_PER_MINUTE: Bounds<u32> = Bounds::new(1..=1_000_000, "1 to 1000000");
pub(super) const APPLICATION_TIMEOUT: Bounds<Duration> =
    Bounds::new(Duration::from_millis(1)..=Duration::from_mins(1), "1ms to 60s");
pub(super) const REFUSAL_AGE: Bounds<Duration> =
    Bounds::new(Duration::from_millis(100)..=Duration::from_hours(1), "100ms to 1h");
pub(super) const POOL_AGE: Bounds<Duration> =
    Bounds::new(Duration::from_secs(1)..=Duration::from_hours(30 * 24), "1s to 30 days");
pub(super) const POOL_NUMBERS: Bounds<u64> =
    Bounds::new(1..=ringwell_directory::RingPool::NUMBERS_MAX, "1 to 100000");
pub(super) const NETWORK_NUMBERS: Bounds<u64> = Bounds::new(1..=8_000_000_000, "1 to 8000000000");
pub(super) const GROWTH_EVERY: Bounds<Duration> =
    Bounds::new(Duration::from_secs(1)..=Duration::from_hours(24), "1s to 24h");
pub(super) const GROWTH_PERCENT: Bounds<u32> = Bounds::new(1..=1000, "1 to 1000");
pub(super) const GROWTH_STEP: Bounds<u32> = Bounds::new(1..=100_000, "1 to 100000");
pub(super) const OVERFLOW_PERCENT: Bounds<u32> = Bounds::new(1..=99, "1 to 99");
pub(super) const PRICE_CENTS: Bounds<u64> = Bounds::new(0..=1_000_000, "0 to 1000000");
pub(super) const BODY_BYTES: Bounds<u64> = Bounds::new(KIB..=BODY_BYTES_MAX, "1KiB to 64MiB");
pub(super) const BODIES_BYTES: Bounds<u64> = Bounds::new(64 * KIB..=1024 * GIB, "64KiB to 1TiB");
pub(super) const ROWS: Bounds<u64> = Bounds::new(1..=ROWS_MAX, "1 to 10000");
/// A journal record can hold at most 16 KiB of a row's parameters.
pub(super) const SUFFIX_BYTES: Bounds<u64> = Bounds::new(64..=16 * KIB, "64 bytes to 16KiB");
pub(super) const REQUEST_ID_BYTES: Bounds<u64> = Bounds::new(8..=4 * KIB, "8 bytes to 4KiB");
pub(super) const HEADER_BYTES: Bounds<u64> = Bounds::new(KIB..=MIB, "1KiB to 1MiB");
pub(super) const HEADERS: Bounds<u64> = Bounds::new(8..=1000, "8 to 1000");
pub(super) const URI_BYTES: Bounds<u64> = Bounds::new(256..=64 * KIB, "256 bytes to 64KiB");
pub(super) const CONNECTIONS: Bounds<u64> = Bounds::new(1..=1_000_000, "1 to 1000000");
pub(super) const TIMEOUT: Bounds<Duration> =
    Bounds::new(Duration::from_millis(10)..=Duration::from_hours(1), "10ms to 1h");
pub(super) const IDEMPOTENCY_ROWS: Bounds<u64> = Bounds::new(0..=100_000_000, "0 to 100000000");
pub(super) const SEGMENT_BYTES: Bounds<u64> = Bounds::new(MIB..=GIB, "1MiB to 1GiB");
pub(super) const SPARE_SEGMENTS: Bounds<u32> = Bounds::new(0..=16, "0 to 16");
pub(super) const SNAPSHOT_EVERY_BYTES: Bounds<u64> = Bounds::new(MIB..=1024 * GIB, "1MiB to 1TiB");
pub(super) const HISTORY_AGE: Bounds<Duration> =
    Bounds::new(Duration::from_hours(1)..=Duration::from_hours(3650 * 24), "1h to 3650 days");
pub(super) const HISTORY_BYTES: Bounds<u64> =
    Bounds::new(4 * MIB..=1024 * 1024 * GIB, "4MiB to 1PiB");
pub(super) const REPLICAS: Bounds<u32> = Bounds::new(1..=5, "1 to 5");
pub(super) const CALL_DEADLINE: Bounds<Duration> =
    Bounds::new(Duration::from_millis(10)..=Duration::from_secs(10), "10ms to 10s");
pub(super) const RING_TIMEOUT: Bounds<Duration> =
    Bounds::new(Duration::from_secs(5)..=Duration::from_mins(10), "5s to 10m");
pub(super) const CALL_RETENTION: Bounds<Duration> =
    Bounds::new(Duration::from_hours(24)..=Duration::from_hours(3650 * 24), "1 day to 3650 days");
pub(super) const PORT: Bounds<u16> = Bounds::new(1..=u16::MAX, "1 to 65535");

/// The default count of shards on a machine with `cores` processor cores.
pub(super) fn one_a_core(cores: u16) -> u16 {
    cores.clamp(1, ringwell_directory::SHARDS_MAX)
}
