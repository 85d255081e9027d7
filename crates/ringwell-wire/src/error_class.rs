//! The error classes, HTTP statuses and messages of the API. No other file contains them.
//!
//! Source: docs/spec/api.md, "Errors".

use std::borrow::Cow;
use std::fmt;

use ringwell_core::PoolId;

use crate::span::Span;

/// The reason why a row got no number. The other rows of its batch are still answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowError {
    /// The key is not valid for the pool, or the pool does not exist. Clients cannot distinguish
    /// these two cases.
    InvalidKey {
        /// The key as sent.
        key: Span,
        /// The pool's id as sent.
        pool: Span,
    },
    /// The row's request is incomplete or malformed.
    InvalidInput(InputFault),
    /// Every number is locked out, and the pool has no overflow number.
    PoolExhausted {
        /// The pool.
        pool: PoolId,
        /// The time to wait before the next attempt, in milliseconds.
        wait_ms: u64,
    },
    /// The pool has no numbers yet, and no overflow number.
    NoNumbers {
        /// The pool.
        pool: PoolId,
    },
    /// The pool's shard refused to hand out a number or did not answer in time, and the pool has no
    /// overflow number.
    Unavailable {
        /// The pool.
        pool: PoolId,
    },
    /// An internal fault, which was logged with a handle.
    InternalServiceError {
        /// The handle that identifies the log line.
        handle: u64,
    },
}

/// The first rule that a row breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputFault {
    /// The row is not a JSON object.
    NotAnObject,
    /// `api_suffix` is missing or not a string.
    NoSuffix,
    /// `api_suffix` is a string that contains half of a surrogate pair, which does not represent a
    /// character.
    SuffixText,
    /// `api_suffix` is not `<pool>/allocate_number.json?…`.
    Suffix,
    /// `api_suffix` is longer than the server accepts.
    SuffixLength,
    /// `request_id` is an object, an array, or longer than the server accepts.
    RequestId,
    /// In strict mode, the row has no parameter other than the key.
    NoParameter,
}

/// The reason why a whole request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The body is not JSON.
    NotJson,
    /// The body is JSON, but not a batch.
    NotABatch,
    /// The batch has no rows.
    NoRows,
    /// The batch has more rows than the server accepts.
    TooManyRows {
        /// The accepted count.
        limit: usize,
    },
    /// The JSON is nested more deeply than the server accepts.
    TooDeep,
    /// The body is larger than the server accepts.
    TooLarge {
        /// The accepted bytes.
        limit: usize,
    },
    /// A compressed body is many times larger when decoded.
    Inflated {
        /// The maximum decoded size, in bytes, of a body with this compressed size.
        limit: usize,
    },
    /// The path and the query are longer than the server accepts.
    UriTooLong {
        /// The maximum length in bytes.
        limit: usize,
    },
    /// The body did not arrive in time.
    TooSlow,
    /// The memory limit for the bodies of all requests in progress has been reached.
    NoRoom,
    /// The body ended too early, its chunks are malformed, or trailer fields follow the chunks.
    Broken,
    /// The request's head is malformed, or can be read in two different ways.
    Malformed,
    /// The request's head is longer, or has more fields, than the server accepts.
    HeadTooLarge,
    /// The body has a content coding that the server does not support.
    Coding,
    /// The body is not in the content coding that the request's head declares.
    Undecodable,
    /// The request comes from a web page whose origin is not allowed.
    Origin,
    /// The idempotency key is longer than the server accepts.
    KeyTooLong {
        /// The maximum length in bytes.
        limit: usize,
    },
    /// The version in the path is not a date.
    BadVersion,
    /// The path does not exist.
    NotFound,
    /// The path does not accept this method.
    Method {
        /// The method that it accepts.
        allow: &'static str,
    },
    /// The pool's numbers can only be requested through the bulk endpoint.
    OnlyBulk,
}

impl RowError {
    /// The name of the error class, which the answer contains as `error_class`.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        match self {
            Self::InvalidKey { .. } => "InvalidKey",
            Self::InvalidInput(_) => "InvalidInput",
            Self::PoolExhausted { .. } | Self::NoNumbers { .. } => "PoolExhausted",
            Self::Unavailable { .. } => "ServiceUnavailable",
            Self::InternalServiceError { .. } => "InternalServiceError",
        }
    }

    /// The HTTP status of a single allocation that fails with this error.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::InvalidKey { .. } => 401,
            Self::InvalidInput(_) => 403,
            Self::PoolExhausted { .. } | Self::NoNumbers { .. } | Self::Unavailable { .. } => 503,
            Self::InternalServiceError { .. } => 500,
        }
    }

    /// The count of seconds to wait before another attempt, if another attempt may help.
    #[must_use]
    pub const fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::PoolExhausted { wait_ms, .. } => Some(seconds(*wait_ms)),
            Self::Unavailable { .. } => Some(1),
            Self::InvalidKey { .. }
            | Self::InvalidInput(_)
            | Self::NoNumbers { .. }
            | Self::InternalServiceError { .. } => None,
        }
    }

    /// Returns the error's message. The spans in the error refer to `text`.
    #[must_use]
    pub fn message(&self, text: &[u8]) -> String {
        match self {
            Self::InvalidKey { key, pool } => format!(
                "API Key '{}' is not valid for resource '{}'",
                String::from_utf8_lossy(key.of(text)),
                String::from_utf8_lossy(pool.of(text))
            ),
            Self::InvalidInput(fault) => fault.message().to_owned(),
            Self::PoolExhausted { pool, wait_ms } => format!(
                "All numbers of ring pool {pool} are in use and it has no overflow number; ask \
                 again in {} seconds",
                seconds(*wait_ms)
            ),
            Self::NoNumbers { pool } => {
                format!("Ring pool {pool} has no numbers and no overflow number")
            }
            Self::Unavailable { pool } => format!(
                "Ring pool {pool} cannot hand out numbers at the moment and has no overflow \
                 number; ask again in a second"
            ),
            Self::InternalServiceError { handle } => format!("refer to error handle {handle}"),
        }
    }
}

