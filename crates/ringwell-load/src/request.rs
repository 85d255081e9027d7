//! The bytes of batches. If a run writes a history, each batch is unique. Otherwise, prepared
//! batches are sent repeatedly.
//!
//! The pools of consecutive rows are a fixed distance apart in the list of pools. A batch of 40
//! rows over 200 pools touches 40 pools, and five batches touch all pools. If consecutive rows used
//! consecutive pools, the server's caches would work unrealistically well. Each row has about 42
//! bytes of parameters, like those of a search advertisement.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::pools::Pool;

/// The distance between the pools of consecutive rows. It is prime, so that every pool is used
/// before any pool repeats, unless the count of pools is a multiple of it.
const STRIDE: u64 = 7_919;

/// The minimum and the maximum number of different batches that are prepared and sent repeatedly.
const READY_MIN: usize = 256;
const READY_MAX: usize = 4_096;

/// The way pools are chosen for a batch's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    /// All pools, in turn.
    Pools,
    /// Only the first pool of the list.
    One,
}

/// The parts that all batches have in common.
#[derive(Clone, Debug)]
pub(crate) struct Batches {
    pools: Vec<Pool>,
    rows: usize,
    /// The first lines of a request's head, which are the same for all batches.
    head: String,
}

/// The data that a history contains about one row of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) pool: u64,
    pub(crate) rid: String,
    pub(crate) par: String,
}

impl Batches {
    /// Prepares to make batches of `rows` rows for `host`. `deadline_ms` is the client's deadline,
    /// if it has one.
    pub(crate) fn new(
        pools: &[Pool],
        spread: Spread,
        rows: usize,
        host: &str,
        deadline_ms: Option<u64>,
    ) -> Self {
        let pools = match spread {
            Spread::Pools => pools.to_vec(),
            Spread::One => pools[..1].to_vec(),
        };
        let deadline =
            deadline_ms.map_or(String::new(), |ms| format!("ringwell-deadline-ms: {ms}\r\n"));
        let head = format!(
            "POST /api/2013-07-01/bulk.json HTTP/1.1\r\nhost: {host}\r\n\
             content-type: application/json\r\n{deadline}"
        );
        Self { pools, rows, head }
    }

    /// Prepares complete requests: enough to use every pool, but at least [`READY_MIN`] and at most
    /// [`READY_MAX`].
    pub(crate) fn ready(&self) -> Vec<Box<[u8]>> {
        let count = self.pools.len().div_ceil(self.rows).clamp(READY_MIN, READY_MAX);
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        (0..count).map(|index| self.ready_one(index).into_bytes().into()).collect()
    }

    fn ready_one(&self, index: u64) -> String {
        let mut body = Body::new();
        for row in self.rows_of(index) {
            let gclid = row % 1_000_000;
            let par = format!("m1=autos&m2=ford&gclid={gclid:06}&utm_medium=cpc");
            body.push(self.pool(row), &par, &format!("{:06X}", row % 0x0100_0000));
        }
        self.request(&body.end(), None)
    }

    /// Makes a unique request. Its rows' request ids and parameters contain `id`.
    pub(crate) fn own(&self, index: u64, id: &str, key: Option<&str>) -> (String, Vec<Asked>) {
        let mut body = Body::new();
        let mut asked = Vec::with_capacity(self.rows);
        for (place, row) in self.rows_of(index).enumerate() {
            let pool = self.pool(row);
            let rid = format!("{id}-{place}");
            let par = format!("rid={rid}&m1=autos&utm_medium=cpc");
            body.push(pool, &par, &rid);
            asked.push(Asked { pool: pool.id, rid, par });
        }
        (self.request(&body.end(), key), asked)
    }

    fn rows_of(&self, index: u64) -> impl Iterator<Item = u64> {
        let rows = u64::try_from(self.rows).unwrap_or(u64::MAX);
        let first = index.wrapping_mul(rows);
        (0..rows).map(move |row| first.wrapping_add(row))
    }

