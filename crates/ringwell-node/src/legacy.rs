//! `GET /api/<date>/ring_pools/<id>/allocate_number.{json,xml,csv}`: returns one number.
//!
//! The request is handled as a batch of one row whose answer has another format. Overflow numbers
//! are not marked as such.

use std::convert::Infallible;

use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use ringwell_driver::batch::{self, Answered, Terms};
use ringwell_driver::stats::Kind;
use ringwell_wire::legacy::Format;
use ringwell_wire::{ResponseRow, RowError};

use crate::response::{AnswerBody, whole};
use crate::shard::HttpShard;

/// Answers a single allocation.
pub(crate) async fn answer(
    thread: &HttpShard,
    pool: &str,
    query: &str,
    format: Format,
    terms: &Terms,
) -> Response<AnswerBody> {
    let strict = thread.node.config.api.strict_params;
    let read = |batch: &mut ringwell_wire::Batch| {
        batch.parse_single(pool, query, strict);
        Ok::<_, Infallible>(())
    };
    let render = |answered: &Answered<'_>| render(answered, format);
    match batch::answer(thread, Kind::Single, terms, read, render).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn render(answered: &Answered<'_>, format: Format) -> Response<AnswerBody> {
    match answered.row(0) {
        ResponseRow::Number { number, tracking, .. } => {
            whole(StatusCode::OK, format.content_type(), format.number(number, tracking))
        }
        ResponseRow::Error(error) => failed(format, &error, answered.text()),
    }
}

fn failed(format: Format, error: &RowError, text: &[u8]) -> Response<AnswerBody> {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = whole(status, format.error_content_type(), format.error(error, text));
    // The body quotes text that the client sent.
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    if let Some(seconds) = error.retry_after_s() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
