//! `SignalWire`: forms and documents as for Twilio; signatures made with the signing key of a
//! `SignalWire` project.

use super::request::Incoming;
use super::signed::Unsigned;
use super::twilio;
use crate::account::Account;
use crate::digest::{self, Mac};

const SIGNATURE: &str = "x-signalwire-signature";

pub(super) fn verify(account: &Account, request: &Incoming) -> Result<(), Unsigned> {
    let presented = request.header(SIGNATURE);
    let keys = || account.secrets.iter();
    if !request.is_form() && !request.body.is_empty() {
        // For a JSON body, the signed string is the URL and the raw body, and the signature is in
        // hexadecimal digits.
        let signed = |url: &str| {
            let sign =
                |key: &Vec<u8>| digest::hex(&Mac::Sha1.sign(key, &[url.as_bytes(), &request.body]));
            keys().map(sign).collect()
        };
        return twilio::check_body(account, request, presented, "", signed);
    }
    twilio::check(account, request, presented, |string| {
        keys().map(|key| digest::base64(&Mac::Sha1.sign(key, &[string.as_bytes()]))).collect()
    })
}
