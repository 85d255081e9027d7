//! The damage that a disk may cause.

use ringwell_journal::BLOCK_BYTES;

use super::files::Files;
use super::{HEADER_BYTES, STAMP_BYTES, sample};

/// One fault. Damage at a position outside the file has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Flips some bits of a byte.
    Flip {
        /// The segment.
        segno: u64,
        /// The byte.
        at: usize,
        /// The bits to flip.
        bits: u8,
    },
    /// Overwrites bytes with one value: zeros simulate a lost write.
    Fill {
        /// The segment.
        segno: u64,
        /// The first byte.
        at: usize,
        /// The count.
        len: usize,
        /// The new bytes.
        value: u8,
    },
    /// Copies a block to another position, like a misdirected write.
    Stray {
        /// The segment of the block, and its index there.
        from: (u64, usize),
        /// The segment and the index of the block to overwrite.
        to: (u64, usize),
    },
    /// Truncates a file.
    Truncate {
        /// The segment.
        segno: u64,
        /// Its new length.
        len: usize,
    },
    /// Removes a file.
    Remove {
        /// The segment.
        segno: u64,
    },
    /// Swaps the names of two files.
    Swap {
        /// One segment.
        a: u64,
        /// The other.
        b: u64,
    },
    /// Recomputes the checksum of a frame's header, so that changed contents look valid.
    Forge {
        /// The segment.
        segno: u64,
        /// The frame's first block.
        block: usize,
    },
}

impl Damage {
    /// Reads six bytes as a fault: the kind, the segment, the position, and two parameters. If the
    /// kind's highest bit is set, the position moves to the beginning of a block, where the stamp
    /// and the header are.
    #[must_use]
    pub fn read(bytes: &[u8; 6]) -> Self {
        let [kind, segment, low, high, first, second] = *bytes;
        let segno = 1 + u64::from(segment) % sample::SEGMENTS;
        let other = 1 + u64::from(segment >> 4) % sample::SEGMENTS;
        let (low, high) = (usize::from(low), usize::from(high));
        let block = high % sample::BLOCKS;
        let at = if kind & 0x80 == 0 { high << 8 | low } else { block * BLOCK_BYTES + low };
        match kind % 7 {
            0 => Self::Flip { segno, at, bits: first },
            1 => Self::Fill { segno, at, len: 1 + 48 * usize::from(first), value: second },
            2 => Self::Stray { from: (other, low % sample::BLOCKS), to: (segno, block) },
            3 => Self::Truncate { segno, len: at },
            4 => Self::Remove { segno },
            5 => Self::Swap { a: segno, b: other },
            _ => Self::Forge { segno, block },
        }
    }

    pub(super) fn strike(self, files: &mut Files) {
        match self {
            Self::Flip { segno, at, bits } => {
                if let Some(byte) = files.0.get_mut(&segno).and_then(|file| file.get_mut(at)) {
                    *byte ^= bits;
                }
            }
            Self::Fill { segno, at, len, value } => {
                let Some(file) = files.0.get_mut(&segno) else { return };
                let end = file.len().min(at.saturating_add(len));
                if let Some(bytes) = file.get_mut(at..end) {
                    bytes.fill(value);
                }
            }
            Self::Stray { from, to } => {
                let Some(block) = block(files, from).map(<[u8]>::to_vec) else { return };
                if let Some(place) = block_mut(files, to) {
                    place.copy_from_slice(&block);
                }
            }
            Self::Truncate { segno, len } => {
                if let Some(file) = files.0.get_mut(&segno) {
                    file.truncate(len);
                }
            }
            Self::Remove { segno } => {
                files.0.remove(&segno);
            }
            Self::Swap { a, b } => {
                let (first, second) = (files.0.remove(&a), files.0.remove(&b));
                files.0.extend(first.map(|file| (b, file)));
                files.0.extend(second.map(|file| (a, file)));
            }
            Self::Forge { segno, block } => {
                let Some(block) = block_mut(files, (segno, block)) else { return };
                let (header, crc) = block[STAMP_BYTES..].split_at_mut(HEADER_BYTES - 4);
                crc[..4].copy_from_slice(&crc32c::crc32c(header).to_le_bytes());
            }
        }
    }
}

fn block(files: &Files, (segno, index): (u64, usize)) -> Option<&[u8]> {
    files.0.get(&segno)?.get(index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES)
}

fn block_mut(files: &mut Files, (segno, index): (u64, usize)) -> Option<&mut [u8]> {
    files.0.get_mut(&segno)?.get_mut(index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES)
}
