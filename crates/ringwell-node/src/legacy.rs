//! `GET /api/<date>/ring_pools/<id>/allocate_number.{json,xml,csv}`: one number.
//!
//! A batch of one row with another form of answer. Numbers that overflow go out unmarked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use ringwell_wire::legacy::Format;
use ringwell_wire::{Answer, RowError};

use crate::api::whole;
use crate::bulk;
use crate::gather::{InFlight, Job, Terms, leave_together};
use crate::http::AnswerBody;
use crate::shard::ShardThread;

/// Answers a single allocation.
pub(crate) async fn answer(
    thread: &Rc<ShardThread>,
    pool: &str,
    query: &str,
    format: Format,
    terms: &Terms,
) -> Response<AnswerBody> {
    thread.stats.legacy.add(1);
    let mut flight = InFlight::new(thread);
    flight.job().batch.parse_single(pool, query, thread.node.config.api.strict_params);
    thread.wait_for_room(terms.deadline).await;
    let started = catch_unwind(AssertUnwindSafe(|| {
        thread.node.fault_drill(flight.job().batch.text());
        flight.job().plan(thread);
        flight.start(terms);
    }));
    if let Err(panic) = started {
        let error = RowError::InternalServiceError { handle: thread.report_panic(&panic) };
        return failed(format, &error, flight.job().batch.text());
    }
    let has_waited = flight.finish(terms).await;
    let response = render(thread, flight.job(), format);
    flight.answered();
    leave_together(has_waited).await;
    response
}

fn render(thread: &ShardThread, job: &Job, format: Format) -> Response<AnswerBody> {
    let row = &job.batch.rows()[0];
    let directory = thread.directory();
    let (plan, outcome) = (&job.plans[0], job.outcomes[0]);
    match bulk::row_answer(thread, &directory, row, plan, outcome) {
        Answer::Number { number, tracking, .. } => {
            whole(StatusCode::OK, format.content_type(), format.number(number, tracking))
        }
        Answer::Error(error) => failed(format, &error, job.batch.text()),
    }
}

fn failed(format: Format, error: &RowError, text: &[u8]) -> Response<AnswerBody> {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = whole(status, format.error_content_type(), format.error(error, text));
    // The text has words of the client's.
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    if let Some(seconds) = error.retry_after_s() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
