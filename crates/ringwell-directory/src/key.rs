//! Ring pool keys: the secrets that requests need to get numbers from pools.
//!
//! Owns their form, their masking and their comparison. Independent of pools. Invariants: `Debug`
//! and `Display` never show a key, so logs do not reveal it. The duration of a comparison does not
//! depend on the key, so response times do not reveal it.

use std::fmt;

/// One ring pool key: 8 to 64 bytes of printable ASCII without spaces, `&`, `%` or `+`.
///
/// The excluded bytes are those that need escapes in a URL query, so a key is the same text before
/// and after decoding.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RingPoolKey {
    bytes: u8,
    /// The key, padded with zero bytes; no key contains a zero byte.
    padded: [u8; Self::BYTES_MAX],
}

/// The first rule that an invalid key breaks. The error contains no part of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key is too short to be a secret, or too long.
    #[error("a ring pool key has 8 to 64 bytes, not {bytes}")]
    Length {
        /// Its length.
        bytes: usize,
    },
    /// The key contains a character that needs an escape in a URL query.
    #[error("a ring pool key is printable ASCII without spaces, `&`, `%` or `+`")]
    Character,
    /// A key from the sample configuration, which everyone can read.
    #[error("is a key of the sample configuration, which is public")]
    Sample,
}

impl KeyError {
    /// A hint about how to choose a key, if the message itself contains none.
    #[must_use]
    pub fn hint(self) -> Option<&'static str> {
        match self {
            Self::Sample => Some("generate a new key, e.g. with `openssl rand -hex 16`"),
            Self::Length { .. } | Self::Character => None,
        }
    }
}

impl RingPoolKey {
    /// The shortest key.
    pub const BYTES_MIN: usize = 8;
    /// The longest key.
    pub const BYTES_MAX: usize = 64;
    /// The beginning of the keys in the sample configuration.
    const SAMPLE: &str = "change-me";

    /// Reads a key.
    ///
    /// # Errors
    /// [`KeyError`] names the first rule that `text` breaks.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let bytes = text.len();
        let fits = (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes);
        let length = u8::try_from(bytes).ok().filter(|_| fits);
        let length = length.ok_or(KeyError::Length { bytes })?;
        if !text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'&' | b'%' | b'+')) {
            return Err(KeyError::Character);
        }
        let mut padded = [0; Self::BYTES_MAX];
        padded[..bytes].copy_from_slice(text.as_bytes());
        Ok(Self { padded, bytes: length })
    }

    /// Reads the key that a configuration or an operator sets for a pool.
    ///
    /// # Errors
    /// As for [`RingPoolKey::parse`], and [`KeyError::Sample`] for a key from the sample
    /// configuration.
    pub fn parse_chosen(text: &str) -> Result<Self, KeyError> {
        if text.starts_with(Self::SAMPLE) {
            return Err(KeyError::Sample);
        }
        Self::parse(text)
    }

    /// Whether `presented` is this key. To check both keys of a pool, see `Directory::check_key`.
    #[inline]
    #[must_use]
    pub fn matches(&self, presented: &[u8]) -> bool {
        self.difference(presented) == 0
    }

    /// The key itself, for files and requests that must contain it. Never for logs.
    #[must_use]
    pub fn reveal(&self) -> &str {
        // `parse` accepts only ASCII, so this never fails; the default is an empty key.
        str::from_utf8(&self.padded[..usize::from(self.bytes)]).unwrap_or_default()
    }

    /// A placeholder for a missing key; a comparison with it always fails.
    pub(crate) const NOBODY: Self = Self { padded: [0; Self::BYTES_MAX], bytes: u8::MAX };

    /// Returns zero if `presented` is this key. Every word is compared, even if earlier words
    /// differ, so the time depends only on the length of the presented text and not on the key.
    #[inline]
    pub(crate) fn difference(&self, presented: &[u8]) -> u64 {
        if let (Some(ours), Ok(theirs)) = (self.padded.first_chunk(), presented.try_into()) {
            let length = u64::from(self.bytes) ^ USUAL_BYTES as u64;
            return length | difference_of_usual(ours, theirs);
        }
        self.difference_of_any(presented)
    }

    #[inline(never)]
    fn difference_of_any(&self, presented: &[u8]) -> u64 {
        let (words, rest) = presented.as_chunks();
        let (ours, _) = self.padded.as_chunks();
        let mut difference = u64::from(presented.len() != usize::from(self.bytes));
        for (ours, theirs) in ours.iter().zip(words) {
            difference |= u64::from_ne_bytes(*ours) ^ u64::from_ne_bytes(*theirs);
        }
        // Words after the end of the longest possible key are not compared, but then the lengths
        // already differ.
        let ours = self.padded.get(words.len() * 8..).unwrap_or_default();
        for (ours, theirs) in ours.iter().zip(rest) {
            difference |= u64::from(ours ^ theirs);
        }
        difference
    }
}

/// The length of nearly all keys. Keys of this length are compared without a loop.
const USUAL_BYTES: usize = 32;

/// Returns zero if both keys are equal.
#[inline]
fn difference_of_usual(ours: &[u8; USUAL_BYTES], theirs: &[u8; USUAL_BYTES]) -> u64 {
    let words = ours.as_chunks().0.iter().zip(theirs.as_chunks().0);
    words.fold(0, |all, (ours, theirs)| {
        all | u64::from_ne_bytes(*ours) ^ u64::from_ne_bytes(*theirs)
    })
}

impl PartialEq for RingPoolKey {
    fn eq(&self, other: &Self) -> bool {
        self.matches(&other.padded[..usize::from(other.bytes)])
    }
}

impl Eq for RingPoolKey {}

impl fmt::Debug for RingPoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for RingPoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests;
