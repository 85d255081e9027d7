//! A reusable buffer whose start is aligned to a block, as direct writes require.

use ringwell_journal::BLOCK_BYTES;

/// A buffer for one frame. It is aligned without unsafe code: it allocates one block more than
/// needed, and uses the aligned part.
#[derive(Debug, Default)]
pub(super) struct AlignedBuffer {
    bytes: Vec<u8>,
}

impl AlignedBuffer {
    /// Returns `len` aligned bytes with arbitrary contents. Allocates memory only to grow.
    pub(super) fn slice(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len + BLOCK_BYTES {
            // Leaves room to grow, because groups vary in length.
            self.bytes = vec![0; (len + BLOCK_BYTES).next_power_of_two()];
        }
        let start = self.bytes.as_ptr().align_offset(BLOCK_BYTES);
        &mut self.bytes[start..start + len]
    }
}
