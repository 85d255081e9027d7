//! Promo numbers: the telephone numbers that are handed out.

use core::fmt;
use core::num::NonZeroU64;

/// A telephone number that is shown to one visitor: the digits of its E.164 form, starting with the
/// country code.
///
/// Has at most 15 digits and does not start with 0. With country code 1 it has exactly eleven
/// digits, and its area code begins with 2 to 9. A value of this type has passed these checks. The
/// checks do not cover whether the number is in use in its country. Source: docs/glossary.md,
/// "promo number".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromoNumber(NonZeroU64);

/// The first rule that an invalid promo number breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberError {
    /// The text has no country code and is not ten bytes long.
    Length {
        /// The length of the text in bytes.
        bytes: usize,
    },
    /// The text contains a character that [`PromoNumber::parse`] does not accept.
    NotADigit,
    /// The area code starts with 0 or 1.
    AreaCode,
    /// The text has a country code but is not an E.164 number.
    International,
}

/// Added to the ten digits of a number with country code 1 to get its E.164 digits.
const NANP: u64 = 10_000_000_000;

impl PromoNumber {
    /// The number of digits of a number with country code 1, not counting the country code.
    pub const NANP_DIGITS: usize = 10;
    /// The maximum number of digits, including the country code.
    pub const DIGITS_MAX: usize = 15;
    /// The lowest number with country code 1.
    pub const NANP_FIRST: Self = Self::constant(12_000_000_000);
    /// The highest number with country code 1.
    pub const NANP_LAST: Self = Self::constant(19_999_999_999);
    /// The E.164 digits of the lowest number. The shortest numbers, those in Niue, have seven
    /// digits, including the country code.
    const FIRST: u64 = 2_000_000;
    const LAST: u64 = 999_999_999_999_999;
    /// Added to the E.164 digits to get the [code](Self::to_code) of a number with a country code
    /// other than 1.
    const CODE: u64 = 1_000_000_000_000_000;
    /// Not a promo number: fills the slots that belong to no pool.
    pub(crate) const NOBODY: Self = Self(NonZeroU64::MIN);

    const fn constant(value: u64) -> Self {
        match Self::from_e164(value) {
            Some(number) => number,
            None => Self::NOBODY,
        }
    }

    /// Parses ten digits without punctuation as a number with country code 1, as in `"8885550142"`.
    /// Text that begins with `+` or `00` contains a country code, and may contain spaces, hyphens,
    /// dots and parentheses: `"+49 30 123456"`.
    ///
    /// # Errors
    /// [`NumberError`] names the first rule that `text` breaks.
    pub fn parse(text: &str) -> Result<Self, NumberError> {
        if let Some(rest) = text.strip_prefix('+').or_else(|| text.strip_prefix("00")) {
            return Self::parse_international(rest);
        }
        match text.as_bytes() {
            digits if digits.len() != Self::NANP_DIGITS => {
                Err(NumberError::Length { bytes: digits.len() })
            }
            digits if !digits.iter().all(u8::is_ascii_digit) => Err(NumberError::NotADigit),
            digits => {
                let value = digits.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0'));
                Self::from_e164(NANP + value).ok_or(NumberError::AreaCode)
            }
        }
    }

    /// Parses the digits after `+` or `00`.
    fn parse_international(text: &str) -> Result<Self, NumberError> {
        // In "+49 (0)30", for example, the zero is dialed only within the country and is not part
        // of the number.
        if text.contains("(0") {
            return Err(NumberError::International);
        }
        let (mut value, mut count) = (0, 0);
        for byte in text.bytes() {
            match byte {
                b'0'..=b'9' if count < Self::DIGITS_MAX => {
                    value = value * 10 + u64::from(byte - b'0');
                    count += 1;
                }
                b'0'..=b'9' => return Err(NumberError::International),
                b' ' | b'-' | b'.' | b'(' | b')' if count > 0 => {}
                _ => return Err(NumberError::NotADigit),
            }
        }
        let is_whole = !text.starts_with('0');
        Self::from_e164(value).filter(|_| is_whole).ok_or(NumberError::International)
    }

    /// Returns the promo number whose E.164 digits, read as one integer, are `value`, or `None` if
    /// there is no such number.
    #[must_use]
    pub const fn from_e164(value: u64) -> Option<Self> {
        let is_number = match value {
            ..Self::FIRST => false,
            // Numbers with country code 1 are the most common, and the only ones with a fixed
            // length.
            12_000_000_000..=19_999_999_999 => true,
            Self::FIRST..=Self::LAST => !begins_with_one(value),
            _ => false,
        };
        match NonZeroU64::new(value) {
            Some(number) if is_number => Some(Self(number)),
            _ => None,
        }
    }

    /// Returns the E.164 digits as one integer.
    #[must_use]
    pub const fn to_e164(self) -> u64 {
        self.0.get()
    }

    /// Returns the ten digits of a number with country code 1 as one integer, or `None` for other
    /// country codes.
    #[inline]
    #[must_use]
    pub const fn to_nanp(self) -> Option<u64> {
        // Only numbers with country code 1 have eleven digits and start with 1.
        let digits = self.0.get().wrapping_sub(NANP);
        if digits < NANP { Some(digits) } else { None }
    }

