//! Answers to clients: their bodies, and the header fields that every answer has.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};

/// The body of an answer, which was built here as a whole or comes from the management API.
#[derive(Debug)]
pub(crate) enum AnswerBody {
    /// All bytes of the body; `None` once they have been sent.
    Whole(Option<Bytes>),
    /// A body from axum.
    Admin(axum::body::Body),
}

impl From<Vec<u8>> for AnswerBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Whole(Some(bytes.into()))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Admin(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Admin(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Admin(body) => body.size_hint(),
        }
    }
}

/// Builds an answer whose body is completely available.
pub(crate) fn whole(
    status: StatusCode,
    content_type: &'static str,
    body: Vec<u8>,
) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::from(body));
    *response.status_mut() = status;
    set_fields(&mut response, content_type);
    response
}

/// Sets the header fields that every answer with a body has.
pub(crate) fn set_fields(response: &mut Response<AnswerBody>, content_type: &'static str) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Closes the connection after the answer, so that no further requests on it are served.
pub(crate) fn close(response: &mut Response<AnswerBody>) {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
}
