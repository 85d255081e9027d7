//! The slow reader of a body or of a single row. It uses the JSON library, accepts unusual forms
//! and produces the error messages.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::error_class::{InputFault, RequestError, RowError};
use crate::row::{Limits, Row, parse_row};
use crate::span::Span;

/// The maximum nesting depth of objects and arrays.
const DEPTH_MAX: usize = 8;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    requests: Option<Vec<&'a RawValue>>,
    /// A synonym for `requests`. The published documentation uses this form in one place.
    #[serde(borrow)]
    request: Option<Vec<&'a RawValue>>,
}

/// The members of a row that are recognized. If a member occurs twice, the last one counts.
#[derive(Default)]
struct Members<'a> {
    api_suffix: Option<&'a RawValue>,
    request_id: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Name {
    ApiSuffix,
    RequestId,
    #[serde(other)]
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(MembersVisitor(PhantomData))
    }
}

struct MembersVisitor<'a>(PhantomData<&'a RawValue>);

impl<'de: 'a, 'a> Visitor<'de> for MembersVisitor<'a> {
    type Value = Members<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Members<'a>, M::Error> {
        let mut members = Members::default();
        while let Some(name) = map.next_key()? {
            let value: &RawValue = map.next_value()?;
            match name {
                Name::ApiSuffix => members.api_suffix = Some(value),
                Name::RequestId => members.request_id = Some(value),
                Name::Other => {}
            }
        }
        Ok(members)
    }
}

/// Reads `body` into `rows`, and returns the text that the rows refer to.
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
    // The library would also accept the values of the members in order, without names:
    // `[[row, row], null]`.
    if !body.trim_start().starts_with('{') {
        return Err(RequestError::NotABatch);
    }
    let requests = parsed.requests.or(parsed.request).ok_or(RequestError::NotABatch)?;
    if requests.len() > limits.rows_max {
        return Err(RequestError::TooManyRows { limit: limits.rows_max });
    }
    let mut text = Vec::with_capacity(body.len());
    rows.extend(requests.iter().map(|raw| row(raw, limits, &mut text)));
    Ok(text.into())
}

/// Returns the value at the beginning of `rest`, and the text after the value. Returns `None` if
/// the value is malformed, or if it is nested too deeply. Its depth includes the objects and arrays
/// that contain the value; `around` is their count.
pub(crate) fn raw(rest: &[u8], around: usize) -> Option<(&RawValue, &[u8])> {
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<&RawValue>();
    let raw = values.next()?.ok()?;
    let behind = rest.get(values.byte_offset()..)?;
    (around + depth(raw.get().as_bytes()) <= DEPTH_MAX).then_some((raw, behind))
}

/// Reads a row. Appends its `request_id` to `text` unchanged, and its `api_suffix` in decoded form.
pub(crate) fn row(raw: &RawValue, limits: &Limits, text: &mut Vec<u8>) -> Row {
    let members: Result<Members<'_>, _> = serde_json::from_str(raw.get());
    let (members, is_object) = (members.unwrap_or_default(), raw.get().starts_with('{'));
    let fault = match members.request_id {
        _ if !is_object => Some(InputFault::NotAnObject),
        Some(id) if id.get().starts_with(['{', '[']) => Some(InputFault::RequestId),
        _ => None,
    };
    if let Some(fault) = fault {
        return Row { request_id: None, ask: Err(RowError::InvalidInput(fault)) };
    }
    let request_id = members.request_id.map(|id| append(text, id.get().as_bytes()));
    let suffix: Option<String> =
        members.api_suffix.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let suffix = suffix.map(|suffix| append(text, suffix.as_bytes()));
    let is_broken =
        suffix.is_none() && members.api_suffix.is_some_and(|suffix| suffix.get().starts_with('"'));
    let mut row = parse_row(text, request_id, suffix, limits);
    if is_broken && row.ask == Err(RowError::InvalidInput(InputFault::NoSuffix)) {
        row.ask = Err(RowError::InvalidInput(InputFault::SuffixText));
    }
    // Keys are compared in their decoded form.
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

/// Returns the nesting depth of objects and arrays. Brackets in strings do not count.
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
