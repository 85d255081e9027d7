//! The body of a bulk request.

use bytes::Bytes;
use ringwell_wire::{Batch, BulkResponse, Limits, RequestError, ResponseRow, RowError, Span};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::memory::bounded;

/// The shortest row is two bytes long (`1,`) and takes at most a hundred bytes of memory. The list
/// of rows doubles its capacity when it is full.
const MEMORY_TIMES: u64 = 200;

/// Checks any body: the fast and the careful JSON reader agree, only JSON is accepted, and the
/// response is JSON with the same number of rows and the same ids as the body.
pub fn bulk(body: &[u8]) {
    let small =
        Limits { rows_max: 4, suffix_bytes_max: 60, request_id_bytes_max: 8, strict_params: true };
    for limits in [Limits::default(), small] {
        let batch = bounded(body.len(), MEMORY_TIMES, || parse(body, &limits));
        let text = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
        let careful = carefully(text).map(|body| parse(&body, &limits));
        match (&batch, careful) {
            (Ok(batch), careful) => {
                let careful = careful.unwrap().unwrap();
                assert_eq!(words(batch), words(&careful), "the two parsers return different rows");
                assert!(is_json(text), "not JSON, but taken");
                check_response(batch);
                assert!(batch.rows().len() <= limits.rows_max);
            }
            (Err(_), careful) => assert!(careful.is_none_or(|careful| careful.is_err())),
        }
    }
}

pub(crate) fn parse(body: &[u8], limits: &Limits) -> Result<Batch, RequestError> {
    let mut batch = Batch::default();
    batch.parse(Bytes::copy_from_slice(body), limits).map(|()| batch)
}

/// Returns `body` with an additional unknown member before the others. The member's name contains
/// an escape, so the fast reader passes the body to the careful reader.
fn carefully(body: &[u8]) -> Option<Vec<u8>> {
    let start = body.iter().position(|byte| !b" \t\r\n".contains(byte))?;
    let inside = body[start..].strip_prefix(b"{")?;
    Some([&body[..start], br#"{"\u007e":0,"#, inside].concat())
}

fn is_json(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<&RawValue>(text).is_ok())
}

/// The rows as text, each with its request or its error.
pub(crate) fn words(batch: &Batch) -> Vec<String> {
    let text = |span: Span| {
        let bytes = span.of(batch.text());
        assert_eq!(bytes.len(), span.len(), "a span is outside of its text");
        format!("{:?}", String::from_utf8_lossy(bytes))
    };
    let row = |row: &ringwell_wire::Row| match row.ask {
        Ok(ask) => format!(
            "{:?} pool {} {} key {} params {:?} visitor {:?}",
            row.request_id.map(text),
            ask.pool,
            text(ask.pool_text),
            text(ask.key),
            ask.params.map(text),
            ask.visitor.map(text),
        ),
        Err(error) => format!(
            "{:?} {} {}",
            row.request_id.map(text),
            error.class(),
            error.message(batch.text())
        ),
    };
    batch.rows().iter().map(row).collect()
}

/// Answers every row. A row that was parsed without an error is answered with an error that echoes
/// the row.
fn check_response(batch: &Batch) {
    let mut out = Vec::new();
    let mut response = BulkResponse::new(&mut out, batch.text());
    for row in batch.rows() {
        let error = match row.ask {
            Ok(ask) => RowError::InvalidKey { key: ask.key, pool: ask.pool_text },
            Err(error) => error,
        };
        response.row(row.request_id, &ResponseRow::Error(error));
    }
    response.finish();
    let text = String::from_utf8(out).unwrap();
    // The response may echo numbers that no machine type can represent, so only its structure is
    // parsed here.
    let outline: Result<serde_json::Map<String, Value>, _> = serde_json::from_str(&text);
    let Ok(outline) = outline else {
        assert!(is_json(text.as_bytes()), "the response is not JSON: {text}");
        return;
    };
    let rows = outline["responses"].as_array().unwrap();
    assert_eq!(rows.len(), batch.rows().len());
    for (answer, row) in rows.iter().zip(batch.rows()) {
        let sent = row.request_id.map(|id| id.of(batch.text()));
        let sent = sent.map(|id| serde_json::from_slice::<Value>(id).unwrap());
        assert_eq!(answer.get("request_id"), sent.as_ref());
    }
}
