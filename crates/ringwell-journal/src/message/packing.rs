//! Compresses message bodies with zstd at level 1, if this build contains zstd.
//!
//! Positions refer to the uncompressed body, so compression affects only messages. The message's
//! header, which has its own checksum, contains the uncompressed length. A body that decompresses
//! to more bytes than this length is refused.

use std::fmt;

/// The uncompressed body.
pub(super) const PLAIN: u32 = 0;
/// One zstd frame.
pub(super) const ZSTD: u32 = 1;

/// The fastest level that finds repetitions. Higher levels save too little for the time they take.
#[cfg(feature = "zstd")]
const LEVEL: i32 = 1;

/// The minimum length of a body that is compressed. Compressing a shorter body, such as a single
/// tick, gains nothing.
#[cfg(feature = "zstd")]
const BYTES_MIN: usize = 128;

/// Compresses bodies. Reuses its working memory from body to body.
#[derive(Default)]
pub struct Packer {
    #[cfg(feature = "zstd")]
    compressor: Option<zstd::bulk::Compressor<'static>>,
}

impl Packer {
    /// Returns the compressed form of a body, if it is shorter than the body.
    #[cfg(feature = "zstd")]
    pub(super) fn pack(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        if body.len() < BYTES_MIN {
            return None;
        }
        if self.compressor.is_none() {
            self.compressor = zstd::bulk::Compressor::new(LEVEL).ok();
        }
        let packed = self.compressor.as_mut()?.compress(body).ok()?;
        (packed.len() < body.len()).then_some(packed)
    }

    /// Returns `None`, because this build contains no zstd.
    #[cfg(not(feature = "zstd"))]
    #[expect(clippy::unused_self, reason = "builds with zstd use `self`")]
    pub(super) fn pack(&mut self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Returns the decompressed body, or `None` if `packed` is damaged or the body would exceed
/// `bytes_max` bytes.
#[cfg(feature = "zstd")]
pub(super) fn unpack(packed: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    zstd::bulk::decompress(packed, bytes_max).ok()
}

#[cfg(not(feature = "zstd"))]
pub(super) fn unpack(_: &[u8], _: usize) -> Option<Vec<u8>> {
    None
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Packer")
    }
}