    /// Returns the *code* that represents the number in journals, links and idempotent answers: its
    /// ten digits if the country code is 1, otherwise 10^15 plus its E.164 digits.
    #[inline]
    #[must_use]
    pub const fn to_code(self) -> u64 {
        match self.to_nanp() {
            Some(digits) => digits,
            None => Self::CODE + self.0.get(),
        }
    }

    /// Returns the promo number that a [code](Self::to_code) represents, or `None` if the code is
    /// invalid.
    #[must_use]
    pub const fn from_code(code: u64) -> Option<Self> {
        if code < NANP {
            return Self::from_e164(NANP + code);
        }
        match code.checked_sub(Self::CODE) {
            Some(value) => match Self::from_e164(value) {
                // Numbers with country code 1 have only the ten-digit code.
                Some(number) if number.to_nanp().is_none() => Some(number),
                _ => None,
            },
            None => None,
        }
    }
}

/// Whether the decimal digits of `value` begin with 1.
const fn begins_with_one(mut value: u64) -> bool {
    while value >= 10 {
        value /= 10;
    }
    value == 1
}

/// Writes the form that [`PromoNumber::parse`] reads: ten digits if the country code is 1,
/// otherwise `+` and all digits.
impl fmt::Display for PromoNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_nanp() {
            Some(digits) => digits.fmt(f),
            None => write!(f, "+{}", self.0),
        }
    }
}

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { bytes } => write!(
                f,
                "a promo number needs ten digits without punctuation, or a + and its country code; \
                 this one has {bytes} bytes"
            ),
            Self::NotADigit => f.write_str("a promo number may contain only the digits 0 to 9"),
            Self::AreaCode => f.write_str("an area code cannot start with 0 or 1"),
            Self::International => f.write_str(
                "an international promo number starts with a + and its country code, has at most \
                 15 digits, and contains no (0)",
            ),
        }
    }
}

impl core::error::Error for NumberError {}

/// `count` consecutive promo numbers, starting with `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberRange {
    first: PromoNumber,
    count: u32,
}

impl NumberRange {
    /// Returns `count` consecutive numbers starting with `first`. Returns `None` if `count` is
    /// zero, or if the last number would have more digits than the first. Also returns `None` if
    /// the first number has country code 1 but the last would not.
    #[must_use]
    pub fn new(first: PromoNumber, count: u32) -> Option<Self> {
        let last = first.to_e164() + u64::from(count.checked_sub(1)?);
        // If two valid numbers have the same length and neither has country code 1, every integer
        // between them is a valid number.
        let is_alike = |last: PromoNumber| {
            last.to_nanp().is_some() == first.to_nanp().is_some()
                && last.0.ilog10() == first.0.ilog10()
        };
        PromoNumber::from_e164(last).filter(|last| is_alike(*last)).map(|_| Self { first, count })
    }

    /// Returns the numbers from `first` to `last`. Returns `None` if they do not form a range, or
    /// if the range would contain 2^32 numbers or more.
    #[must_use]
    pub fn between(first: PromoNumber, last: PromoNumber) -> Option<Self> {
        let count = last.to_e164().checked_sub(first.to_e164())? + 1;
        Self::new(first, u32::try_from(count).ok()?)
    }

    /// Parses a range such as `8885550100-8885550149`, or one number.
    ///
    /// # Errors
    /// [`NumberError`] names the first rule that either number breaks. If both are valid but do not
    /// form a range, the result is `Ok(None)`.
    pub fn parse(text: &str) -> Result<Option<Self>, NumberError> {
        let text = text.trim();
        // A single number may itself contain hyphens.
        if let Ok(one) = PromoNumber::parse(text) {
            return Ok(Self::new(one, 1));
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| PromoNumber::parse(text.trim());
        Ok(Self::between(number(first)?, number(last)?))
    }

    /// The lowest number.
    #[must_use]
    pub const fn first(self) -> PromoNumber {
        self.first
    }

    /// The highest number.
    #[must_use]
    pub const fn last(self) -> PromoNumber {
        // `new` has checked that the last number is valid.
        match PromoNumber::from_e164(self.first.to_e164() + self.count as u64 - 1) {
            Some(last) => last,
            None => self.first,
        }
    }

    /// The count of numbers, which is at least one.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Whether the range contains `number`.
    #[must_use]
    pub fn contains(self, number: PromoNumber) -> bool {
        self.first <= number && number <= self.last()
    }

    /// Splits the range into ranges of at most `most` numbers, in ascending order.
    pub fn pieces(self, most: u32) -> impl Iterator<Item = Self> {
        let (Self { first, count }, most) = (self, most.max(1));
        (0..count.div_ceil(most)).filter_map(move |piece| {
            let from = piece * most;
            let first = PromoNumber::from_e164(first.to_e164() + u64::from(from))?;
            Self::new(first, most.min(count - from))
        })
    }

    /// Iterates over the numbers in ascending order.
    pub fn iter(self) -> impl Iterator<Item = PromoNumber> + Clone {
        (self.first.to_e164()..=self.last().to_e164()).filter_map(PromoNumber::from_e164)
    }
}

#[cfg(test)]
mod tests;
