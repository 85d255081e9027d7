//! A ring pool in the JSON format that the main application returns or pushes.
//!
//! Owns the names of the members. The names, and the rules for the values, are the same as in the
//! configuration file.

use std::sync::Arc;

use ringwell_core::PoolId;
use ringwell_directory::{PoolFields, RingPool, Tracking};
use serde::Deserialize;

use super::pools::parse_key;
use super::values::{parse_number, parse_range, parse_seconds};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolJson {
    id: u64,
    name: Option<String>,
    ring_pool_key: String,
    next_ring_pool_key: Option<String>,
    lifetime_seconds: serde_json::Number,
    numbers: Vec<String>,
    overflow_number: Option<String>,
    tracking_url: Option<String>,
    destination_url: Option<String>,
}

/// Reads a pool:
/// `{"id":17,"ring_pool_key":"…","lifetime_seconds":1800,"numbers":["8885550100-8885550149"],
/// "overflow_number":"8885559999"}`;
/// `name`, `next_ring_pool_key`, `tracking_url` and `destination_url` are optional.
///
/// # Errors
/// The error names the invalid member and the reason. It contains no part of a key.
pub fn pool_from_json(bytes: &[u8]) -> Result<RingPool, String> {
    let json: PoolJson = serde_json::from_slice(bytes).map_err(|error| shape(&error))?;
    let at = |field: &'static str| move |error: &dyn std::fmt::Display| format!("{field} {error}");
    let key = parse_key(&json.ring_pool_key).map_err(|e| at("ring_pool_key")(&e))?;
    let next_key = json.next_ring_pool_key.as_deref().map(parse_key).transpose();
    let next_key = next_key.map_err(|e| at("next_ring_pool_key")(&e))?;
    let lifetime = parse_seconds(&json.lifetime_seconds.to_string());
    let lifetime = lifetime.map_err(|e| at("lifetime_seconds")(&e))?;
    let numbers: Result<Vec<_>, _> = json.numbers.iter().map(|text| parse_range(text)).collect();
    let numbers = numbers.map_err(|e| at("numbers")(&e))?;
    let overflow = json.overflow_number.as_deref().map(parse_number).transpose();
    let overflow = overflow.map_err(|e| at("overflow_number")(&e))?;
    let tracking = match (json.tracking_url, json.destination_url) {
        (Some(base_url), Some(destination_url)) => {
            Some(Arc::new(Tracking { base_url, destination_url }))
        }
        (None, None) => None,
        _ => return Err("tracking_url and destination_url belong together".to_owned()),
    };
    let (id, name) = (PoolId(json.id), json.name);
    RingPool::new(PoolFields { id, name, key, next_key, lifetime, numbers, overflow, tracking })
        .map_err(|faults| {
            faults.iter().map(|f| format!("{} {f}", f.field())).collect::<Vec<_>>().join("; ")
        })
}

/// Describes a JSON fault with its position, but without the JSON text, which may contain a key.
fn shape(error: &serde_json::Error) -> String {
    let what = if error.is_data() { "is not a ring pool" } else { "is not JSON" };
    format!("the data {what}: line {}, column {}", error.line(), error.column())
}

#[cfg(test)]
mod tests;
