//! Promo numbers: the telephone numbers that are handed out.

use core::fmt;
use core::num::NonZeroU64;

/// Telephone number shown to one visitor: ten digits, the first from 2 to 9.
/// Holding one proves that the check was made. Source: docs/glossary.md, "promo number".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromoNumber(NonZeroU64);

/// The first rule that a text breaks which should have been a promo number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberError {
    /// Not ten bytes long.
    Length {
        /// How long it is.
        bytes: usize,
    },
    /// Something else than `0` to `9`.
    NotADigit,
    /// Area codes do not start with 0 or 1.
    AreaCode,
}

impl PromoNumber {
    /// Digits of every promo number.
    pub const DIGITS: usize = 10;
    const FIRST: u64 = 2_000_000_000;
    const LAST: u64 = 9_999_999_999;
    /// No promo number: stands in slots that no pool has.
    pub(crate) const NOBODY: Self = Self(NonZeroU64::MIN);

    /// Reads ten digits without punctuation, as in `"8885550142"`.
    ///
    /// # Errors
    /// [`NumberError`] names the first rule that `text` breaks.
    pub fn parse(text: &str) -> Result<Self, NumberError> {
        match text.as_bytes() {
            digits if digits.len() != Self::DIGITS => {
                Err(NumberError::Length { bytes: digits.len() })
            }
            digits if !digits.iter().all(u8::is_ascii_digit) => Err(NumberError::NotADigit),
            [b'0' | b'1', ..] => Err(NumberError::AreaCode),
            digits => {
                let value = digits.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0'));
                // Ten digits, the first from 2 to 9: always a promo number.
                Self::from_u64(value).ok_or(NumberError::AreaCode)
            }
        }
    }

    /// The promo number whose digits, read as one integer, are `value`; `None` if there is none.
    #[must_use]
    pub const fn from_u64(value: u64) -> Option<Self> {
        match NonZeroU64::new(value) {
            Some(number) if value >= Self::FIRST && value <= Self::LAST => Some(Self(number)),
            _ => None,
        }
    }

    /// The ten digits read as one integer.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for PromoNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { bytes } => {
                write!(f, "a promo number has ten digits without punctuation, not {bytes} bytes")
            }
            Self::NotADigit => f.write_str("a promo number has only the digits 0 to 9"),
            Self::AreaCode => f.write_str("a promo number does not start with 0 or 1"),
        }
    }
}

impl core::error::Error for NumberError {}

/// Promo numbers in a row: `count` of them from `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberRange {
    first: PromoNumber,
    count: u32,
}

impl NumberRange {
    /// `count` numbers from `first` on; `None` if that is no number at all or leaves ten digits.
    #[must_use]
    pub fn new(first: PromoNumber, count: u32) -> Option<Self> {
        let last = first.to_u64() + u64::from(count.checked_sub(1)?);
        PromoNumber::from_u64(last).map(|_| Self { first, count })
    }

    /// The lowest number.
    #[must_use]
    pub const fn first(self) -> PromoNumber {
        self.first
    }

    /// The highest number.
    #[must_use]
    pub const fn last(self) -> PromoNumber {
        // `new` has seen that this is a number.
        match PromoNumber::from_u64(self.first.to_u64() + self.count as u64 - 1) {
            Some(last) => last,
            None => self.first,
        }
    }

    /// How many numbers: at least one.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Whether `number` is one of them.
    #[must_use]
    pub fn contains(self, number: PromoNumber) -> bool {
        self.first <= number && number <= self.last()
    }

    /// The same numbers in ranges of at most `most` numbers, lowest first.
    pub fn pieces(self, most: u32) -> impl Iterator<Item = Self> {
        let (Self { first, count }, most) = (self, most.max(1));
        (0..count.div_ceil(most)).filter_map(move |piece| {
            let from = piece * most;
            let first = PromoNumber::from_u64(first.to_u64() + u64::from(from))?;
            Self::new(first, most.min(count - from))
        })
    }

    /// The numbers in rising order.
    pub fn iter(self) -> impl Iterator<Item = PromoNumber> + Clone {
        (self.first.to_u64()..=self.last().to_u64()).filter_map(PromoNumber::from_u64)
    }
}

#[cfg(test)]
mod tests;
