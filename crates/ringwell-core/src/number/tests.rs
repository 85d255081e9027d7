//! Numbers and ranges at their edges.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;

fn number(value: u64) -> PromoNumber {
    PromoNumber::from_u64(value).unwrap()
}

#[test]
fn a_number_has_ten_digits_and_begins_with_2_to_9() {
    assert_eq!(PromoNumber::parse("8885550142"), Ok(number(8_885_550_142)));
    assert_eq!(PromoNumber::parse("2000000000"), Ok(number(2_000_000_000)));
    assert_eq!(PromoNumber::parse("9999999999"), Ok(number(9_999_999_999)));
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
    for value in [0, 1, 1_999_999_999, 10_000_000_000, u64::MAX] {
        assert_eq!(PromoNumber::from_u64(value), None, "{value}");
    }
}

#[test]
fn a_number_reads_as_its_digits_and_a_refusal_as_a_reason() {
    assert_eq!(number(8_885_550_142).to_string(), "8885550142");
    let reasons = [NumberError::Length { bytes: 3 }, NumberError::NotADigit, NumberError::AreaCode];
    let mut said: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    said.dedup();
    assert_eq!(said.len(), 3);
    assert!(said[0].contains('3'), "{said:?}");
}

#[test]
fn a_range_holds_its_first_and_last_number_and_those_between() {
    let range = NumberRange::new(number(8_885_550_100), 50).unwrap();
    assert_eq!((range.first(), range.last()), (number(8_885_550_100), number(8_885_550_149)));
    for (value, is_inside) in [
        (8_885_550_099, false),
        (8_885_550_100, true),
        (8_885_550_149, true),
        (8_885_550_150, false),
    ] {
        assert_eq!(range.contains(number(value)), is_inside, "{value}");
    }
    assert_eq!(range.iter().count(), 50);
}

#[test]
fn a_range_is_not_empty_and_ends_with_the_last_number_there_is() {
    assert_eq!(NumberRange::new(number(8_885_550_100), 0), None);
    assert!(NumberRange::new(number(9_999_999_999), 1).is_some());
    assert_eq!(NumberRange::new(number(9_999_999_999), 2), None);
}
