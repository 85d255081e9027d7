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
        "sip:14155551234@gw",
        "sip:4155551234@gw",
        "sip:0014155551234@gw",
        "sip:%2B14155551234@gw",
        "sip:%2b1415%35551234@gw",
        "sip:4155551234:secret@gw",
        "sip:+14155551234:secret;x=1@gw",
        "\"Jane\" <Tel:+14155551234>;tag=1",
        " +1 (415) 555-1234 ",
        "0014155551234",
    ] {
        assert_eq!(Caller::read(text), Caller::E164("+14155551234".to_owned()), "{text}");
    }
    for (text, number) in [("66341", "+66341"), ("sip:+2904567@gw", "+2904567")] {
        assert_eq!(Caller::read(text), Caller::E164(number.to_owned()), "{text}");
    }
    for text in ["sip:22334455;user=phone@gw", "sip:22334455@gw;USER=phone?a=b"] {
        assert_eq!(Caller::read(text), Caller::E164("+22334455".to_owned()), "{text}");
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
fn a_sip_user_of_few_digits_is_an_extension_of_its_host() {
    for (text, address) in [
        ("sip:7001@pbx-a", "sip:7001@pbx-a"),
        ("<sip:7001@PBX-B:5060;transport=udp>;tag=1", "sip:7001@pbx-b"),
        ("sip:7001;user=phone@pbx-a", "sip:7001@pbx-a"),
        ("sip:+7001@pbx-a", "sip:+7001@pbx-a"),
        ("sip:22334455@pbx-a", "sip:22334455@pbx-a"),
        ("sip:7001:secret@pbx-a", "sip:7001@pbx-a"),
        ("sip:%37001@pbx-a", "sip:7001@pbx-a"),
        ("sip:%61lice:secret@pbx-a", "sip:alice@pbx-a"),
        ("sip:a%40b%2540@pbx-a", "sip:a%40b%2540@pbx-a"),
        ("sip:7001%@pbx-a", "sip:7001%@pbx-a"),
        ("sip:7001%4@pbx-a", "sip:7001%4@pbx-a"),
        ("sip:7001@pbx-a.", "sip:7001@pbx-a"),
        ("sip:7001@PBX-A.:5060;lr", "sip:7001@pbx-a"),
        ("sip:7001@[2001:DB8:0:0::1]:5060", "sip:7001@[2001:db8::1]"),
        ("sip:7001@[2001:db8::0.0.0.1]", "sip:7001@[2001:db8::1]"),
    ] {
        assert_eq!(Caller::read(text), Caller::Sip(address.to_owned()), "{text}");
    }
    assert_eq!(Caller::read("sip:%61nonymous@pbx-a"), Caller::Withheld);
}

proptest! {
    #[test]
    fn the_stored_form_of_an_address_is_read_as_itself(
        user in "[a-z0-9%;:?+ ]{0,12}|(%[0-9a-f]{2}){0,5}", host in "([a-z0-9.]{0,12}|\\[[0-9a-f:.]{0,16}\\]\\.{0,2})(:[0-9]{0,4})?[.]?(;[a-z=]{0,6})?"
    ) {
        if let caller @ Caller::Sip(_) = Caller::read(&format!("sip:{user}@{host}")) {
            prop_assert_eq!(Caller::read(&caller.to_column().unwrap()), caller);
        }
    }
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
