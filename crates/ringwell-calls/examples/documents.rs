//! Prints sample answer documents for each provider, one per line as JSON.
//! `clients/telephony/documents.py` creates the same documents with the providers' own libraries
//! and compares them with this output. `cargo xtask telephony` runs both programs.

use ringwell_calls::Account;
use ringwell_calls::provider::{Connect, Instruction, Leg, Refusal, document};
use ringwell_config::{CallProvider, UnknownNumber};
use serde_json::json;

/// Sample answers to a provider's requests, each with a name.
fn answers() -> Vec<(&'static str, Instruction)> {
    let number = Connect {
        call: "c_01ab".to_owned(),
        number: "18005551212".to_owned(),
        to: "+18005550199".to_owned(),
        from: Some("+14155551234".to_owned()),
        caller_id: Some("+18005550100".to_owned()),
        timeout_s: 20,
        whisper: true,
        leg: Leg { place: 0, tried: vec!["0123abcd".to_owned()] },
    };
    let sip = Connect {
        to: "sip:a.b@pbx.example".to_owned(),
        caller_id: None,
        whisper: false,
        leg: Leg { place: 1, tried: vec!["0123abcd".to_owned(), "4567cdef".to_owned()] },
        ..number.clone()
    };
    vec![
        ("number", Instruction::Connect(number)),
        ("sip", Instruction::Connect(sip)),
        ("busy", Instruction::Refuse(Refusal::Busy)),
        ("rejected", Instruction::Refuse(Refusal::Rejected)),
        ("whisper", Instruction::Whisper("A call <from> \"the\" web & more".to_owned())),
        ("nothing", Instruction::Nothing),
    ]
}

fn main() {
    let providers = [
        CallProvider::Twilio,
        CallProvider::SignalWire,
        CallProvider::Telnyx,
        CallProvider::Plivo,
        CallProvider::Vonage,
        CallProvider::Bandwidth,
    ];
    for provider in providers {
        let account = Account {
            name: "main".to_owned(),
            provider,
            public_url: "https://ringwell.example".to_owned(),
            secrets: vec![b"user:password".to_vec()],
            shared_keys: Vec::new(),
            unknown_number: UnknownNumber::Unavailable,
            warnings: ringwell_calls::Warnings::default(),
        };
        for (case, answer) in answers() {
            let body = document(&account, &answer).body;
            println!("{}", json!({ "provider": provider.name(), "case": case, "body": body }));
        }
    }
}