    fn pool(&self, row: u64) -> &Pool {
        let count = u64::try_from(self.pools.len()).unwrap_or(u64::MAX);
        let place = row.wrapping_mul(STRIDE) % count;
        // `place` is less than the length, which is a `usize`.
        &self.pools[usize::try_from(place).unwrap_or(0)]
    }

    fn request(&self, body: &str, key: Option<&str>) -> String {
        let key = key.map_or(String::new(), |key| format!("idempotency-key: {key}\r\n"));
        format!("{}{key}content-length: {}\r\n\r\n{body}", self.head, body.len())
    }
}

/// A body that is being written. Keys, parameters and ids need no escapes: `pools.rs` checks the
/// keys, and the generator itself makes the parameters and ids.
struct Body(String);

impl Body {
    fn new() -> Self {
        Self(r#"{"requests":["#.to_owned())
    }

    fn push(&mut self, pool: &Pool, par: &str, rid: &str) {
        let comma = if self.0.ends_with('[') { "" } else { "," };
        let Pool { id, ring_pool_key: key, .. } = pool;
        // Writing to a string cannot fail.
        let _ = write!(
            self.0,
            r#"{comma}{{"api_suffix":"{id}/allocate_number.json?ring_pool_key={key}&{par}","request_id":"{rid}"}}"#
        );
    }

    fn end(mut self) -> String {
        self.0.push_str("]}");
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn pools(count: u64) -> Vec<Pool> {
        let pool = |id| Pool {
            id,
            ring_pool_key: format!("{id:032}"),
            overflow_number: None,
            lifetime_ms: 1,
            first_number: crate::Number::try_from("2000000000".to_owned()).unwrap(),
            numbers: 1,
        };
        (1..=count).map(pool).collect()
    }

    fn split(request: &str) -> (&str, Value) {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        (head, serde_json::from_str(body).unwrap())
    }

    fn met(requests: &[Box<[u8]>]) -> BTreeSet<String> {
        let mut met = BTreeSet::new();
        for request in requests {
            let (_, body) = split(std::str::from_utf8(request).unwrap());
            for row in body["requests"].as_array().unwrap() {
                let suffix = row["api_suffix"].as_str().unwrap();
                met.insert(suffix.split_once("/allocate_number.json?").unwrap().0.to_owned());
            }
        }
        met
    }

    #[test]
    fn together_the_ready_batches_use_every_pool_and_one_batch_as_many_as_it_has_rows() {
        let ready = Batches::new(&pools(20_000), Spread::Pools, 40, "h:1", None).ready();
        assert_eq!(ready.len(), 500);
        assert_eq!(met(&ready).len(), 20_000);
        assert_eq!(met(&ready[..1]).len(), 40);
        let one = Batches::new(&pools(200), Spread::One, 40, "h:1", None).ready();
        assert_eq!(met(&one).into_iter().collect::<Vec<_>>(), ["1"]);
    }

    #[test]
    fn forty_rows_come_to_about_six_thousand_bytes() {
        let ready = Batches::new(&pools(200), Spread::Pools, 40, "h:1", None).ready();
        assert!((6_000..6_800).contains(&ready[0].len()), "{}", ready[0].len());
    }

    #[test]
    fn rows_of_an_own_batch_name_themselves_in_id_and_parameters() {
        let batches = Batches::new(&pools(200), Spread::Pools, 2, "h:1", Some(70));
        let (request, asked) = batches.own(3, "r-0-3", Some("k1"));
        let (head, body) = split(&request);
        assert!(head.contains("\r\nringwell-deadline-ms: 70\r\n"));
        assert!(head.contains("\r\nidempotency-key: k1\r\n"));
        for (row, asked) in body["requests"].as_array().unwrap().iter().zip(&asked) {
            assert_eq!(row["request_id"], asked.rid);
            let suffix = row["api_suffix"].as_str().unwrap();
            assert!(suffix.starts_with(&format!("{}/", asked.pool)), "{suffix}");
            assert!(suffix.ends_with(&format!("&{}", asked.par)), "{suffix}");
        }
        assert_eq!(asked[1].rid, "r-0-3-1");
        assert!(asked[1].par.starts_with("rid=r-0-3-1&"));
    }
}
