//! Promo numbers: the telephone numbers that are handed out.

use core::fmt;
use core::num::NonZeroU64;

/// Telephone number shown to one visitor: the digits of its E.164 form, country code first.
///
/// At most 15 digits, the first not 0; with country code 1 exactly eleven, and the area code begins
/// with 2 to 9. A value of this type proves that the check was made. Whether a number is in use in
/// its country is not checked here. Source: docs/glossary.md, "promo number".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromoNumber(NonZeroU64);

/// The first rule broken by a text that is not a promo number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberError {
    /// The text is not ten bytes long and has no country code.
    Length {
        /// The number of digits.
        bytes: usize,
    },
    /// A character other than `0` to `9`.
    NotADigit,
    /// Area codes do not start with 0 or 1.
    AreaCode,
    /// The text has a country code but is not an E.164 number.
    International,
}

/// Added to the ten digits of a number of country code 1 to get its E.164 digits.
const NANP: u64 = 10_000_000_000;

impl PromoNumber {
    /// Digits of a number of country code 1 without that code.
    pub const NANP_DIGITS: usize = 10;
    /// Most digits of a number with its country code.
    pub const DIGITS_MAX: usize = 15;
    /// The lowest number of country code 1.
    pub const NANP_FIRST: Self = Self::constant(12_000_000_000);
    /// The highest number of country code 1.
    pub const NANP_LAST: Self = Self::constant(19_999_999_999);
    /// Fewest digits of a number with its country code: those of Niue have seven.
    const FIRST: u64 = 2_000_000;
    const LAST: u64 = 999_999_999_999_999;
    /// Added to the E.164 digits in a [code](Self::to_code) of another country.
    const CODE: u64 = 1_000_000_000_000_000;
    /// Not a promo number: fills slots that belong to no pool.
    pub(crate) const NOBODY: Self = Self(NonZeroU64::MIN);

    const fn constant(value: u64) -> Self {
        match Self::from_e164(value) {
            Some(number) => number,
            None => Self::NOBODY,
        }
    }

    /// Reads ten digits without punctuation as a number of country code 1, as in `"8885550142"`.
    /// A text that begins with `+` or `00` has a country code, and may have spaces, hyphens, dots
    /// and parentheses: `"+49 30 123456"`.
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

    /// Reads the digits after `+`.
    fn parse_international(text: &str) -> Result<Self, NumberError> {
        // As in "+49 (0)30": the zero is dialled only within the country and is not part of the
        // number.
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

    /// The promo number whose E.164 digits, read as one integer, are `value`; `None` if that is not
    /// a valid number.
    #[must_use]
    pub const fn from_e164(value: u64) -> Option<Self> {
        let is_number = match value {
            ..Self::FIRST => false,
            // Country code 1: the usual case, and the only one with a fixed length.
            12_000_000_000..=19_999_999_999 => true,
            Self::FIRST..=Self::LAST => !begins_with_one(value),
            _ => false,
        };
        match NonZeroU64::new(value) {
            Some(number) if is_number => Some(Self(number)),
            _ => None,
        }
    }

    /// The E.164 digits read as one integer.
    #[must_use]
    pub const fn to_e164(self) -> u64 {
        self.0.get()
    }

    /// The ten digits of a number of country code 1 read as one integer; `None` for other
    /// countries.
    #[inline]
    #[must_use]
    pub const fn to_nanp(self) -> Option<u64> {
        // No other number has eleven digits and starts with 1.
        let digits = self.0.get().wrapping_sub(NANP);
        if digits < NANP { Some(digits) } else { None }
    }

    /// The number's *code* in journals, links and idempotent answers: its ten digits with country
    /// code 1 (the oldest form), else 10^15 plus its E.164 digits.
    #[inline]
    #[must_use]
    pub const fn to_code(self) -> u64 {
        match self.to_nanp() {
            Some(digits) => digits,
            None => Self::CODE + self.0.get(),
        }
    }

    /// The promo number of a [code](Self::to_code); `None` if the code is invalid.
    #[must_use]
    pub const fn from_code(code: u64) -> Option<Self> {
        if code < NANP {
            return Self::from_e164(NANP + code);
        }
        match code.checked_sub(Self::CODE) {
            Some(value) => match Self::from_e164(value) {
                // A number of country code 1 has only the shorter code.
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

/// Writes the form that [`PromoNumber::parse`] reads: ten digits with country code 1, else `+` and
/// all digits.
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
                "a promo number has ten digits without punctuation, not {bytes} bytes, or a + and \
                 its country code"
            ),
            Self::NotADigit => f.write_str("a promo number has only the digits 0 to 9"),
            Self::AreaCode => f.write_str("a promo number does not start with 0 or 1"),
            Self::International => f.write_str(
                "a promo number with a + has a country code and at most 15 digits, and no (0)",
            ),
        }
    }
}

impl core::error::Error for NumberError {}

/// Consecutive promo numbers: `count` of them from `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberRange {
    first: PromoNumber,
    count: u32,
}

impl NumberRange {
    /// `count` consecutive numbers starting at `first`; `None` if `first` is not a valid number, or
    /// if the last one would have more digits than the first.
    #[must_use]
    pub fn new(first: PromoNumber, count: u32) -> Option<Self> {
        let last = first.to_e164() + u64::from(count.checked_sub(1)?);
        // Between two valid numbers of the same length, neither of country code 1, every integer is
        // a valid number.
        let is_alike = |last: PromoNumber| {
            last.to_nanp().is_some() == first.to_nanp().is_some()
                && last.0.ilog10() == first.0.ilog10()
        };
        PromoNumber::from_e164(last).filter(|last| is_alike(*last)).map(|_| Self { first, count })
    }

    /// The numbers from `first` to `last`; `None` if there is no such range, or if it has 2^32
    /// numbers or more.
    #[must_use]
    pub fn between(first: PromoNumber, last: PromoNumber) -> Option<Self> {
        let count = last.to_e164().checked_sub(first.to_e164())? + 1;
        Self::new(first, u32::try_from(count).ok()?)
    }

    /// Reads `8885550100-8885550149`, or one number.
    ///
    /// # Errors
    /// [`NumberError`] names the first rule that one of the numbers breaks; `Ok(None)` if there is
    /// no range between them.
    pub fn parse(text: &str) -> Result<Option<Self>, NumberError> {
        let text = text.trim();
        // A single number may contain hyphens itself.
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
        // `new` has checked that this is a number.
        match PromoNumber::from_e164(self.first.to_e164() + self.count as u64 - 1) {
            Some(last) => last,
            None => self.first,
        }
    }

    /// The count of numbers, at least one.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Whether `number` is one of them.
    #[must_use]
    pub fn contains(self, number: PromoNumber) -> bool {
        self.first <= number && number <= self.last()
    }

    /// Splits the range into ranges of at most `most` numbers, lowest first.
    pub fn pieces(self, most: u32) -> impl Iterator<Item = Self> {
        let (Self { first, count }, most) = (self, most.max(1));
        (0..count.div_ceil(most)).filter_map(move |piece| {
            let from = piece * most;
            let first = PromoNumber::from_e164(first.to_e164() + u64::from(from))?;
            Self::new(first, most.min(count - from))
        })
    }

    /// Iterates over the numbers in rising order.
    pub fn iter(self) -> impl Iterator<Item = PromoNumber> + Clone {
        (self.first.to_e164()..=self.last().to_e164()).filter_map(PromoNumber::from_e164)
    }
}

#[cfg(test)]
mod tests;
