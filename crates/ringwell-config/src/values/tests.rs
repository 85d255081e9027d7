//! Tests that values are read correctly from their written form.

use proptest::prelude::*;

use super::*;

#[test]
fn sizes_have_units_of_1024() {
    assert_eq!(parse_size("0"), Ok(0));
    assert_eq!(parse_size("512B"), Ok(512));
    assert_eq!(parse_size("64KiB"), Ok(65_536));
    assert_eq!(parse_size("64 MiB"), Ok(64 << 20));
    assert_eq!(parse_size("1TiB"), Ok(1 << 40));
    for text in ["", "KiB", "1KB", "1.5MiB", "-1", "99999999TiB", "99999999999999999999"] {
        assert!(parse_size(text).is_err(), "{text}");
    }
}

#[test]
fn seconds_have_at_most_three_decimals() {
    assert_eq!(parse_seconds("1800"), Ok(Millis(1_800_000)));
    assert_eq!(parse_seconds("0.01"), Ok(Millis(10)));
    for text in ["", ".", "1.", ".5", "1.0005", "1e3", "+1", "-1", "nan", "18446744073709552"] {
        assert!(parse_seconds(text).is_err(), "{text}");
    }
}

#[test]
fn addresses_print_as_they_are_written() {
    for text in ["127.0.0.1:8080", "localhost:0", "[::1]:80", "unix:/run/r.sock", "unix:r.sock"] {
        assert_eq!(text.parse::<Listen>().map(|listen| listen.to_string()), Ok(text.to_owned()));
    }
    for text in ["", ":80", "host", "host:", "host:65536", "::1:80", "[host]:80", "a b:80", "unix:"]
    {
        assert!(text.parse::<Listen>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "[0-9a-zA-Z.:\\-\\[\\] é]{0,24}") {
        let _ = (parse_size(&text), parse_seconds(&text), parse_range(&text));
        let _ = (parse_duration(&text), parse_lifetime(&text), text.parse::<Listen>());
    }

    #[test]
    fn seconds_read_back(millis in any::<u32>().prop_map(u64::from)) {
        prop_assert_eq!(parse_seconds(&format_seconds(Millis(millis))), Ok(Millis(millis)));
    }

    #[test]
    fn ranges_read_back(first in 12_000_000_000_u64..19_999_000_000, count in 1_u32..999_999) {
        let range = NumberRange::new(PromoNumber::from_e164(first).unwrap(), count).unwrap();
        let text = format!("{}-{}", range.first(), range.last());
        prop_assert_eq!(parse_range(&text), Ok(range));
    }
}
