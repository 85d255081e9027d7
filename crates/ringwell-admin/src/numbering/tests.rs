use proptest::prelude::*;

use super::*;

fn number(text: &str) -> PromoNumber {
    PromoNumber::parse(text).unwrap()
}

#[test]
fn numbers_are_valid_by_the_plan_of_their_country() {
    for valid in ["8885550142", "2125550100", "4165550100", "+4930123456", "+33142685300"] {
        assert!(is_valid(valid), "{valid}");
    }
    for invalid in ["2000100000", "9995550100", "8881550142", "+99912345678", "+331", "12345", ""] {
        assert!(!is_valid(invalid), "{invalid}");
    }
}

#[test]
fn a_number_is_written_in_its_country_s_form() {
    let check = |text: &str, national: &str, country: Option<&str>| {
        let Written { e164, national: found, country: of } = written(number(text));
        assert_eq!((found.as_str(), of.as_deref()), (national, country));
        assert_eq!(e164, format!("+1{text}"));
    };
    check("8885550142", "(888) 555-0142", Some("US"));
    check("4165550142", "(416) 555-0142", Some("CA"));
    check("8765550142", "(876) 555-0142", Some("JM"));
    check("2000100000", "(200) 010-0000", None);
}

#[test]
fn only_the_parts_of_a_range_that_cannot_be_in_use_are_invalid() {
    let range = |first, count| NumberRange::new(number(first), count).unwrap();
    assert_eq!(invalid(range("8885550000", 10_000)), []);
    // After area code 888, 199 is not a valid exchange, but 200 is.
    assert_eq!(invalid(range("8881999990", 20)), [range("8881999990", 10)]);
    assert_eq!(invalid(range("2000000500", 1000)).len(), 2);
}

proptest! {
    #[test]
    fn no_thousand_has_both_valid_and_invalid_numbers(
        block in 2_000_000_u64..10_000_000,
        one in 0_u64..1000,
        other in 0_u64..1000,
    ) {
        let is_valid = |last: u64| is_valid(&(block * 1000 + last).to_string());
        prop_assert_eq!(is_valid(one), is_valid(other));
    }

    #[test]
    fn no_text_makes_the_check_panic(text in ".{0,40}", digits in "\\+?[0-9]{0,20}") {
        is_valid(&text);
        is_valid(&digits);
    }
}
