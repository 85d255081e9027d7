//! Serves requests from other nodes over HTTP: checks the sender, limits the body, and sets the
//! answer's status.
//!
//! The requests arrive at a separate address, where only senders that know the cluster secret are
//! accepted. Source: docs/spec/link.md.

use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, UPGRADE};
use hyper::{Method, Request, Response, StatusCode};
use ringwell_config::credentials;
use ringwell_driver::Path;
use ringwell_driver::link::serve::{self, Refused, body_bytes_max, is_of_the_cluster};
use ringwell_trace::{Context, Kind, Parent, TRACEPARENT};

use super::call::{FRAME, JSON, SPEAKS};
use super::clocks;
use crate::request::read_frame;
use crate::response::{AnswerBody, close};
use crate::shard::HttpShard;
use ringwell_os::clock::coarse_time;

/// Answers a request from another node.
pub(crate) async fn answer(thread: &HttpShard, request: Request<Incoming>) -> Response<AnswerBody> {
    let (status, reason) = match dispatch(thread, request).await {
        Ok((kind, body)) => {
            let mut response = Response::new(AnswerBody::from(body));
            response.headers_mut().insert(CONTENT_TYPE, kind);
            clocks::show(response.headers_mut());
            return response;
        }
        Err((status, reason)) => {
            (StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), reason)
        }
    };
    thread.stats.links_refused.add(1);
    if let Some(left_out) = thread.stats.strangers.pass(coarse_time()) {
        tracing::warn!(
            shard = thread.id,
            %status,
            reason,
            left_out,
            "another node's request was refused"
        );
    }
    let mut response = Response::new(AnswerBody::from(format!("{reason}\n").into_bytes()));
    *response.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        close(&mut response);
    }
    if status == StatusCode::UPGRADE_REQUIRED {
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static("ringwell-link/3"));
    }
    response
}

async fn dispatch(
    thread: &HttpShard,
    request: Request<Incoming>,
) -> Result<(HeaderValue, Vec<u8>), Refused> {
    let refused = |status: StatusCode, reason: &str| Err((status.as_u16(), reason.to_owned()));
    let (head, body) = request.into_parts();
    let presented = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let presented = str::from_utf8(presented).unwrap_or_default();
    let secret = credentials(presented, "Bearer").unwrap_or_default();
    if !is_of_the_cluster(&thread.node, secret.as_bytes()) {
        return refused(StatusCode::UNAUTHORIZED, "the cluster's secret is missing or wrong");
    }
    if head.method != Method::POST {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "links accept only POST");
    }
    let path = Path::parse(head.uri.path());
    let body = read_frame(thread, body, body_bytes_max(&thread.node, path)).await;
    let body = body.map_err(|error| (StatusCode::BAD_REQUEST.as_u16(), error.to_string()))?;
    let Some(path) = path else {
        return refused(StatusCode::NOT_FOUND, "the link protocol has no such path");
    };
    // The sending node decides whether the request is traced. If that node did not start a trace,
    // this node does not start one either.
    let span = ringwell_trace::begin("a request from another node", Kind::Server, || {
        let header = head.headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
        Parent::Span(header.and_then(Context::parse))
    });
    let answer = serve::answer(thread, path, body, speaks(&head.headers)).await;
    if let Some(mut span) = span {
        span.text("url.path", path.as_str());
        span.status(answer.as_ref().err().map_or(200, |(status, _)| *status));
    }
    let answer = answer?;
    Ok((if path.is_frame() { FRAME } else { JSON }, answer))
}

/// Returns the highest frame version that the caller can read.
fn speaks(headers: &HeaderMap) -> u8 {
    let version = headers.get(SPEAKS).and_then(|value| value.to_str().ok()?.parse().ok());
    version.unwrap_or(1)
}
