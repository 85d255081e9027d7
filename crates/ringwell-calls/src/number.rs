//! The number that was called, between E.164 as providers write it and the directory's own form.

use ringwell_core::PromoNumber;

use crate::caller::Caller;

/// The number as calls show it: E.164 with `+`. `None` for what is no telephone number.
#[must_use]
pub fn called(text: &str) -> Option<String> {
    match Caller::read(text) {
        Caller::E164(number) => Some(number),
        Caller::Withheld | Caller::Sip(_) | Caller::Hash(_) => None,
    }
}

/// The promo number that `e164` is, if it can be one.
#[must_use]
pub fn promo_number(e164: &str) -> Option<PromoNumber> {
    PromoNumber::parse(e164).ok()
}
