//! `POST /v1/webhooks/ring_pools`: the main application pushes a pool that was changed or removed.
//!
//! Requests are signed and need no token. The headers are `Ringwell-Timestamp: SECONDS`, in seconds
//! since 1970, and `Ringwell-Signature: sha256=HEX`, the HMAC-SHA256 of `TIMESTAMP.BODY` with the
//! shared secret.

use std::sync::Arc;

use axum::http::HeaderMap;
use bytes::Bytes;
use hmac::{Hmac, Mac};
use ringwell_config::pool_from_json;
use ringwell_core::PoolId;
use ringwell_directory::RingPool;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::Sha256;

use super::fetch::Application;
use super::replays::{SECONDS_MAX, unix_seconds};
use crate::platform::Tokio;
use crate::pools;
use ringwell_driver::moves::to_its_end;
use ringwell_driver::node::Node;
use ringwell_driver::queue::Peers;

/// The message to the sender of a push that is not the newest for its pool.
const COPIED: &str = "this change to the ring pool, or a later one, has already been accepted: \
     if this change is still needed, sign it with the current time and send it again";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pushed<'a> {
    #[serde(borrow)]
    ring_pool: Option<&'a RawValue>,
    removed: Option<u64>,
}

/// The reason why a pushed change was refused, for the application's programmer.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The node is not configured to accept pushes.
    #[error("changes are not accepted: set application.webhook_secret_file")]
    NotConfigured,
    /// The signature or the timestamp is wrong.
    #[error(
        "the signature or the timestamp is missing or wrong: send the headers Ringwell-Timestamp: \
         SECONDS (the current Unix time) and Ringwell-Signature: sha256=HEX (the HMAC-SHA256 of \
         SECONDS.BODY with the shared secret as the key)"
    )]
    Unsigned,
    /// The body cannot be used.
    #[error("{0}")]
    Malformed(String),
    /// The pool cannot be changed as requested.
    #[error("{0}")]
    Refused(String),
}

pub(crate) async fn push(
    application: Option<&Arc<Application>>,
    (node, peers): (Arc<Node>, Peers),
    headers: &HeaderMap,
    body: Bytes,
) -> Result<(), PushError> {
    let secret = application.and_then(|application| application.settings.webhook_secret.as_ref());
    let (Some(application), Some(secret)) = (application, secret) else {
        return Err(PushError::NotConfigured);
    };
    let now = unix_seconds();
    let signed = signed(secret.reveal(), headers, &body, now);
    let (seconds, signature) = signed.ok_or(PushError::Unsigned)?;
    let malformed = |text: &str| PushError::Malformed(text.to_owned());
    let pushed: Pushed<'_> = serde_json::from_slice(&body)
        .map_err(|_| malformed("the body must be {\"ring_pool\":{…}} or {\"removed\":17}"))?;
    let put = pushed.ring_pool.map(|pool| pool_from_json(pool.get().as_bytes())).transpose();
    let put = put.map_err(PushError::Malformed)?;
    let removed: Vec<PoolId> = pushed.removed.map(PoolId).into_iter().collect();
    if put.is_some() != removed.is_empty() {
        return Err(malformed("exactly one of ring_pool and removed is required"));
    }
    let application = Arc::clone(application);
    // The change runs in its own task, so that a client that disconnects does not interrupt it.
    let taken = to_its_end(&Tokio, async move {
        let mut replays = application.replays.lock().await;
        // The check above ensures that the push either contains a pool or removes one.
        let changed = put.as_ref().map(RingPool::id).or(removed.first().copied());
        let is_new = changed.map_or(Ok(true), |pool| replays.take(pool, seconds, &signature, now));
        if !is_new.map_err(|error| error.to_string())? {
            return Err(COPIED.to_owned());
        }
        carry_out(&node, &peers, &application, put, &removed).await
    });
    let taken = taken.await.unwrap_or_else(|| Err("the node is stopping".to_owned()));
    taken.map_err(PushError::Refused)
}

async fn carry_out(
    node: &Node,
    peers: &Peers,
    application: &Application,
    put: Option<RingPool>,
    removed: &[PoolId],
) -> Result<(), String> {
    let changed = put.iter().map(RingPool::id).chain(removed.iter().copied());
    changed.for_each(|pool| application.forget(pool));
    // A pool from the configuration or from a database continues to be managed there.
    let directory = node.directory();
    let is_given = |pool| application.has_given(pool) || directory.pool(pool).is_none();
    let given = put.as_ref().map(RingPool::id).filter(|pool| is_given(*pool));
    pools::take(node, peers, put.into_iter().collect(), removed).await?;
    if let Some(pool) = given {
        application.gave(pool);
    }
    for pool in removed {
        application.disown(*pool);
    }
    Ok(())
}

/// Returns the timestamp and the signature of a request if the signature is correct and the
/// timestamp recent.
fn signed(secret: &[u8], headers: &HeaderMap, body: &[u8], now: u64) -> Option<(u64, Vec<u8>)> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (timestamp, signature) = (text("ringwell-timestamp")?, text("ringwell-signature")?);
    let seconds = timestamp.parse::<u64>().ok()?;
    let signature = signature.strip_prefix("sha256=").and_then(from_hex)?;
    // Keys of any length are valid.
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body);
    // The comparison takes the same time no matter where the signatures differ.
    let fits = seconds.abs_diff(now) <= SECONDS_MAX && mac.verify_slice(&signature).is_ok();
    fits.then_some((seconds, signature))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests;
