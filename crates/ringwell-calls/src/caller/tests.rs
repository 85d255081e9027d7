use proptest::prelude::*;

use super::*;

#[test]
fn a_number_is_read_however_a_provider_writes_it() {
    for text in [
        "+14155551234",
        "14155551234",
        "4155551234",
        "tel:+14155551234",
        "sip:+14155551234@gw.example",
        "sip:+14155551234;user=phone@gw",
        "SIP:+14155551234@gw.example",
        "\"Jane\" <Tel:+14155551234>;tag=1",
        " +1 (415) 555-1234 ",
        "0014155551234",
    ] {
        assert_eq!(Caller::read(text), Caller::E164("+14155551234".to_owned()), "{text}");
    }
    assert_eq!(Caller::read("+442079460000"), Caller::E164("+442079460000".to_owned()));
}

#[test]
fn a_caller_without_a_number_is_withheld() {
    let hundred = "4".repeat(100);
    for text in
        ["", "anonymous", "Anonymous", "+266696687", "Restricted", "unknown", &hundred, "+0"]
    {
        assert_eq!(Caller::read(text), Caller::Withheld, "{text}");
    }
    assert_eq!(Caller::read("sip:anonymous@anonymous.invalid"), Caller::Withheld);
    assert_eq!(Caller::read("sip:a\u{0}b@pbx.example"), Caller::Withheld);
    let sip = Caller::read("sip:alice@pbx.example");
    assert_eq!(sip, Caller::Sip("sip:alice@pbx.example".to_owned()));
}

#[test]
fn no_displayed_form_contains_the_whole_number() {
    let caller = Caller::read("+14155551234");
    assert_eq!(caller.to_string(), "+1415***1234");
}

proptest! {
    #[test]
    fn any_text_is_a_caller_and_survives_its_column(text in ".{0,200}") {
        let caller = Caller::read(&text);
        let column = caller.to_column();
        prop_assert_eq!(Caller::from_column(column.as_deref()), caller);
    }
}

#[test]
fn a_masked_number_cannot_be_called_back() {
    let masked = ["+14155551234", "+493012345", "+4912345", "+442079460000"].map(super::masked);
    assert_eq!(masked, ["+1415***1234", "+49***2345", "***", "+4420***0000"]);
}
