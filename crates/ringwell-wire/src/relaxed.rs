//! The careful way through a body, by the JSON library: escapes, unusual shapes, and the words
//! for what is wrong.

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::batch::{Limits, Row, parse_row};
use crate::error_class::{InputFault, RequestError, RowError};
use crate::span::Span;

/// Objects and arrays within each other, at most.
const DEPTH_MAX: usize = 8;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    requests: Option<Vec<&'a RawValue>>,
    /// The published prose calls it so once.
    #[serde(borrow)]
    request: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct RawRow<'a> {
    #[serde(borrow)]
    api_suffix: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    request_id: Option<&'a RawValue>,
}

/// Keeps a `null` that was sent apart from nothing sent.
fn even_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Reads `body` into `rows`; returns the text that they point into.
pub(crate) fn parse(
    body: &[u8],
    limits: &Limits,
    rows: &mut Vec<Row>,
) -> Result<Bytes, RequestError> {
    if depth(body) > DEPTH_MAX {
        return Err(RequestError::TooDeep);
    }
    let body = std::str::from_utf8(body).map_err(|_| RequestError::NotJson)?;
    let parsed: Result<Body<'_>, _> = serde_json::from_str(body);
    let parsed = parsed.map_err(|error| match error.classify() {
        serde_json::error::Category::Data => RequestError::NotABatch,
        _ => RequestError::NotJson,
    })?;
    // The library would also take `[[row, row], null]`: the members in a row, without their names.
    if !body.trim_start().starts_with('{') {
        return Err(RequestError::NotABatch);
    }
    let requests = parsed.requests.or(parsed.request).ok_or(RequestError::NotABatch)?;
    if requests.len() > limits.rows_max {
        return Err(RequestError::TooManyRows { limit: limits.rows_max });
    }
    let mut text = Vec::with_capacity(body.len());
    // Spans are made as the text grows, and read when it is whole.
    let parts: Vec<_> = requests.iter().map(|raw| row_text(raw.get(), &mut text)).collect();
    for part in parts {
        rows.push(match part {
            Ok((request_id, suffix)) => {
                let row = parse_row(&text, request_id, suffix, limits);
                decode_key(row, &mut text)
            }
            Err(fault) => Row { request_id: None, ask: Err(RowError::InvalidInput(fault)) },
        });
    }
    Ok(text.into())
}

type RowText = (Option<Span>, Option<Span>);

/// Copies a row's `request_id` as it is, and its `api_suffix` decoded.
fn row_text(raw: &str, text: &mut Vec<u8>) -> Result<RowText, InputFault> {
    if !raw.starts_with('{') {
        return Err(InputFault::NotAnObject);
    }
    let row: RawRow<'_> = serde_json::from_str(raw).map_err(|_| InputFault::NotAnObject)?;
    let request_id = match row.request_id {
        None => None,
        Some(id) if id.get().starts_with(['{', '[']) => return Err(InputFault::RequestId),
        Some(id) => Some(append(text, id.get().as_bytes())),
    };
    let suffix: Option<String> =
        row.api_suffix.and_then(|raw| serde_json::from_str(raw.get()).ok());
    Ok((request_id, suffix.map(|suffix| append(text, suffix.as_bytes()))))
}

/// Keys are compared as they are meant, not as they were escaped.
fn decode_key(mut row: Row, text: &mut Vec<u8>) -> Row {
    if let Ok(ask) = &mut row.ask {
        ask.decode_key(text);
    }
    row
}

fn append(text: &mut Vec<u8>, piece: &[u8]) -> Span {
    let start = text.len();
    text.extend_from_slice(piece);
    Span::new(start, text.len())
}

/// How deeply objects and arrays are nested, outside of strings.
fn depth(body: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in body {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'{' | b'[') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
