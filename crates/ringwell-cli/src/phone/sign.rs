//! Signs requests as each provider does.

use anyhow::Context as _;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use ringwell_calls::digest::{Mac, base64, base64_url, ed25519, from_base64, hex, sha256_hex};
use ringwell_config::CallProvider;
use serde_json::json;

use super::provider_side::{Body, Phone};

/// Creates the headers that authenticate a request to `target`. `text` is the serialized `body`.
///
/// # Errors
/// If the secret does not have the form that the provider uses.
pub(super) fn headers(
    phone: &Phone,
    target: &str,
    body: &Body,
    text: &str,
) -> anyhow::Result<HeaderMap> {
    let url = format!("{}{target}", phone.public_url);
    let sha1 = |parts: &[&[u8]]| base64(&Mac::Sha1.sign(&phone.secret, parts));
    let mut headers = HeaderMap::new();
    let mut add = |name: HeaderName, value: String| {
        HeaderValue::try_from(value).map(|value| headers.insert(name, value))
    };
    let field = HeaderName::from_static;
    match phone.provider {
        CallProvider::Twilio => {
            let signature = sha1(&[url.as_bytes(), sorted(body).as_bytes()]);
            add(field("x-twilio-signature"), signature)?;
        }
        CallProvider::SignalWire => {
            let signature = sha1(&[url.as_bytes(), sorted(body).as_bytes()]);
            add(field("x-signalwire-signature"), signature)?;
        }
        CallProvider::Telnyx => {
            let timestamp = now().to_string();
            let signed = [timestamp.as_bytes(), b"|", text.as_bytes()].concat();
            let seed = str::from_utf8(&phone.secret).ok().and_then(|text| from_base64(text.trim()));
            let seed = seed.context("the private key is not base64")?;
            let (signature, _) =
                ed25519(&seed, &signed).context("the private key is not 32 bytes long")?;
            add(field("telnyx-signature-ed25519"), base64(&signature))?;
            add(field("telnyx-timestamp"), timestamp)?;
        }
        CallProvider::Plivo => {
            let mut random = [0; 8];
            getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("{error}"))?;
            let nonce = hex(&random);
            let (base, query) = url.split_once('?').unwrap_or((&url, ""));
            let mut pairs: Vec<&str> = query.split('&').filter(|it| !it.is_empty()).collect();
            pairs.sort_unstable();
            let dot = if pairs.is_empty() { "" } else { "." };
            let signed = format!("{base}?{}{dot}{}.{nonce}", pairs.join("&"), sorted(body));
            let signature = Mac::Sha256.sign(&phone.secret, &[signed.as_bytes()]);
            add(field("x-plivo-signature-v3"), base64(&signature))?;
            add(field("x-plivo-signature-v3-nonce"), nonce)?;
        }
        CallProvider::Vonage => {
            let head = json!({ "alg": "HS256", "typ": "JWT" });
            let hash = sha256_hex(text.as_bytes());
            let claims = json!({ "iat": now(), "iss": "Vonage", "payload_hash": hash });
            let part = |value: serde_json::Value| base64_url(value.to_string().as_bytes());
            let signed = format!("{}.{}", part(head), part(claims));
            let signature = Mac::Sha256.sign(&phone.secret, &[signed.as_bytes()]);
            add(AUTHORIZATION, format!("Bearer {signed}.{}", base64_url(&signature)))?;
        }
        CallProvider::Bandwidth => {
            add(AUTHORIZATION, format!("Basic {}", base64(&phone.secret)))?;
        }
        CallProvider::Generic => {
            let secret = str::from_utf8(&phone.secret).context("the secret is not UTF-8 text")?;
            add(AUTHORIZATION, format!("Bearer {secret}"))?;
        }
    }
    Ok(headers)
}

/// Concatenates the names and values of a form, sorted by name. Empty for JSON.
fn sorted(body: &Body) -> String {
    let Body::Form(fields) = body else { return String::new() };
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_unstable();
    fields.into_iter().flat_map(|(name, value)| [*name, value.as_str()]).collect()
}

/// Returns the current time, in seconds since 1970.
fn now() -> i64 {
    Timestamp::now().as_second()
}
