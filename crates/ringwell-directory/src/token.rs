//! Management tokens: the secrets that requests under `/v1/` must contain.
//!
//! The configuration holds only their hashes. Owns both forms. Independent of the source of random
//! bytes. Invariant: `Debug` never shows a token.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// A management token: `rw_` and 64 hexadecimal digits, or the contents of a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// The SHA-256 of a management token. Tokens are random, so they need no salt and no slow hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

/// The hashes of all accepted tokens. Clones share the hashes, so that a reload takes effect
/// everywhere.
#[derive(Clone, Default)]
pub struct TokenHashes(Arc<RwLock<Arc<[TokenHash]>>>);

/// Not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the SHA-256 of a token has 64 hexadecimal digits")]
pub struct TokenHashError;

impl Token {
    /// The shortest token that [`Token::parse`] accepts, in bytes.
    pub const BYTES_MIN: usize = 16;
    /// The longest token, in bytes.
    pub const BYTES_MAX: usize = 256;

    /// Makes a token from 32 random bytes.
    #[must_use]
    pub fn from_random(bytes: [u8; 32]) -> Self {
        Self(format!("rw_{}", hex(&bytes)))
    }

    /// A token from a file: 16 to 256 bytes of printable ASCII without spaces.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&text.len());
        (fits && text.bytes().all(|b| b.is_ascii_graphic())).then(|| Self(text.to_owned()))
    }

    /// The token itself, to be shown to its owner. Never for logs.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The token's hash, which the configuration contains.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(self.0.as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl TokenHash {
    /// Reads 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`TokenHashError`] if `text` is not a hash.
    pub fn parse(text: &str) -> Result<Self, TokenHashError> {
        if text.len() != 64 {
            return Err(TokenHashError);
        }
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
            let (high, low) = (digit(pair[0]), digit(pair[1]));
            *byte = high.ok_or(TokenHashError)? << 4 | low.ok_or(TokenHashError)?;
        }
        Ok(Self(bytes))
    }

    /// Whether one of `hashes` is the hash of `presented`. The duration does not reveal whether a
    /// hash matches, or which one.
    #[must_use]
    pub fn any_matches(hashes: &[Self], presented: &[u8]) -> bool {
        let hash = Self::of(presented);
        let none = Choice::from(0);
        hashes.iter().fold(none, |found, other| found | other.0[..].ct_eq(&hash.0[..])).into()
    }

    /// The hash of the token with these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Names the token's owner in logs, if the configuration contains the hash: `configured token`
    /// and the first eight digits of the hash.
    #[must_use]
    pub fn author(&self) -> String {
        format!("configured token {}", hex(&self.0[..4]))
    }
}

impl TokenHashes {
    /// The current hashes.
    #[must_use]
    pub fn current(&self) -> Arc<[TokenHash]> {
        // No code panics while it holds the lock, so the contents are consistent even if the lock
        // is poisoned.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces all hashes: from now on, only tokens with these hashes are accepted.
    pub fn replace(&self, hashes: &[TokenHash]) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = hashes.into();
    }

    /// Whether `presented` is an accepted token.
    #[must_use]
    pub fn accept(&self, presented: &[u8]) -> bool {
        TokenHash::any_matches(&self.current(), presented)
    }
}

impl From<Vec<TokenHash>> for TokenHashes {
    fn from(hashes: Vec<TokenHash>) -> Self {
        Self(Arc::new(RwLock::new(hashes.into())))
    }
}

impl PartialEq for TokenHashes {
    fn eq(&self, other: &Self) -> bool {
        self.current() == other.current()
    }
}

impl Eq for TokenHashes {}

impl fmt::Debug for TokenHashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.current().iter()).finish()
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// `bytes` as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let digit = |value| char::from_digit(u32::from(value), 16);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).flatten().collect()
}

#[cfg(test)]
mod tests;