/// Converts the time to wait to whole seconds, at least one.
const fn seconds(wait_ms: u64) -> u64 {
    let seconds = wait_ms.div_ceil(1000);
    if seconds == 0 { 1 } else { seconds }
}

impl InputFault {
    const fn message(self) -> &'static str {
        match self {
            Self::NotAnObject => "a row is an object with api_suffix and, if wanted, request_id",
            Self::NoSuffix => "a row needs api_suffix, a string",
            Self::SuffixText => {
                "api_suffix contains half of a surrogate pair (\\ud800 to \\udfff), which is no \
                 character"
            }
            Self::Suffix => {
                "api_suffix must be <pool id>/allocate_number.json?ring_pool_key=<key>&<parameters>"
            }
            Self::SuffixLength => "api_suffix is longer than this server takes",
            Self::RequestId => "request_id must be a short string, number, true, false or null",
            Self::NoParameter => "At least one RingPool parameter must be present",
        }
    }
}

impl RequestError {
    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::NotJson
            | Self::Broken
            | Self::BadVersion
            | Self::KeyTooLong { .. }
            | Self::Malformed
            | Self::Undecodable => 400,
            Self::NotABatch | Self::NoRows | Self::TooDeep | Self::Origin | Self::OnlyBulk => 403,
            Self::NotFound => 404,
            Self::Method { .. } => 405,
            Self::TooSlow => 408,
            Self::TooManyRows { .. } | Self::TooLarge { .. } | Self::Inflated { .. } => 413,
            Self::UriTooLong { .. } => 414,
            Self::Coding => 415,
            Self::HeadTooLarge => 431,
            Self::NoRoom => 503,
        }
    }

    /// Whether the connection must be closed after this error, because the data that follows need
    /// not be read or cannot be trusted.
    #[must_use]
    pub const fn closes(&self) -> bool {
        matches!(
            self,
            Self::TooLarge { .. }
                | Self::TooSlow
                | Self::NoRoom
                | Self::Broken
                | Self::Malformed
                | Self::HeadTooLarge
        )
    }

    /// The count of seconds to wait before another attempt, if another attempt may help.
    #[must_use]
    pub const fn retry_after_s(&self) -> Option<u64> {
        if matches!(self, Self::NoRoom) { Some(1) } else { None }
    }

    const fn class(&self) -> &'static str {
        match self {
            Self::NotJson
            | Self::NotABatch
            | Self::NoRows
            | Self::TooManyRows { .. }
            | Self::TooDeep
            | Self::TooLarge { .. }
            | Self::Inflated { .. }
            | Self::UriTooLong { .. }
            | Self::TooSlow
            | Self::Broken
            | Self::Malformed
            | Self::HeadTooLarge
            | Self::Coding
            | Self::Undecodable
            | Self::Origin
            | Self::KeyTooLong { .. }
            | Self::BadVersion => "InvalidInput",
            Self::NoRoom => "ServiceUnavailable",
            Self::NotFound => "RecordNotFound",
            Self::Method { .. } => "MethodNotAllowed",
            Self::OnlyBulk => "OnlyBulkNumberAllocationAllowed",
        }
    }

    fn message(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::NotJson => "the body is not JSON",
            Self::NotABatch => "the body must be {\"requests\":[{\"api_suffix\":\"...\"}]}",
            Self::NoRows => "requests must have at least one entry",
            Self::TooManyRows { limit } => {
                return format!("requests may have at most {limit} entries").into();
            }
            Self::TooDeep => "the JSON is nested too deeply",
            Self::TooLarge { limit } => {
                return format!("the body may have at most {limit} bytes").into();
            }
            Self::Inflated { limit } => {
                return format!(
                    "a body compressed to this size may decode to at most {limit} bytes: send it \
                     uncompressed"
                )
                .into();
            }
            Self::UriTooLong { limit } => {
                return format!("path and query may have at most {limit} bytes").into();
            }
            Self::TooSlow => "the body did not arrive in time",
            Self::NoRoom => "too many large requests are in progress; try again in a second",
            Self::Broken => {
                "the body is cut short, its chunks are malformed, or trailer fields follow them"
            }
            Self::Malformed => "the request's head is malformed",
            Self::HeadTooLarge => "the request's head is too large",
            Self::Coding => "the body may be plain, or in the codings gzip and deflate",
            Self::Undecodable => "the body is not in the coding that Content-Encoding names",
            Self::Origin => "web pages of this origin may not use this API",
            Self::KeyTooLong { limit } => {
                return format!("the Idempotency-Key may have at most {limit} bytes").into();
            }
            Self::BadVersion => "the API version in the path must be a date such as 2013-07-01",
            Self::NotFound => "there is nothing at this path",
            Self::Method { .. } => "this path takes another method; the Allow header names it",
            Self::OnlyBulk => "Numbers are automatically allocated by the PNAPI server",
        })
    }

    /// Returns the body of the answer, in the form that the published API uses for errors.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let (class, message) = (self.class(), self.message());
        // In the only documented example of this form, the message comes first.
        let mut out = b"{\"errors\":{\"invalid_data\":".to_vec();
        crate::json::json_string(&mut out, &message);
        out.extend_from_slice(b",\"class\":\"");
        out.extend_from_slice(class.as_bytes());
        out.extend_from_slice(b"\"}}");
        out
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for RequestError {}
