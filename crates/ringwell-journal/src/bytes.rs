//! Writing into a small buffer and reading from a slice, with every bound checked.
//!
//! Varints are LEB128: seven bits a byte, lowest first. A reader takes the shortest form only, so
//! that a value has one encoding.

/// Header of one record while it is put together: on the stack, so that the body grows once.
pub(crate) struct Scratch {
    bytes: [u8; Self::BYTES],
    len: usize,
}

impl Scratch {
    /// Longer than every record without its parameters.
    pub(crate) const BYTES: usize = 128;

    pub(crate) fn new() -> Self {
        Self { bytes: [0; Self::BYTES], len: 0 }
    }

    #[inline]
    pub(crate) fn byte(&mut self, value: u8) {
        self.bytes[self.len] = value;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn set_bits(&mut self, index: usize, bits: u8) {
        self.bytes[index] |= bits;
    }

    #[inline]
    pub(crate) fn slice(&mut self, value: &[u8]) {
        self.bytes[self.len..self.len + value.len()].copy_from_slice(value);
        self.len += value.len();
    }

    #[inline]
    pub(crate) fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte((value & 0x7F) as u8 | 0x80);
            value >>= 7;
        }
        self.byte((value & 0x7F) as u8);
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
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
