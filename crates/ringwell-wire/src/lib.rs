//! The published ring pool API: bytes in, values out, and back.
//!
//! Knows the shapes of requests and answers; independent of HTTP, of existing pools, and of the
//! choice of numbers. No input makes it panic. Source: docs/spec/api.md.

mod ask;
mod batch;
mod error_class;
pub mod legacy;
pub mod national;
pub mod params;
mod relaxed;
mod request_line;
mod response;
mod route;
mod scan;
mod span;

pub use ask::{Ask, VISITOR_BYTES_MAX};
pub use batch::{Batch, Limits, Row};
pub use error_class::{InputFault, RequestError, RowError};
pub use request_line::repaired;
pub use response::{BulkResponse, ResponseRow, Tracking, ten_digits};
pub use route::{Route, api_path, route};
pub use span::Span;
