//! Writes values to a small buffer and reads them from a slice, with every bound checked.
//!
//! Varints are LEB128: seven bits per byte, least significant bits first. A reader accepts only the
//! shortest form, so that every value has a single encoding.

/// The records of the open group. Space for each record is reserved before the record is written,
/// so that bounds are checked only once per record. The reserved bytes contain zeros or old bytes
/// from earlier groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    bytes: Vec<u8>,
    len: usize,
    /// The final length of the previous group.
    usual: usize,
}

impl Body {
    /// The buffer grows by this many bytes more than requested.
    const GROWTH: usize = 4_096;

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the free bytes after the used ones, and grows the buffer first if fewer than
    /// `wanted` are free.
    #[inline]
    pub(crate) fn room(&mut self, wanted: usize) -> &mut [u8] {
        if self.bytes.len() - self.len < wanted {
            self.grow(wanted);
        }
        &mut self.bytes[self.len..]
    }

    #[cold]
    fn grow(&mut self, wanted: usize) {
        let growth = wanted + Self::GROWTH;
        if self.bytes.is_empty() {
            // A new allocation of zeroed memory costs nothing until the memory is used.
            self.bytes = vec![0; self.usual + growth];
        } else {
            // Grows only as far as needed, because the added bytes must be filled with zeros.
            self.bytes.resize(self.len + growth, 0);
        }
        assert!(self.bytes.len() - self.len >= wanted, "the buffer has less room than requested");
    }

    /// Marks the next `count` bytes as used. They must already have been written.
    #[inline]
    pub(crate) fn advance(&mut self, count: usize) {
        self.len += count;
    }

    /// Returns the used bytes, and continues with `spare` as the buffer.
    pub(crate) fn take(&mut self, spare: Vec<u8>) -> Vec<u8> {
        let mut bytes = std::mem::replace(&mut self.bytes, spare);
        self.usual = std::mem::take(&mut self.len);
        assert!(self.usual <= bytes.len(), "more bytes were written than the buffer can hold");
        bytes.truncate(self.usual);
        bytes
    }
}

/// The size of the buffer for a header. A whole word written at any possible offset stays within
/// the buffer, so no bounds check is needed.
pub(crate) const ROOM: usize = u8::MAX as usize + size_of::<u64>();

/// The header of one record, built where it will be stored. Bytes that were just written are not
/// read again, because a wide load from the target of narrow stores would stall the processor.
pub(crate) struct Scratch<'a> {
    bytes: &'a mut [u8; ROOM],
    /// The length so far, at most [`Self::BYTES`].
    len: u8,
}

#[expect(clippy::inline_always, reason = "measured: see `record::encode`")]
impl<'a> Scratch<'a> {
    /// Every record is shorter than this, not counting its parameters.
    pub(crate) const BYTES: usize = 128;

    pub(crate) fn new(bytes: &'a mut [u8; ROOM]) -> Self {
        Self { bytes, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Writes a word, but uses only its first `count` bytes. The next write overwrites the
    /// remaining bytes.
    #[inline(always)]
    fn word(&mut self, word: u64, count: u8) {
        let at = usize::from(self.len);
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        self.len = self.len.wrapping_add(count);
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self, value: u8) {
        self.bytes[usize::from(self.len)] = value;
        self.len = self.len.wrapping_add(1);
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, index: usize, value: u8) {
        self.bytes[index] = value;
    }

    #[inline(always)]
    pub(crate) fn array<const N: usize>(&mut self, value: &[u8; N]) {
        let at = usize::from(self.len);
        self.bytes[at..at + N].copy_from_slice(value);
        self.len = self.len.wrapping_add(u8::try_from(N).unwrap_or(u8::MAX));
    }

    /// Writes the low five bytes of `value`.
    #[inline(always)]
    pub(crate) fn five_bytes(&mut self, value: u64) {
        self.word(value, 5);
    }

    /// Writes the low seven bytes of `value`.
    #[inline(always)]
    pub(crate) fn seven_bytes(&mut self, value: u64) {
        self.word(value, 7);
    }

    #[inline(always)]
    pub(crate) fn varint(&mut self, value: u64) {
        match u32::try_from(value) {
            Ok(value) if value < 1 << 28 => self.short_varint(value),
            _ => self.long_varint(value),
        }
    }

    /// Writes two consecutive varints. If both are short, their bits are spread in one step.
    #[inline(always)]
    pub(crate) fn varints(&mut self, first: u64, second: u64) {
        if (first | second) >= 1 << 28 {
            self.varint(first);
            self.varint(second);
            return;
        }
        let both = spread(first | second << 32);
        let (goes_on, len) = SHORT_VARINTS[(first | 1).ilog2() as usize & 31];
        self.word(both & u64::from(u32::MAX) | u64::from(goes_on), len);
        let (goes_on, len) = SHORT_VARINTS[(second | 1).ilog2() as usize & 31];
        self.word(both >> 32 | u64::from(goes_on), len);
    }

    /// Writes a varint that is nearly always one byte long.
    #[inline(always)]
    pub(crate) fn small_varint(&mut self, value: u64) {
        match u8::try_from(value) {
            Ok(value) if value < 0x80 => self.byte(value),
            _ => self.varint(value),
        }
    }

    /// Writes up to four bytes at once, because a branch on their count is hard to predict.
    #[inline(always)]
    fn short_varint(&mut self, value: u32) {
        let (goes_on, len) = SHORT_VARINTS[(value | 1).ilog2() as usize];
        self.word(spread(u64::from(value)) | u64::from(goes_on), len);
    }

    #[cold]
    fn long_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte((value & 0x7F) as u8 | 0x80);
            value >>= 7;
        }
        self.byte((value & 0x7F) as u8);
    }
}

/// Spreads the low 28 bits of each half of a word over the four bytes of that half, seven bits per
/// byte.
#[inline]
const fn spread(halves: u64) -> u64 {
    let fours = halves & 0x3FFF_0000_3FFF | (halves & 0x0FFF_C000_0FFF_C000) << 2;
    fours & 0x007F_007F_007F_007F | (fours & 0x3F80_3F80_3F80_3F80) << 1
}

/// A varint's continuation bits and length, indexed by the position of the highest bit set in its
/// value. The entries for varints longer than four bytes are not used.
const SHORT_VARINTS: [(u32, u8); 32] = {
    let mut all = [(0x0080_8080, 4); 32];
    let mut bit = 0;
    while bit < 21 {
        all[bit] = match bit / 7 {
            0 => (0, 1),
            1 => (0x80, 2),
            _ => (0x8080, 3),
        };
        bit += 1;
    }
    all
};

/// Reads from a slice. Every method returns `None` if there are not enough bytes.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*head)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads a little-endian integer of `N` bytes, at most eight.
    #[inline]
    pub(crate) fn uint<const N: usize>(&mut self) -> Option<u64> {
        let mut wide = [0; 8];
        wide.get_mut(..N)?.copy_from_slice(&self.array::<N>()?);
        Some(u64::from_le_bytes(wide))
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a varint, which must be in its shortest form.
    #[inline]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for index in 0..10 {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            // Only the lowest bit of the tenth byte may be set, because a value has 64 bits.
            if index == 9 && bits > 1 {
                return None;
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                let shortest = index == 0 || byte != 0;
                return shortest.then_some(value);
            }
        }
        None
    }

    /// Reads a varint that must fit in 32 bits.
    #[inline]
    pub(crate) fn varint_u32(&mut self) -> Option<u32> {
        self.varint().and_then(|value| u32::try_from(value).ok())
    }
}

#[cfg(test)]
mod tests;
