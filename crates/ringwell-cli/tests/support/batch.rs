//! A client's requests: batches and their rows, look-ups, and readiness.

use std::io;

use serde_json::{Value, json};

use super::client::{Client, HttpAnswer};
use super::site::{Pool, TOKEN};

/// The URL path to which batches are sent.
pub(crate) const BULK: &str = "/api/2013-07-01/bulk.json";

/// One row of a client's batch. Its parameters contain `id`, which is also its `request_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) pool: u64,
    pub(crate) id: String,
}

/// One row of the answer to a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: String,
    /// The number that the row got. 0 if the row is an error.
    pub(crate) number: u64,
    pub(crate) overflow: bool,
}

/// Returns the body of a batch. `pools` must contain the pool of each row.
pub(crate) fn body(asks: &[Ask], pools: &[Pool]) -> String {
    let row = |ask: &Ask| {
        let pool = pools.iter().find(|pool| pool.id == ask.pool).unwrap();
        json!({"api_suffix": pool.suffix(&format!("id={}", ask.id)), "request_id": ask.id})
    };
    json!({"requests": asks.iter().map(row).collect::<Vec<_>>()}).to_string()
}

/// Parses the rows of an answer.
pub(crate) fn rows(answer: &HttpAnswer) -> Vec<Row> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let json = answer.json();
    let rows = json["responses"].as_array().unwrap_or_else(|| panic!("{}", answer.body));
    let number = |row: &Value| row["promo_number"].as_str().and_then(|text| text.parse().ok());
    rows.iter()
        .map(|row| Row {
            id: row["request_id"].as_str().unwrap_or_default().to_owned(),
            number: number(row).unwrap_or(0),
            overflow: row["overflow"] == true,
        })
        .collect()
}

/// Requests one number from `pool`. Returns the only row of the answer.
pub(crate) fn one(client: &mut Client, pool: &Pool, id: &str) -> Row {
    let asks = [Ask { pool: pool.id, id: id.to_owned() }];
    let answer = client.post(BULK, &[], &body(&asks, std::slice::from_ref(pool))).unwrap();
    rows(&answer).remove(0)
}

fn authorization() -> String {
    format!("Bearer {TOKEN}")
}

/// Looks up the holder of `number` at the time `at_ms`, in milliseconds since 1970.
pub(crate) fn attribution(client: &mut Client, number: u64, at_ms: u64) -> io::Result<Value> {
    let path = format!("/v1/attributions?number={number}&at={at_ms}");
    let answer = client.get(&path, &[("authorization", &authorization())])?;
    Ok(answer.json())
}

/// Looks up the current or last holder of `number`.
pub(crate) fn holder(client: &mut Client, number: u64) -> io::Result<Value> {
    let path = format!("/v1/attributions?number={number}");
    let answer = client.get(&path, &[("authorization", &authorization())])?;
    Ok(answer.json())
}

/// Ends the lockout of `number`. Returns whether the number was locked out.
pub(crate) fn release(client: &mut Client, number: u64) -> bool {
    let body = json!({"number": number.to_string()}).to_string();
    let headers = [("authorization", authorization())];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let answer = client.post("/v1/releases", &headers, &body).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["released"] == true
}
