//! Runs the cases in `fixtures/api/` that need only the codec, and not HTTP, a journal or a clock.
//!
//! A minimal model of the pools, which hands out their numbers in order, stands in for the rest of
//! the program. The program's own test sends all of these cases over a socket.

#![expect(clippy::disallowed_methods, reason = "reads the files of the cases")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test reports failures by panicking"
)]

mod cases;

use std::collections::BTreeMap;

use bytes::Bytes;
use ringwell_core::{PoolId, PromoNumber};
use ringwell_wire::legacy::Format;
use ringwell_wire::{
    Ask, Batch, BulkResponse, Limits, RequestError, ResponseRow, Route, RowError, Tracking, route,
};

/// Whether the case needs more than the codec, such as HTTP limits, idempotency keys or environment
/// variables.
fn is_above_the_codec(case: &cases::Case) -> bool {
    let mut headers = case.exchanges.iter().flat_map(|(request, _)| &request.headers);
    !case.environment.is_empty()
        || case.name.starts_with("http-")
        || case.settings.as_ref().is_some_and(|settings| settings.contains("[limits]"))
        || headers.any(|(name, _)| name == "idempotency-key")
}

/// The length of the model's lockouts, which is also the lifetime of every pool in the cases.
const LIFETIME_MS: u64 = 30 * 60 * 1000;

struct Pool {
    keys: Vec<String>,
    numbers: Vec<PromoNumber>,
    next: usize,
    overflow: Option<PromoNumber>,
    tracking: Option<(String, String)>,
    visitors: BTreeMap<Vec<u8>, PromoNumber>,
}

struct Model {
    pools: BTreeMap<u64, Pool>,
    limits: Limits,
    bulk_only: bool,
}

struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

