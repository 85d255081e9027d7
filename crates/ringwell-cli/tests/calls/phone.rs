//! A simulated telephone provider. It signs requests according to the real provider's
//! documentation, without using the server's code.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use super::support::client::{Client, HttpAnswer};
use super::support::server::Server;
use super::support::site::Site;

/// The account's secret.
pub(crate) const SECRET: &str = "a-secret-of-the-provider-0123456789";
const PUBLIC_URL: &str = "https://calls.example";

/// An account in the server's configuration, and the address that the provider sends requests to.
#[derive(Clone, Debug)]
pub(crate) struct Phone {
    address: String,
}

impl Phone {
    /// Returns the `[calls]` section without destinations.
    pub(crate) fn settings() -> String {
        format!(
            "[calls]\nlisten = \"127.0.0.1:0\"\n[[calls.account]]\nname = \"main\"\n\
             provider = \"twilio\"\npublic_url = \"{PUBLIC_URL}\"\n\
             secret_files = [\"main.secret\"]\n"
        )
    }

    pub(crate) fn write_secrets(site: &Site) {
        Self::write_secret(site, "main.secret", SECRET);
    }

    pub(crate) fn write_secret(site: &Site, name: &str, text: &str) {
        let path = site.config().with_file_name(name);
        fs::write(&path, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&path, mode).unwrap();
    }

    /// Reads the server's address for calls from its log.
    pub(crate) fn at(server: &Server) -> Self {
        server.says("\"calls\"");
        let log = server.log();
        let line = log.lines().find(|line| line.contains("\"calls\"")).unwrap();
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let address = line["address"].as_str().unwrap().to_owned();
        Self { address }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.address).unwrap()
    }
}

/// A provider that sends requests to an account's hooks.
pub(crate) struct Provider {
    phone: Phone,
    url: String,
}

impl Provider {
    pub(crate) fn twilio(phone: &Phone) -> Self {
        Self { phone: phone.clone(), url: PUBLIC_URL.to_owned() }
    }

    /// Returns a provider that signs requests for `url`, not for the configured `public_url`.
    pub(crate) fn at_url(&self, url: &str) -> Self {
        Self { phone: self.phone.clone(), url: url.to_owned() }
    }

    /// Posts a signed form, or signed JSON.
    pub(crate) fn post(&self, target: &str, body: &str) -> HttpAnswer {
        self.try_post(target, body).unwrap()
    }

    /// Like [`Self::post`], but returns `None` if the connection breaks.
    pub(crate) fn try_post(&self, target: &str, body: &str) -> Option<HttpAnswer> {
        self.try_post_on(&mut self.phone.client(), target, body)
    }

    /// Like [`Self::try_post`], but uses an existing connection.
    pub(crate) fn try_post_on(
        &self,
        client: &mut Client,
        target: &str,
        body: &str,
    ) -> Option<HttpAnswer> {
        let mut string = format!("{}{target}", self.url);
        let mut pairs: Vec<(String, String)> = Vec::new();
        let is_form = !body.starts_with('{');
        for pair in body.split('&').filter(|_| is_form) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((name.to_owned(), value.replace("%2B", "+")));
        }
        pairs.sort();
        for (name, value) in pairs {
            string.push_str(&name);
            string.push_str(&value);
        }
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET.as_bytes());
        let signature = STANDARD.encode(hmac::sign(&key, string.as_bytes()));
        let kind = if is_form { "application/x-www-form-urlencoded" } else { "application/json" };
        let headers = [("x-twilio-signature", signature.as_str()), ("content-type", kind)];
        client.post(target, &headers, body).ok()
    }
}

/// Returns the request targets of all hook URLs in `document`.
pub(crate) fn urls(document: &str) -> Vec<String> {
    let start = format!("\"{PUBLIC_URL}");
    let all = document.split(&start).skip(1);
    all.map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&")).collect()
}
