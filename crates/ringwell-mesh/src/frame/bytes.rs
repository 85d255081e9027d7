//! Appends values to a buffer, and reads values from a slice, checking every bound.
//!
//! Integers are LEB128 varints: seven bits per byte, lowest bits first. A reader accepts only the
//! shortest form of an integer, so that each value has exactly one encoding.

use core::ops::Range;

use ringwell_core::PromoNumber;

use super::error::FrameError;
use super::version::{NUMBERS_OF_THE_WORLD, VERSION};

/// The length of a promo number's code in version 1. The lowest byte comes first.
pub(super) const NUMBER_BYTES: usize = 5;
/// The length of a promo number's code in version 2 and later.
const LONG_NUMBER_BYTES: usize = 7;

/// The lowest version in which all of `numbers` can be written.
pub(super) fn version_for(numbers: impl IntoIterator<Item = PromoNumber>) -> u8 {
    let is_long = |number: PromoNumber| number.to_nanp().is_none();
    if numbers.into_iter().any(is_long) { NUMBERS_OF_THE_WORLD } else { 1 }
}

pub(super) fn put_start(out: &mut Vec<u8>, version: u8, kind: u8) {
    out.extend_from_slice(&[version, kind]);
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7F) as u8);
}

pub(super) fn put_number(out: &mut Vec<u8>, version: u8, number: PromoNumber) {
    let bytes = if version == 1 { NUMBER_BYTES } else { LONG_NUMBER_BYTES };
    out.extend_from_slice(&number.to_code().to_le_bytes()[..bytes]);
}

/// Reads through a frame. After an error, a reader must not be used again.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    rest: &'a [u8],
    version: u8,
    /// The lowest version that can express the values read so far.
    needs: u8,
}

impl<'a> Reader<'a> {
    /// Checks the version and the kind.
    pub(super) fn open(bytes: &'a [u8], wanted: u8) -> Result<Self, FrameError> {
        let mut frame = Self { bytes, rest: bytes, version: 0, needs: 1 };
        frame.version = frame.byte("version")?;
        if !(1..=VERSION).contains(&frame.version) {
            return Err(FrameError::Version { found: frame.version });
        }
        let found = frame.byte("kind")?;
        if found == wanted { Ok(frame) } else { Err(FrameError::Kind { found, wanted }) }
    }

    /// Whether the frame has version `version`. If so, the reader assumes from now on that no lower
    /// version could express the frame's contents.
    pub(super) fn takes(&mut self, version: u8) -> bool {
        let is_it = self.version == version;
        self.needs = if is_it { version } else { self.needs };
        is_it
    }

    /// Checks that the whole frame was read, and that no lower version could have expressed its
    /// contents.
    pub(super) fn close(self) -> Result<(), FrameError> {
        match self.rest.len() {
            0 if self.version > self.needs => Err(self.out_of_range("version")),
            0 => Ok(()),
            bytes => Err(FrameError::LeftOver { bytes }),
        }
    }

    /// Returns the error for a value that the field cannot have.
    pub(super) fn out_of_range(&self, field: &'static str) -> FrameError {
        FrameError::OutOfRange { field, offset: self.offset() }
    }

    pub(super) fn byte(&mut self, field: &'static str) -> Result<u8, FrameError> {
        self.array(field).map(|[byte]| byte)
    }

    /// Reads an integer, which must fit its type.
    pub(super) fn int<T: TryFrom<u64>>(&mut self, field: &'static str) -> Result<T, FrameError> {
        let value = self.varint(field)?;
        T::try_from(value).map_err(|_| self.out_of_range(field))
    }

    /// Reads a byte of flags, in which only bits of `known` may be set.
    pub(super) fn flags(&mut self, field: &'static str, known: u8) -> Result<u8, FrameError> {
        let flags = self.byte(field)?;
        if flags & !known == 0 { Ok(flags) } else { Err(self.out_of_range(field)) }
    }

    /// Reads the bytes that are present if `flag` is set.
    pub(super) fn optional<const N: usize>(
        &mut self,
        flag: u8,
        field: &'static str,
    ) -> Result<Option<[u8; N]>, FrameError> {
        if flag == 0 { Ok(None) } else { self.array(field).map(Some) }
    }

    pub(super) fn number(&mut self) -> Result<PromoNumber, FrameError> {
        let mut wide = [0; 8];
        if self.version == 1 {
            wide[..NUMBER_BYTES].copy_from_slice(&self.array::<NUMBER_BYTES>("promo number")?);
        } else {
            let code = self.array::<LONG_NUMBER_BYTES>("promo number")?;
            wide[..LONG_NUMBER_BYTES].copy_from_slice(&code);
        }
        let number = PromoNumber::from_code(u64::from_le_bytes(wide))
            .ok_or_else(|| self.out_of_range("promo number"))?;
        self.needs = self.needs.max(version_for([number]));
        Ok(number)
    }

    /// Skips the next `len` bytes, and returns their range in the frame.
    pub(super) fn range(
        &mut self,
        len: u64,
        field: &'static str,
    ) -> Result<Range<usize>, FrameError> {
        let start = self.offset();
        let len = usize::try_from(len).map_err(|_| self.cut_short(field))?;
        let (_, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.cut_short(field))?;
        self.rest = rest;
        Ok(start..start + len)
    }

    /// Reads the number of rows that follow. It must not exceed `rows_max`, nor the number of rows
    /// that can fit into the rest of the frame. The caller can therefore reserve memory for all of
    /// them at once.
    pub(super) fn rows(
        &mut self,
        rows_max: usize,
        row_bytes_min: usize,
    ) -> Result<usize, FrameError> {
        let rows = self.varint("number of rows")?;
        match usize::try_from(rows) {
            Ok(count) if count <= rows_max => self.with_room(count, row_bytes_min),
            _ => Err(FrameError::TooManyRows { rows, rows_max }),
        }
    }

    /// Like [`Self::rows`], but exactly the given number of rows must follow.
    pub(super) fn rows_exactly(
        &mut self,
        wanted: usize,
        row_bytes_min: usize,
    ) -> Result<usize, FrameError> {
        let found = self.varint("number of rows")?;
        if found != wanted as u64 {
            return Err(FrameError::RowCount { found, wanted });
        }
        self.with_room(wanted, row_bytes_min)
    }

    fn with_room(&self, count: usize, row_bytes_min: usize) -> Result<usize, FrameError> {
        if count <= self.rest.len() / row_bytes_min {
            Ok(count)
        } else {
            Err(self.cut_short("rows"))
        }
    }

    fn varint(&mut self, field: &'static str) -> Result<u64, FrameError> {
        let mut value = 0_u64;
        for index in 0..10 {
            let byte = self.byte(field)?;
            let bits = u64::from(byte & 0x7F);
            // Only one bit of the tenth byte fits into 64 bits.
            if index == 9 && bits > 1 {
                break;
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                let is_shortest = index == 0 || byte != 0;
                return if is_shortest { Ok(value) } else { Err(self.out_of_range(field)) };
            }
        }
        Err(self.out_of_range(field))
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], FrameError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or_else(|| self.cut_short(field))?;
        self.rest = rest;
        Ok(*head)
    }

    fn offset(&self) -> usize {
        self.bytes.len() - self.rest.len()
    }

    fn cut_short(&self, field: &'static str) -> FrameError {
        FrameError::CutShort { bytes: self.bytes.len(), field }
    }
}