#[test]
fn every_case_is_answered_as_its_files_say() {
    let mut faults = Vec::new();
    for case in cases::all() {
        if is_above_the_codec(&case) {
            continue;
        }
        let mut model = Model::new(case.settings.as_deref().unwrap_or_default());
        for (turn, (request, wanted)) in case.exchanges.iter().enumerate() {
            let reply = model.answer(request).unwrap_or_else(|error| refusal(&error));
            let name = format!("{} {}", case.name, turn + 1);
            let timing = [("processing-time", "0"), ("server-timing", "total;dur=0.1")];
            let header = |name: &str| {
                let own = reply.headers.iter().find(|(own, _)| *own == name);
                let timed = timing.iter().find(|(own, _)| *own == name);
                own.map(|(_, value)| value.clone()).or(timed.map(|(_, value)| (*value).to_owned()))
            };
            faults.extend(cases::compare(&name, wanted, reply.status, header, &reply.body));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn refusal(error: &RequestError) -> Reply {
    let mut headers = vec![("content-type", Format::Json.content_type().to_owned())];
    if let RequestError::Method { allow } = error {
        headers.push(("allow", (*allow).to_owned()));
    }
    Reply { status: error.status(), headers, body: error.body() }
}

impl Model {
    fn new(settings: &str) -> Self {
        let table: toml::Table = cases::pools().parse().unwrap();
        let pools = table["ring_pool"].as_array().unwrap().iter().map(pool).collect();
        let strict_params = settings.contains("strict_params = true");
        let limits = Limits { strict_params, ..Limits::default() };
        Self { pools, limits, bulk_only: settings.contains("bulk_only = true") }
    }

    fn answer(&mut self, request: &cases::Request) -> Result<Reply, RequestError> {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let allow = |method, allow| {
            if request.method == method { Ok(()) } else { Err(RequestError::Method { allow }) }
        };
        match route(path)? {
            Route::Bulk => {
                allow("POST", "POST, OPTIONS")?;
                self.bulk(Bytes::copy_from_slice(&request.body))
            }
            Route::Allocate { pool, format } => {
                allow("GET", "GET, HEAD, OPTIONS")?;
                if self.bulk_only {
                    Err(RequestError::OnlyBulk)
                } else {
                    Ok(self.single(pool, query, format))
                }
            }
        }
    }

    fn bulk(&mut self, body: Bytes) -> Result<Reply, RequestError> {
        let mut batch = Batch::default();
        batch.parse(body, &self.limits)?;
        let mut out = Vec::new();
        let mut response = BulkResponse::new(&mut out, batch.text());
        for row in batch.rows() {
            let taken = row.ask.and_then(|ask| self.take(&ask, batch.text()));
            response.row(row.request_id, &self.shown(taken));
        }
        response.finish();
        let headers = vec![("content-type", "application/json".to_owned())];
        Ok(Reply { status: 200, headers, body: out })
    }

    fn single(&mut self, pool: &str, query: &str, format: Format) -> Reply {
        let mut batch = Batch::default();
        batch.parse_single(pool, query, self.limits.strict_params);
        let taken = batch.rows()[0].ask.and_then(|ask| self.take(&ask, batch.text()));
        match self.shown(taken) {
            ResponseRow::Number { number, tracking, .. } => Reply {
                status: 200,
                headers: vec![("content-type", format.content_type().to_owned())],
                body: format.number(number, tracking),
            },
            ResponseRow::Error(error) => Reply {
                status: error.status(),
                headers: vec![
                    ("content-type", format.error_content_type().to_owned()),
                    ("retry-after", "1800".to_owned()),
                ],
                body: format.error(&error, batch.text()),
            },
        }
    }

    /// Takes a number. Returns the number, whether it is the overflow number, and its pool.
    fn take(&mut self, ask: &Ask, text: &[u8]) -> Result<(PromoNumber, bool, PoolId), RowError> {
        let key = ask.key.of(text);
        let opens = |pool: &&mut Pool| pool.keys.iter().any(|own| own.as_bytes() == key);
        let pool = self
            .pools
            .get_mut(&ask.pool.0)
            .filter(opens)
            .ok_or(RowError::InvalidKey { key: ask.key, pool: ask.pool_text })?;
        let visitor = ask.visitor.map(|visitor| visitor.of(text).to_vec());
        if let Some(kept) = visitor.as_ref().and_then(|visitor| pool.visitors.get(visitor)) {
            return Ok((*kept, false, ask.pool));
        }
        let free = pool.numbers.get(pool.next).copied();
        pool.next += 1;
        if let (Some(visitor), Some(number)) = (visitor, free) {
            pool.visitors.insert(visitor, number);
        }
        let exhausted = RowError::PoolExhausted { pool: ask.pool, wait_ms: LIFETIME_MS };
        let number = free.or(pool.overflow).ok_or(exhausted)?;
        Ok((number, free.is_none(), ask.pool))
    }

    fn shown(&self, taken: Result<(PromoNumber, bool, PoolId), RowError>) -> ResponseRow<'_> {
        match taken {
            Err(error) => ResponseRow::Error(error),
            Ok((number, overflow, pool)) => {
                let tracking = self.pools[&pool.0].tracking.as_ref();
                let tracking = tracking.map(|(base, destination)| Tracking { base, destination });
                ResponseRow::Number { number, overflow, tracking }
            }
        }
    }
}

fn pool(table: &toml::Value) -> (u64, Pool) {
    let text = |name: &str| table.get(name).map(|value| value.as_str().unwrap().to_owned());
    let number = |text: &str| PromoNumber::parse(text).unwrap();
    let ranges = table["numbers"].as_array().unwrap().iter().map(|range| range.as_str().unwrap());
    let numbers =
        ranges.flat_map(|range| ringwell_core::NumberRange::parse(range).unwrap().unwrap().iter());
    let pool = Pool {
        keys: ["ring_pool_key", "next_ring_pool_key"].into_iter().filter_map(text).collect(),
        numbers: numbers.collect(),
        next: 0,
        overflow: text("overflow_number").map(|text| number(&text)),
        tracking: text("tracking_url").zip(text("destination_url")),
        visitors: BTreeMap::new(),
    };
    (u64::try_from(table["id"].as_integer().unwrap()).unwrap(), pool)
}
