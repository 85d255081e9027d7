//! Bodies of bulk requests, built before anything is sent.
//!
//! Consecutive rows are a fixed distance apart in the list of pools. A batch of 40 rows over 200
//! pools touches 40 pools, and five batches touch all pools. If rows used the pools in memory
//! order, the server would benefit from its CPU caches more than in production. Each row has about
//! 42 bytes of parameters, like those of a search advertisement. `bulk.lua` builds the same bodies:
//! keep the two in sync.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use bytes::Bytes;

use crate::target::Target;

/// The distance between the pools of consecutive rows. It is prime, so that every pool is used
/// before any pool repeats, unless the pool count is a multiple of it.
const STRIDE: usize = 7_919;

/// The minimum number of different bodies that a sender uses.
const REQUESTS_MIN: usize = 256;

/// Flags that all senders of batches have: the destination, the pools, and the rows per batch.
#[derive(clap::Args)]
pub(crate) struct Batches {
    /// Server: HOST:PORT or unix:PATH.
    #[arg(long)]
    pub(crate) target: Target,
    /// The file `demo-pools.csv` in the server's data directory.
    #[arg(long)]
    pools: PathBuf,
    /// Rows in a batch; with several sizes (40,1,5), batches alternate between them.
    #[arg(long, default_value = "40", value_delimiter = ',', value_parser = at_least_one)]
    rows: Vec<usize>,
}

impl Batches {
    /// The requests to send, in a loop.
    ///
    /// # Errors
    /// If the pools cannot be read.
    pub(crate) fn requests(&self) -> anyhow::Result<Vec<Bytes>> {
        Ok(requests(&read_pools(&self.pools)?, &self.rows, REQUESTS_MIN))
    }
}

fn at_least_one(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|count| *count > 0).ok_or("must be a whole number above 0")
}

/// The data that a sender needs about a ring pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    /// The pool's number.
    pub(crate) id: u64,
    /// The key, which permits allocations.
    pub(crate) key: String,
}

/// Reads `demo-pools.csv`, which `ringwell demo` writes into its data directory.
///
/// # Errors
/// If the file is missing or empty, or a line has no id and key.
pub(crate) fn read_pools(path: &Path) -> anyhow::Result<Vec<Pool>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the pools from {}", path.display()))?;
    let pools = parse_pools(&text)?;
    ensure!(!pools.is_empty(), "{} lists no pool", path.display());
    Ok(pools)
}

fn parse_pools(csv: &str) -> anyhow::Result<Vec<Pool>> {
    let lines = csv.lines().skip(1).filter(|line| !line.is_empty());
    let pool = |line: &str| {
        let mut fields = line.split(',');
        let id = fields.next()?.parse().ok()?;
        Some(Pool { id, key: fields.next().filter(|key| !key.is_empty())?.to_owned() })
    };
    lines
        .map(|line| pool(line).with_context(|| format!("line {line:?} does not contain a pool")))
        .collect()
}

/// Complete HTTP requests: enough to touch every pool, but at least `least` and at most about
/// 4,096. Each batch size occurs equally often.
#[must_use]
pub(crate) fn requests(pools: &[Pool], sizes: &[usize], least: usize) -> Vec<Bytes> {
    let of_a_turn: usize = sizes.iter().sum();
    let count = (pools.len() * sizes.len()).div_ceil(of_a_turn).clamp(least, 4_096);
    let count = count.next_multiple_of(sizes.len());
    let mut first = 0;
    let sizes = sizes.iter().cycle().take(count);
    let mut next = |rows: &usize| {
        let made = request(&body(pools, *rows, first));
        first += rows;
        made
    };
    sizes.map(&mut next).collect()
}

fn request(body: &str) -> Bytes {
    Bytes::from(format!(
        "POST /api/2013-07-01/bulk.json HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
}

fn body(pools: &[Pool], rows: usize, first: usize) -> String {
    let mut text = String::from(r#"{"requests":["#);
    for row in first..first + rows {
        let pool = &pools[row * STRIDE % pools.len()];
        let separator = if row == first { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            r#"{separator}{{"api_suffix":"{}/allocate_number.json?ring_pool_key={}&m1=autos&m2=ford&gclid={:06}&utm_medium=cpc","request_id":"{:06X}"}}"#,
            pool.id,
            pool.key,
            row % 1_000_000,
            row % 0x0100_0000,
        );
    }
    text.push_str("]}");
    text
}

#[cfg(test)]
mod tests {
    use super::{Pool, body, parse_pools, requests};

    fn pools(count: u64) -> Vec<Pool> {
        (1..=count).map(|id| Pool { id, key: format!("KEY{id:029}") }).collect()
    }

    #[test]
    fn a_batch_is_json_with_one_entry_a_row_over_all_pools() {
        let json: serde_json::Value = serde_json::from_str(&body(&pools(40), 40, 2)).unwrap();
        let rows = json["requests"].as_array().unwrap();
        assert_eq!(rows.len(), 40);
        let pool = |row: &serde_json::Value| {
            let suffix = row["api_suffix"].as_str().unwrap();
            suffix.split_once("/allocate_number.json?ring_pool_key=").unwrap().0.to_owned()
        };
        let met: std::collections::BTreeSet<_> = rows.iter().map(pool).collect();
        assert_eq!(met.len(), 40);
    }

    #[test]
    fn forty_rows_come_to_about_six_thousand_bytes() {
        assert!((5_900..6_700).contains(&body(&pools(200), 40, 0).len()));
    }

    #[test]
    fn together_the_requests_touch_every_pool() {
        assert_eq!(requests(&pools(1_000), &[40], 1).len(), 25);
        assert_eq!(requests(&pools(2), &[40], 16).len(), 16);
    }

    #[test]
    fn batches_of_several_sizes_take_turns() {
        let rows = |request: &bytes::Bytes| {
            String::from_utf8_lossy(request).matches("allocate_number").count()
        };
        let sizes = requests(&pools(200), &[1, 5], 5);
        assert_eq!(sizes.iter().map(rows).collect::<Vec<_>>()[..5], [1, 5, 1, 5, 1]);
    }

    #[test]
    fn a_line_without_a_key_is_refused() {
        assert!(parse_pools("id,ring_pool_key\n7,abc,rest\n").is_ok());
        assert!(parse_pools("id,ring_pool_key\n7\n").is_err());
    }
}
