//! Hashes, message authentication codes and their text encodings.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{Ed25519KeyPair, KeyPair};
use ring::{digest, hmac};
use subtle::ConstantTimeEq;

/// An HMAC algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mac {
    /// HMAC-SHA1, for providers that sign with it.
    Sha1,
    /// HMAC-SHA256.
    Sha256,
}

impl Mac {
    /// Computes the authentication code of the concatenated `parts`.
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

/// Returns the SHA-256 of `bytes` in lower-case hexadecimal digits.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// A SHA-256 of data that is not all in memory.
#[derive(Clone)]
pub struct Sha256(digest::Context);

impl Sha256 {
    /// Starts a hash without any data.
    #[must_use]
    pub fn new() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }

    /// Appends `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash in lower-case hexadecimal digits.
    #[must_use]
    pub fn hex(self) -> String {
        hex(self.0.finish().as_ref())
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sha256")
    }
}

impl Default for Sha256 {
    fn default() -> Self {
        Self::new()
    }
}

/// Encodes `bytes` in lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| {
        [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]].map(char::from)
    });
    digits.collect()
}

/// Encodes `bytes` in standard base64 with padding.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes standard base64 with padding.
#[must_use]
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Decodes the variant of base64 that JWTs use.
#[must_use]
pub fn from_base64_url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Encodes `bytes` in the variant of base64 that JWTs use.
#[must_use]
pub fn base64_url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Signs `text` with an Ed25519 private key. Returns the signature and the public key, or `None` if
/// the private key is not 32 bytes long.
#[must_use]
pub fn ed25519(private: &[u8], text: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let pair = Ed25519KeyPair::from_seed_unchecked(private).ok()?;
    Some((pair.sign(text).as_ref().to_vec(), pair.public_key().as_ref().to_vec()))
}

/// Whether `one` and `other` are equal. The duration of the comparison does not reveal where they
/// differ.
#[must_use]
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}
