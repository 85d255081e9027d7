//! Hashes, message authentication codes and their texts.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{Ed25519KeyPair, KeyPair};
use ring::{digest, hmac};
use subtle::ConstantTimeEq;

/// The kind of HMAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mac {
    /// HMAC-SHA1, for providers that sign with it.
    Sha1,
    /// HMAC-SHA256.
    Sha256,
}

impl Mac {
    /// The authentication code of the concatenated `parts`.
    #[must_use]
    pub fn sign(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
        };
        let key = hmac::Key::new(algorithm, key);
        let mut context = hmac::Context::with_key(&key);
        for part in parts {
            context.update(part);
        }
        context.sign().as_ref().to_vec()
    }
}

/// SHA-256 in lower-case hexadecimal digits.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// Lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| {
        [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]].map(char::from)
    });
    digits.collect()
}

/// Standard base64 with padding.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Reads standard base64 with padding.
#[must_use]
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Reads base64 in the form that JWTs use.
#[must_use]
pub fn from_base64_url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Base64 in the form that JWTs use.
#[must_use]
pub fn base64_url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The Ed25519 signature of `text` by a private key, and the public key; `None` unless the private
/// key has 32 bytes.
#[must_use]
pub fn ed25519(private: &[u8], text: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let pair = Ed25519KeyPair::from_seed_unchecked(private).ok()?;
    Some((pair.sign(text).as_ref().to_vec(), pair.public_key().as_ref().to_vec()))
}

/// Whether both are equal. The time taken does not depend on where they differ.
#[must_use]
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}
