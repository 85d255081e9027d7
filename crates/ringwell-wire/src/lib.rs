//! The codec of the published ring pool API: turns bytes into values and values into bytes.
//!
//! Owns the formats of requests and answers. Does not depend on HTTP, on the pools that exist, or
//! on the choice of numbers. No input leads to a panic. Source: docs/spec/api.md.

mod ask;
mod batch;
mod error_class;
mod format;
mod json;
pub mod legacy;
pub mod national;
pub mod params;
mod relaxed;
mod request_line;
mod response;
mod route;
mod row;
mod scan;
mod span;

pub use ask::Ask;
pub use batch::Batch;
pub use error_class::{InputFault, RequestError, RowError};
pub use params::VISITOR_BYTES_MAX;
pub use request_line::repaired;
pub use response::{BulkResponse, ResponseRow, Tracking, ten_digits};
pub use route::{Route, api_path, route};
pub use row::{Limits, Row};
pub use span::Span;
