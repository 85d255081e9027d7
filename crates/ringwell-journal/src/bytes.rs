//! Writing into a small buffer and reading from a slice, with every bound checked.
//!
//! Varints are LEB128: seven bits a byte, lowest first. A reader takes the shortest form only, so
//! that a value has one encoding.

/// Header of one record while it is put together, in the place where it will stay. Nothing that
/// was written is read again: a wide load of what narrow stores have just left waits for them.
pub(crate) struct Scratch<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

#[expect(clippy::inline_always, reason = "measured: see `record::encode`")]
impl<'a> Scratch<'a> {
    /// Longer than every record without its parameters.
    pub(crate) const BYTES: usize = 128;

    /// `bytes` are [`Self::BYTES`] zeros.
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self, value: u8) {
        self.bytes[self.len] = value;
        self.len += 1;
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, index: usize, value: u8) {
        self.bytes[index] = value;
    }

    #[inline(always)]
    pub(crate) fn slice(&mut self, value: &[u8]) {
        self.bytes[self.len..self.len + value.len()].copy_from_slice(value);
        self.len += value.len();
    }

    #[inline(always)]
    pub(crate) fn varint(&mut self, value: u64) {
        match u32::try_from(value) {
            Ok(value) if value < 1 << 28 => self.short_varint(value),
            _ => self.long_varint(value),
        }
    }

    /// Up to four bytes at once, because their count is hard to foresee.
    #[inline(always)]
    fn short_varint(&mut self, value: u32) {
        let spread = value & 0x7F
            | (value & 0x3F80) << 1
            | (value & 0x001F_C000) << 2
            | (value & 0x0FE0_0000) << 3;
        let highest = (value | 1).ilog2();
        let before_last = highest / 7;
        let goes_on = 0x0080_8080 & ((1 << (8 * before_last)) - 1);
        self.bytes[self.len..self.len + 4].copy_from_slice(&(spread | goes_on).to_le_bytes());
        self.len += before_last as usize + 1;
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

/// Reads on through a slice; `None` as soon as something is not there.
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

    /// A number of `N` bytes, at most eight, lowest first.
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

    /// A varint in its shortest form.
    #[inline]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for index in 0..10 {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            // The tenth byte has room for one bit.
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

    /// A varint that fits 32 bits.
    #[inline]
    pub(crate) fn varint_u32(&mut self) -> Option<u32> {
        self.varint().and_then(|value| u32::try_from(value).ok())
    }
}

#[cfg(test)]
mod tests;
