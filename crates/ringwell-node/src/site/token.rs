//! The signed strings that a page stores. Only this cluster can create them.
//!
//! A visitor's id is 16 random bytes. A lease contains the time until which a visitor keeps their
//! numbers. Both strings contain a keyed hash, so that a visitor can neither pose as another
//! visitor nor keep a number after its lease has lapsed.

use ringwell_core::Millis;
use subtle::ConstantTimeEq;

/// The length of a keyed hash, in bytes.
const MAC_BYTES: usize = 16;
/// The length of a visitor's id, in bytes.
const ID_BYTES: usize = 16;
/// Enough for three length-prefixed parts: a site's key, which has at most 63 bytes, and two parts
/// of 16 bytes each.
const SIGNED_BYTES_MAX: usize = 128;

/// Appends two hexadecimal digits for each byte.
pub(super) fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for piece in bytes.chunks(ID_BYTES) {
        let mut digits = [0; 2 * ID_BYTES];
        for (two, byte) in digits.chunks_exact_mut(2).zip(piece) {
            two[0] = DIGITS[usize::from(byte >> 4)];
            two[1] = DIGITS[usize::from(byte & 15)];
        }
        // Hexadecimal digits are valid UTF-8.
        text.push_str(str::from_utf8(&digits[..2 * piece.len()]).unwrap_or_default());
    }
}

/// Signs visitors' ids and leases with a secret key.
#[derive(Clone)]
pub(crate) struct Signer(blake3::Hash);

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// A visitor's id. Pages store it in a signed string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Visitor(pub(super) [u8; ID_BYTES]);

impl Signer {
    /// Creates a signer whose key is derived from `secret`. All nodes of a cluster have the same
    /// secret.
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self(blake3::derive_key("ringwell site visitors and leases v1", secret).into())
    }

    fn mac(&self, site: &str, about: &[u8], bytes: &[u8]) -> [u8; MAC_BYTES] {
        let mut text = [0; SIGNED_BYTES_MAX];
        let mut length = 0;
        for part in [site.as_bytes(), about, bytes] {
            for piece in [&(part.len() as u64).to_le_bytes()[..], part] {
                let Some(room) = text.get_mut(length..length + piece.len()) else {
                    // A site's key is never too long for this buffer.
                    return self.mac("", about, bytes);
                };
                room.copy_from_slice(piece);
                length += piece.len();
            }
        }
        let mut mac = [0; MAC_BYTES];
        let hash = blake3::keyed_hash(self.0.as_bytes(), &text[..length]);
        mac.copy_from_slice(&hash.as_bytes()[..MAC_BYTES]);
        mac
    }

    fn write(&self, site: &str, about: &[u8], bytes: &[u8]) -> String {
        let mac = self.mac(site, about, bytes);
        let mut text = String::with_capacity(2 * (bytes.len() + MAC_BYTES));
        push_hex(&mut text, bytes);
        push_hex(&mut text, &mac);
        text
    }

    fn read<const N: usize>(&self, site: &str, about: &[u8], text: &str) -> Option<[u8; N]> {
        if text.len() != 2 * (N + MAC_BYTES) || !text.is_ascii() {
            return None;
        }
        let byte = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok();
        let all: Vec<u8> = (0..N + MAC_BYTES).map(byte).collect::<Option<_>>()?;
        let (bytes, mac) = all.split_at(N);
        let is_ours = bool::from(self.mac(site, about, bytes).ct_eq(mac));
        is_ours.then(|| bytes.try_into().ok()).flatten()
    }

    /// Returns the signed string that contains the id of `visitor`, for `site`.
    pub(super) fn visitor_text(&self, site: &str, visitor: Visitor) -> String {
        self.write(site, b"visitor", &visitor.0)
    }

    /// Returns the visitor from a string that [`Signer::visitor_text`] created for the same site.
    pub(super) fn visitor(&self, site: &str, text: &str) -> Option<Visitor> {
        self.read(site, b"visitor", text).map(Visitor)
    }

    /// Returns `visitor`'s lease that ends at `until`, as a signed string.
    pub(super) fn lease_text(&self, site: &str, visitor: Visitor, until: Millis) -> String {
        self.write(site, &visitor.0, &until.0.to_be_bytes())
    }

    /// Returns the end of a lease from a string that [`Signer::lease_text`] created for the same
    /// site and visitor.
    pub(super) fn lease(&self, site: &str, visitor: Visitor, text: &str) -> Option<Millis> {
        self.read(site, &visitor.0, text).map(u64::from_be_bytes).map(Millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_signed_for_this_site_and_visitor_are_read_back() {
        let signer = Signer::new(b"secret of the cluster");
        let (visitor, other) = (Visitor([7; 16]), Visitor([8; 16]));
        let text = signer.visitor_text("pk_shop", visitor);
        assert_eq!(signer.visitor("pk_shop", &text), Some(visitor));
        assert_eq!(signer.visitor("pk_other", &text), None);
        assert_eq!(Signer::new(b"another secret").visitor("pk_shop", &text), None);
        for at in 0..text.len() {
            let mut forged = text.clone().into_bytes();
            forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(signer.visitor("pk_shop", str::from_utf8(&forged).unwrap()), None, "{at}");
        }
        for wrong in ["", "7", "ü", &"g".repeat(64), &text[..63], &format!("{text}00")] {
            assert_eq!(signer.visitor("pk_shop", wrong), None, "{wrong}");
        }
        let lease = Millis(1_800_005);
        let text = signer.lease_text("pk_shop", visitor, lease);
        assert_eq!(signer.lease("pk_shop", visitor, &text), Some(lease));
        assert_eq!(signer.lease("pk_shop", other, &text), None);
        assert_eq!(signer.lease("pk_other", visitor, &text), None);
    }
}
