use proptest::prelude::*;

use super::*;

fn number(text: &str) -> PromoNumber {
    PromoNumber::parse(text).unwrap()
}

/// Numbers in many countries: examples from libphonenumber's own tests and from numbering plans.
pub(crate) const OF_THE_WORLD: [(&str, &str); 12] = [
    ("+493012345678", "030 12345678"),
    ("+4915112345678", "01511 2345678"),
    ("+442079460123", "020 7946 0123"),
    ("+33142685300", "01 42 68 53 00"),
    ("+34912345678", "912 34 56 78"),
    ("+390612345678", "06 1234 5678"),
    ("+5511912345678", "(11) 91234-5678"),
    ("+81312345678", "03-1234-5678"),
    ("+61212345678", "(02) 1234 5678"),
    ("+6561234567", "6123 4567"),
    ("+919876543210", "098765 43210"),
    ("+4532123456", "32 12 34 56"),
];

#[test]
fn a_number_is_written_in_its_country_s_form() {
    for (e164, written) in OF_THE_WORLD {
        assert_eq!(national(number(e164)), written, "{e164}");
        // Cached now.
        assert_eq!(national(number(e164)), written, "{e164}");
    }
    assert_eq!(national(number("8885550142")), "888-555-0142");
    assert_eq!(national(number("+999123456789")), "+999123456789", "no such country");
    assert_eq!(country_code(number("+493012345678")), Some(49));
    assert_eq!(country_code(number("8765550142")), Some(1));
}

proptest! {
    /// The cache never changes a result. A text that is derived from a cached one equals the text
    /// that libphonenumber returns.
    #[test]
    fn the_last_two_digits_change_only_themselves(
        hundred in prop_oneof![
            20_000_u64..10_000_000_000_000,
            (0..OF_THE_WORLD.len(), 0..1_000_000_u64).prop_map(|(at, add)| {
                number(OF_THE_WORLD[at].0).to_e164() / FREE / 1_000_000 * 1_000_000 + add
            }),
        ],
        last in (0..FREE, 0..FREE),
    ) {
        let of = |last| PromoNumber::from_e164(hundred * FREE + last);
        if let Some((one, other)) = of(last.0).zip(of(last.1)).filter(|it| it.0.to_nanp().is_none()) {
            prop_assert_eq!(national(one), look_up(one));
            prop_assert_eq!(national(other), look_up(other));
        }
    }
}
