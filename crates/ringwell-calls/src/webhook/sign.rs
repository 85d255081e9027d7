//! Signatures according to Standard Webhooks 1.0, and the additional signature that receivers of
//! `CallRail`'s webhooks expect.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::digest::{self, Mac};

/// The number of random bytes in a secret.
const SECRET_BYTES: usize = 32;
/// The prefix of displayed secrets.
const PREFIX: &str = "whsec_";
/// The largest accepted difference between a request's timestamp and the receiver's clock, in
/// seconds.
pub const TOLERANCE_S: u64 = 300;

/// Signs `body` with each of `secrets`, for a request with the id `id` and the timestamp `seconds`,
/// in seconds since 1970. Returns the value of the header `webhook-signature`.
#[must_use]
pub fn sign(secrets: &[&str], id: &str, seconds: u64, body: &[u8]) -> String {
    let one = |secret: &&str| {
        let head = format!("{id}.{seconds}.");
        let code = Mac::Sha256.sign(&key(secret), &[head.as_bytes(), body]);
        format!("v1,{}", digest::base64(&code))
    };
    secrets.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The id or the timestamp is invalid.
    #[error("the header webhook-id or webhook-timestamp is missing or invalid")]
    Unreadable,
    /// The timestamp differs from the receiver's clock by this many seconds. Either the request is
    /// old, or one of the clocks is wrong.
    #[error("the timestamp differs from this machine's clock by {0} s; at most 300 s are allowed")]
    Apart(u64),
    /// None of the signatures was computed from the body with a known secret.
    #[error(
        "no signature matches: the sender used another secret, or the body was changed in transit"
    )]
    Signature,
}

/// Checks that `presented` contains a signature of `body` with one of `secrets`, and that the
/// timestamp is close to `now`. Times are in seconds since 1970.
///
/// # Errors
/// [`Mismatch`].
pub fn verify(
    secrets: &[&str],
    id: &str,
    timestamp: &str,
    presented: &str,
    body: &[u8],
    now: u64,
) -> Result<(), Mismatch> {
    let seconds = timestamp.parse::<u64>().map_err(|_| Mismatch::Unreadable)?;
    if id.is_empty() || id.contains('.') {
        return Err(Mismatch::Unreadable);
    }
    let apart = seconds.abs_diff(now);
    if apart > TOLERANCE_S {
        return Err(Mismatch::Apart(apart));
    }
    let ours = secrets.iter().map(|secret| sign(&[secret], id, seconds, body));
    let ours: Vec<String> = ours.collect();
    let theirs = presented.split(' ').take(16);
    let is_signed = theirs.fold(false, |found, one| {
        ours.iter().fold(found, |found, our| found | digest::same(our.as_bytes(), one.as_bytes()))
    });
    if is_signed { Ok(()) } else { Err(Mismatch::Signature) }
}

/// Converts random bytes to a secret in the form that is shown to its owner.
#[must_use]
pub fn secret(random: [u8; SECRET_BYTES]) -> String {
    format!("{PREFIX}{}", STANDARD.encode(random))
}

/// Computes the value of the header `Signature` in `CallRail`'s format.
#[must_use]
pub fn company(key: &str, body: &[u8]) -> String {
    digest::base64(&Mac::Sha1.sign(key.as_bytes(), &[body]))
}

/// The signing key of `secret`: the decoded text, or the text itself if it is not base64.
fn key(secret: &str) -> Vec<u8> {
    let text = secret.strip_prefix(PREFIX).unwrap_or(secret);
    digest::from_base64(text).unwrap_or_else(|| text.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    const ID: &str = "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk";
    const BODY: &[u8] = br#"{"email":"test@example.com","username":"test_user"}"#;
    const SIGNATURE: &str = "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=";

    #[test]
    fn the_vector_of_the_standard_is_met() {
        assert_eq!(sign(&[SECRET], ID, 1_649_367_553, BODY), SIGNATURE);
        let without_prefix = SECRET.strip_prefix(PREFIX).unwrap();
        assert_eq!(sign(&[without_prefix], ID, 1_649_367_553, BODY), SIGNATURE);
    }

    #[test]
    fn a_signature_is_valid_for_five_minutes_and_among_others() {
        let at = 1_649_367_553;
        let check =
            |presented: &str, now: u64| verify(&[SECRET], ID, "1649367553", presented, BODY, now);
        for now in [at, at + 300, at - 300] {
            assert_eq!(check(SIGNATURE, now), Ok(()));
        }
        for now in [at + 301, at - 301] {
            assert_eq!(check(SIGNATURE, now), Err(Mismatch::Apart(301)));
        }
        let other = sign(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], ID, at, BODY);
        assert_eq!(check(&format!("{other} v1a,x {SIGNATURE}"), at), Ok(()));
        for bad in ["", "v1,", "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kk", &other, "v2,x"] {
            assert_eq!(check(bad, at), Err(Mismatch::Signature), "{bad}");
        }
        for (id, timestamp) in [("a.b", "1649367553"), ("", "1649367553"), (ID, "soon")] {
            let checked = verify(&[SECRET], id, timestamp, SIGNATURE, BODY, at);
            assert_eq!(checked, Err(Mismatch::Unreadable));
        }
    }

    #[test]
    fn during_a_rotation_both_secrets_sign() {
        let new = secret([7; 32]);
        let both = sign(&[&new, SECRET], ID, 5, BODY);
        for one in [new.as_str(), SECRET] {
            assert_eq!(verify(&[one], ID, "5", &both, BODY, 5), Ok(()));
        }
        assert!(new.starts_with("whsec_") && both.split(' ').count() == 2);
    }
}
