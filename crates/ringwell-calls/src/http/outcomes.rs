//! `POST /v1/calls/{id}/outcomes`: results of calls.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::problem::Problem;
use crate::log::OutcomeRow;
use crate::provider::parse_moment;
use crate::service::{Service, now};

/// The longest type, and the longest name of a result.
const NAME_BYTES_MAX: usize = 200;
/// The longest value, with its point.
const VALUE_BYTES_MAX: usize = 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    #[serde(rename = "type")]
    kind: String,
    value: Option<String>,
    currency: Option<String>,
    at: Option<String>,
    external_id: String,
}

/// Keeps a result; the same `external_id` again changes nothing.
pub(super) async fn post(
    State(service): State<Service>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let new: New = serde_json::from_slice(&body)
        .map_err(|error| Problem::bad_request(format!("body: {error}")))?;
    let row = checked(new)?;
    let shown = row.to_json();
    let log = service.log().clone();
    let record = async move { log.record_outcome(&id, &row, now()).await };
    let recorded = service.run(record).await??;
    service.wake();
    match recorded {
        None => Err(Problem::not_found("there is no such call")),
        Some(true) => Ok((StatusCode::CREATED, Json(shown))),
        Some(false) => Ok((StatusCode::OK, Json(json!({ "known": true })))),
    }
}

fn checked(new: New) -> Result<OutcomeRow, Problem> {
    let is_name = |text: &str| (1..=NAME_BYTES_MAX).contains(&text.len());
    if !is_name(&new.kind) || !is_name(&new.external_id) {
        return Err(Problem::bad_request("type, external_id: 1 to 200 bytes"));
    }
    if !new.value.as_deref().is_none_or(is_decimal) {
        return Err(Problem::bad_request("value: a decimal number as text, as in \"129.50\""));
    }
    let is_code = |text: &str| text.len() == 3 && text.bytes().all(|b| b.is_ascii_uppercase());
    if !new.currency.as_deref().is_none_or(is_code) {
        return Err(Problem::bad_request("currency: three capital letters, as in EUR"));
    }
    let read = |text: String| {
        parse_moment(&text)
            .ok_or_else(|| Problem::bad_request("at: write e.g. 2026-11-21T06:30:00Z"))
    };
    let at = new.at.map(read).transpose()?.unwrap_or_else(now);
    let New { kind, value, currency, external_id, .. } = new;
    Ok(OutcomeRow { kind, value, currency, at, external_id })
}

fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.len() <= VALUE_BYTES_MAX && are_digits(whole) && are_digits(rest)
}

#[cfg(test)]
#[test]
fn values_are_decimal_numbers() {
    for good in ["0", "129.50", "-3", "12345678901234.12"] {
        assert!(is_decimal(good), "{good}");
    }
    for bad in ["", ".", "1.", ".5", "1,5", "1e3", "=1", "123456789012345678901"] {
        assert!(!is_decimal(bad), "{bad}");
    }
}
