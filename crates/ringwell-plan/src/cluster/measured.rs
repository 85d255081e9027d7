//! The results of the project's benchmarks, each with the command that prints it.
//!
//! Owns only figures; formulas are elsewhere. Invariant: each value is printed by the named
//! command, or follows from the command's output by one line of arithmetic.

/// One measured figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The measured quantity.
    pub what: &'static str,
    /// The value.
    pub value: f64,
    /// The unit.
    pub unit: &'static str,
    /// The command that prints the value. It runs on any machine.
    pub command: &'static str,
    /// The conditions, and the calculation from the command's output.
    pub conditions: &'static str,
}

/// The machine on which the values in [`MEASURED`] were measured, and the date.
pub const MACHINE: &str = "2026-11-21, two virtual cores of an AMD EPYC, Linux 6.18, ext4; \
    bench/results/2026-11-21/110531.json";

/// The fixed-bytes server's CPU time per batch: the cost of HTTP alone.
pub(super) const HTTP: Measured = Measured {
    what: "CPU of a batch of 40 rows: HTTP alone",
    value: 9.04,
    unit: "us",
    command: "cargo xtask bench durability",
    conditions: "64 connections, the fixed-bytes server, median of 3",
};

/// Ringwell's CPU time for the same batch as in `HTTP`, with durability `disk`.
pub(super) const BATCH: Measured = Measured {
    what: "CPU of a batch of 40 rows: total",
    value: 18.19,
    unit: "us",
    command: "cargo xtask bench durability",
    conditions: "64 connections, durability disk, 200 pools of 500, one shard, median of 3",
};

/// The factor by which a batch's CPU time grows if the numbers do not fit into a CPU cache.
pub(super) const MANY_NUMBERS: Measured = Measured {
    what: "CPU factor, 10 million numbers in 100,000 pools",
    value: 1.43,
    unit: "times",
    command: "cargo xtask bench size",
    conditions: "CPU of a batch, divided by the CPU of a batch with 200 pools of 500; applied \
                 above 100,000 numbers",
};

/// The additional CPU time for each other shard of the same process that receives rows of a batch.
pub(super) const SHARD: Measured = Measured {
    what: "CPU of a request to another shard of the node",
    value: 3.49,
    unit: "us",
    command: "cargo xtask bench shards",
    conditions: "CPU with two shards on one core, minus CPU with one shard; durability memory, \
                 medians of 3",
};

/// The additional CPU time, on both nodes together, for each shard of another node that receives
/// rows of a batch.
pub(super) const HOP: Measured = Measured {
    what: "CPU of a request to a shard of another node",
    value: 65.0,
    unit: "us",
    command: "cargo xtask bench links",
    conditions: "CPU of both nodes (TCP), minus CPU with one shard, at 1,000 batches/s. Each batch \
                 wakes threads, so this is an upper bound. Clock resolution: 5 us",
};

/// Memory per number, including its share of the pool's memory.
pub(super) const NUMBER: Measured = Measured {
    what: "memory of a number",
    value: 45.5,
    unit: "bytes",
    command: "cargo xtask bench size",
    conditions: "444,436 KiB for 10 million numbers in 100,000 pools, durability disk",
};

/// Memory per idle keep-alive connection.
pub(super) const CONNECTION: Measured = Measured {
    what: "memory of an idle connection",
    value: 19.4,
    unit: "KiB",
    command: "cargo xtask bench idle",
    conditions: "10,000 connections, each used once with a batch of 40",
};

/// Bytes per record, without its parameters.
pub(super) const RECORD: Measured = Measured {
    what: "journal bytes per allocation, without parameters",
    value: 17.3,
    unit: "bytes",
    command: "curl SERVER/metrics",
    conditions: "ringwell_journal_bytes_total divided by ringwell_rows_total, minus 44 bytes of \
                 parameters, after `ringwell load --rate 250/s --duration 10s` on `ringwell demo \
                 --pools 40 --lifetime 1s`: a count, nearly the same on every machine",
};

/// Bytes per row in the answer, including the row's share of the response head.
pub(super) const ANSWER: Measured = Measured {
    what: "answer to a row, with a share of the HTTP head",
    value: 115.0,
    unit: "bytes",
    command: "ringwell load --json",
    conditions: "bytes_in divided by rows, batches of 40: a count, the same on every machine",
};

/// All measurements, in the order in which they are used.
pub const MEASURED: [Measured; 9] =
    [HTTP, BATCH, MANY_NUMBERS, SHARD, HOP, NUMBER, CONNECTION, RECORD, ANSWER];
