//! Tests edge cases of numbers and ranges.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

fn number(value: u64) -> PromoNumber {
    PromoNumber::from_e164(value).unwrap()
}

#[test]
fn a_number_has_ten_digits_and_begins_with_2_to_9() {
    assert_eq!(PromoNumber::parse("8885550142"), Ok(number(18_885_550_142)));
    assert_eq!(PromoNumber::parse("2000000000"), Ok(number(12_000_000_000)));
    assert_eq!(PromoNumber::parse("9999999999"), Ok(number(19_999_999_999)));
    for (text, error) in [
        ("", NumberError::Length { bytes: 0 }),
        ("888555014", NumberError::Length { bytes: 9 }),
        ("88855501423", NumberError::Length { bytes: 11 }),
        ("888-555014", NumberError::NotADigit),
        ("888555014x", NumberError::NotADigit),
        ("1999999999", NumberError::AreaCode),
        ("0885550142", NumberError::AreaCode),
    ] {
        assert_eq!(PromoNumber::parse(text), Err(error), "{text}");
    }
}

#[test]
fn a_number_of_another_country_has_its_country_code_and_at_most_15_digits() {
    for (text, value) in [
        ("+493012345678", 493_012_345_678),
        ("+49 30 1234-5678", 493_012_345_678),
        ("+49 (30) 1234.5678", 493_012_345_678),
        ("00493012345678", 493_012_345_678),
        ("+18885550142", 18_885_550_142),
        ("0018885550142", 18_885_550_142),
        ("+2000000", 2_000_000),
        ("+6581234567", 6_581_234_567),
        ("+999999999999999", 999_999_999_999_999),
    ] {
        assert_eq!(PromoNumber::parse(text), Ok(number(value)), "{text}");
    }
    for text in [
        "+",
        "00",
        "+199999",
        "+200000",
        "+1999999999",
        "+11999999999",
        "+188855501423",
        "+049301234567",
        "+9999999999999999",
        "+49 (0)30 12345678",
    ] {
        assert_eq!(PromoNumber::parse(text), Err(NumberError::International), "{text}");
    }
    for text in ["++493012345678", "+49/3012345678", "+ 49301234567", "+49301234567x", "+٤٩٣٠"]
    {
        assert_eq!(PromoNumber::parse(text), Err(NumberError::NotADigit), "{text}");
    }
    for value in [0, 1, 1_999_999, 10_000_000_000, 11_999_999_999, 100_000_000_000, u64::MAX] {
        assert_eq!(PromoNumber::from_e164(value), None, "{value}");
    }
}

proptest! {
    #[test]
    fn every_number_reads_back_as_text_and_as_code(
        value in prop_oneof![0_u64..1_000_000_000_000_000, 10_000_000_000..20_000_000_000_u64],
    ) {
        if let Some(number) = PromoNumber::from_e164(value) {
            prop_assert_eq!(number.to_e164(), value);
            prop_assert_eq!(PromoNumber::parse(&number.to_string()), Ok(number));
            prop_assert_eq!(PromoNumber::parse(&format!("+{value}")), Ok(number));
            prop_assert_eq!(PromoNumber::from_code(number.to_code()), Some(number));
            prop_assert_eq!(number.to_nanp().is_some(), number.to_string().len() == 10);
        }
    }

    #[test]
    fn every_code_has_one_number_and_every_number_one_code(
        code in prop_oneof![
            0_u64..20_000_000_000,
            1_000_000_000_000_000..2_000_000_000_000_000_u64,
            any::<u64>(),
        ],
    ) {
        if let Some(number) = PromoNumber::from_code(code) {
            prop_assert_eq!(number.to_code(), code);
        }
    }

    #[test]
    fn a_range_has_only_numbers_of_one_length(first in 2_000_000_u64..1_000_000_000_000_000, count in any::<u32>()) {
        let range = PromoNumber::from_e164(first).and_then(|first| NumberRange::new(first, count));
        if let Some(range) = range {
            let last = range.last().to_e164();
            prop_assert_eq!(last - first, u64::from(count) - 1);
            let middle = PromoNumber::from_e164(first + (last - first) / 2);
            prop_assert!(middle.is_some_and(|it| range.contains(it)));
            prop_assert_eq!(NumberRange::between(range.first(), range.last()), Some(range));
        }
    }
}

#[test]
fn a_number_reads_as_its_digits_and_a_refusal_as_a_reason() {
    assert_eq!(number(18_885_550_142).to_string(), "8885550142");
    assert_eq!(number(493_012_345_678).to_string(), "+493012345678");
    let reasons = [
        NumberError::Length { bytes: 3 },
        NumberError::NotADigit,
        NumberError::AreaCode,
        NumberError::International,
    ];
    let mut said: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    said.dedup();
    assert_eq!(said.len(), 4);
    assert!(said[0].contains('3'), "{said:?}");
}

#[test]
fn a_range_holds_its_first_and_last_number_and_those_between() {
    let range = NumberRange::new(number(18_885_550_100), 50).unwrap();
    assert_eq!((range.first(), range.last()), (number(18_885_550_100), number(18_885_550_149)));
    for (value, is_inside) in [
        (18_885_550_099, false),
        (18_885_550_100, true),
        (18_885_550_149, true),
        (18_885_550_150, false),
    ] {
        assert_eq!(range.contains(number(value)), is_inside, "{value}");
    }
    assert_eq!(range.iter().count(), 50);
}

#[test]
fn a_range_is_not_empty_and_ends_with_the_last_number_of_its_length() {
    assert_eq!(NumberRange::new(number(18_885_550_100), 0), None);
    assert!(NumberRange::new(number(19_999_999_999), 1).is_some());
    assert_eq!(NumberRange::new(number(19_999_999_999), 2), None);
    assert_eq!(NumberRange::new(number(9_999_999_999), 3), None);
    assert_eq!(NumberRange::new(number(999_999_999_999), 2), None);
    assert!(NumberRange::new(number(493_012_345_000), 1000).is_some());
}
