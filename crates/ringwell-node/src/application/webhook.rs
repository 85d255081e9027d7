//! `POST /v1/webhooks/ring_pools`: the main application pushes a pool that has changed or gone.
//!
//! Signed instead of a token: `Ringwell-Signature: sha256=HEX`, the HMAC-SHA256 of
//! `TIMESTAMP.BODY` under the shared secret, and `Ringwell-Timestamp: SECONDS` since 1970.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hmac::{Hmac, Mac};
use ringwell_core::PoolId;
use ringwell_directory::pool_from_json;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::Sha256;

use crate::admin::{Admin, Problem};
use crate::handover::to_its_end;
use crate::live;

/// How far the clocks of the two may be apart, and how long a copied request is of use.
const SECONDS_MAX: u64 = 300;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pushed<'a> {
    #[serde(borrow)]
    ring_pool: Option<&'a RawValue>,
    removed: Option<u64>,
}

pub(crate) async fn post(
    State(admin): State<Admin>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let application = admin.node.application.as_ref();
    let secret = application.and_then(|application| application.settings.webhook_secret.as_ref());
    let (Some(application), Some(secret)) = (application, secret) else {
        let detail = "no changes are taken: application.webhook_secret_file is not set";
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    };
    if !is_signed(secret.reveal(), &headers, &body, unix_seconds()) {
        return Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "send Ringwell-Timestamp: SECONDS, of now, and Ringwell-Signature: sha256=HEX, the \
             HMAC-SHA256 of TIMESTAMP.BODY under the shared secret",
        ));
    }
    let pushed: Pushed<'_> = serde_json::from_slice(&body)
        .map_err(|_| Problem::bad_request("the body is {\"ring_pool\":{…}} or {\"removed\":17}"))?;
    let put = pushed.ring_pool.map(|pool| pool_from_json(pool.get().as_bytes())).transpose();
    let put = put.map_err(Problem::bad_request)?;
    let removed: Vec<PoolId> = pushed.removed.map(PoolId).into_iter().collect();
    if put.is_some() != removed.is_empty() {
        return Err(Problem::bad_request("either ring_pool or removed"));
    }
    let changed = put.iter().map(ringwell_directory::RingPool::id).chain(removed.iter().copied());
    changed.for_each(|pool| application.forget(pool));
    // One that the configuration or a database has stays theirs.
    let directory = admin.node.directory();
    let is_given = |pool| application.has_given(pool) || directory.pool(pool).is_none();
    let given = put.as_ref().map(ringwell_directory::RingPool::id).filter(|pool| is_given(*pool));
    let gone = removed.clone();
    let put = put.into_iter().collect();
    let node = Arc::clone(&admin.node);
    // A client that hangs up does not cut a change in two.
    let taken =
        to_its_end(async move { live::take(&admin.node, &admin.peers, put, &removed).await });
    let taken = taken.await.unwrap_or_else(|| Err("the node is stopping".to_owned()));
    if let Some(application) = node.application.as_ref().filter(|_| taken.is_ok()) {
        given.iter().for_each(|pool| application.gave(*pool));
        gone.iter().for_each(|pool| application.disown(*pool));
    }
    taken
        .map(|()| StatusCode::NO_CONTENT)
        .map_err(|reason| Problem::new(StatusCode::CONFLICT, reason))
}

fn is_signed(secret: &[u8], headers: &HeaderMap, body: &[u8], now: u64) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(timestamp), Some(signature)) =
        (text("ringwell-timestamp"), text("ringwell-signature"))
    else {
        return false;
    };
    let Ok(seconds) = timestamp.parse::<u64>() else { return false };
    let Some(signature) = signature.strip_prefix("sha256=").and_then(from_hex) else {
        return false;
    };
    // A key of any length will do.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return false };
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body);
    // Takes the same time wherever they differ.
    seconds.abs_diff(now) <= SECONDS_MAX && mac.verify_slice(&signature).is_ok()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
