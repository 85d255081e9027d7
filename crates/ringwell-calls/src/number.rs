//! Converts called numbers between the providers' E.164 format and the directory's format.

use ringwell_core::PromoNumber;

use crate::caller::{Caller, is_separator};

/// Converts a called number to E.164 format with `+`. Returns `None` if `text` is not a telephone
/// number.
#[must_use]
pub fn called(text: &str) -> Option<String> {
    match Caller::read(text) {
        Caller::E164(number) => Some(number),
        Caller::Withheld | Caller::Sip(_) | Caller::Hash(_) => None,
    }
}

/// Converts the number in a filter to E.164 format with `+`. Ten digits are read as a number with
/// country code 1, because Ringwell hands out such numbers in this form. A leading space stands for
/// a `+` that was not encoded in a URL.
#[must_use]
pub fn asked(text: &str) -> Option<String> {
    let digits = text.trim();
    // A `+` is not followed by a parenthesis.
    if !text.starts_with(['+', ' ']) || digits.starts_with('(') {
        let plain: String = digits.chars().filter(|c| !is_separator(*c)).collect();
        if let Ok(number) = PromoNumber::parse(digits).or_else(|_| PromoNumber::parse(&plain)) {
            return Some(format!("+{}", number.to_e164()));
        }
    }
    called(&format!("+{}", digits.trim_start_matches('+')))
}

/// Converts `e164` to a promo number, if it is a valid one.
#[must_use]
pub fn promo_number(e164: &str) -> Option<PromoNumber> {
    PromoNumber::parse(e164).ok()
}

#[cfg(test)]
#[test]
fn a_filter_accepts_a_number_in_the_form_of_allocations() {
    for text in [
        "+18885550201",
        " 18885550201",
        "18885550201",
        "8885550201",
        "+1 888-555-0201",
        " 1 888-555-0201",
        "1 888-555-0201",
        "(888) 555-0201",
        " (888) 555-0201",
        "888.555.0201",
        "888 555 0201",
        "+1 (888) 555.0201",
        "1/888/555-0201",
    ] {
        assert_eq!(asked(text).as_deref(), Some("+18885550201"), "{text}");
    }
    assert_eq!(asked(" 4930123456").as_deref(), Some("+4930123456"));
    assert_eq!(asked("0049 30 123456").as_deref(), Some("+4930123456"));
    assert_eq!(asked("66341").as_deref(), Some("+66341"), "a service's short number");
    for text in ["anonymous", "", " ", "+", "()", "12", "888-555-020x", "1234567890123456"] {
        assert_eq!(asked(text), None, "{text}");
    }
}
