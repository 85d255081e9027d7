//! The single allocation: `GET /api/<date>/ring_pools/<id>/allocate_number.{json,xml,csv}`.
//!
//! The answers do not mark overflow numbers: a request that gets an overflow number succeeds.
//! Errors are XML for the format `.xml`, and plain text for the other two formats.

use ringwell_core::PoolId;

use crate::ask::{self, Ask};
use crate::error_class::{InputFault, RowError};
pub use crate::format::Format;
use crate::span::Span;

/// The maximum length in bytes of a single allocation's query. By default, an `api_suffix` has the
/// same limit.
pub const QUERY_BYTES_MAX: usize = 8192;

/// Reads the pool and the query of a single allocation. Also returns the text that the request's
/// spans refer to.
pub(crate) fn parse(
    pool: &str,
    query: &str,
    strict_params: bool,
) -> (Vec<u8>, Result<Ask, RowError>) {
    let mut text = [pool, query].concat().into_bytes();
    let pool_text = Span::new(0, pool.len());
    let id = ask::parse_pool(pool.as_bytes()).filter(|(_, digits)| *digits == pool.len());
    // An invalid pool id is handled like the id of a pool that does not exist.
    let at = Span::new(pool.len(), text.len());
    let mut wanted = ask::parse_query(&text, at, id.map_or(PoolId(0), |(id, _)| id), pool_text);
    wanted.decode_key(&mut text);
    let ask = if query.len() > QUERY_BYTES_MAX {
        Err(RowError::InvalidInput(InputFault::SuffixLength))
    } else if id.is_none() {
        Err(RowError::InvalidKey { key: wanted.key, pool: pool_text })
    } else if strict_params && !wanted.has_params(&text) {
        Err(RowError::InvalidInput(InputFault::NoParameter))
    } else {
        Ok(wanted)
    };
    (text, ask)
}

#[cfg(test)]
mod tests;
