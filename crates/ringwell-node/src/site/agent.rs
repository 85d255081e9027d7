//! Distinguishes programs from people's browsers by the header fields of their requests.

use hyper::header::{self, HeaderMap, HeaderName};

use crate::fields::text;

const SEC_PURPOSE: HeaderName = HeaderName::from_static("sec-purpose");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether the client is a program rather than a person's browser.
pub(super) fn is_program(headers: &HeaderMap) -> bool {
    if text(headers, &SEC_PURPOSE).is_some_and(|purpose| purpose.starts_with("prefetch")) {
        return true;
    }
    let Some(agent) = text(headers, &header::USER_AGENT) else { return true };
    let kind = Agent::of(agent);
    // Chromium has sent `Sec-Fetch-Site` with every request to a secure address since 2019.
    kind == Agent::Program || (kind == Agent::Chromium && text(headers, &SEC_FETCH_SITE).is_none())
}

/// The kind of a client, according to its User-Agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agent {
    Program,
    Chromium,
    Other,
}

impl Agent {
    /// Examines each byte once, and ignores case.
    fn of(agent: &str) -> Self {
        let bytes = agent.as_bytes();
        let mut kind = Self::Other;
        for (place, byte) in bytes.iter().enumerate() {
            let names: &[&str] = match byte | 0x20 {
                b'b' => &["bot"],
                b'c' => &["crawl", "curl/", "chrome/"],
                b's' => &["spider", "slurp"],
                b'h' => &["headless"],
                b'l' => &["lighthouse"],
                b'p' => &["preview"],
                _ => continue,
            };
            let is_at = |name: &&&str| {
                let here = bytes.get(place..place + name.len());
                here.is_some_and(|here| here.eq_ignore_ascii_case(name.as_bytes()))
            };
            match names.iter().find(is_at) {
                Some(&"chrome/") => kind = Self::Chromium,
                Some(_) => return Self::Program,
                None => {}
            }
        }
        kind
    }
}

#[cfg(test)]
#[test]
fn programs_are_recognized_by_their_user_agents() {
    for (agent, kind) in [
        ("Mozilla/5.0 (compatible; Googlebot/2.1)", Agent::Program),
        ("Mozilla/5.0 Chrome/156.0 (compatible; BINGBOT/2.0)", Agent::Program),
        ("curl/8.5", Agent::Program),
        ("Mozilla/5.0 HeadlessChrome/156.0.0.0", Agent::Program),
        ("Mozilla/5.0 Chrome-Lighthouse", Agent::Program),
        ("Yahoo! Slurp", Agent::Program),
        ("WhatsApp Link Preview", Agent::Program),
        ("some spider", Agent::Program),
        ("a Crawler", Agent::Program),
        ("Mozilla/5.0 Chrome/156.0.0.0 Safari/537.36", Agent::Chromium),
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", Agent::Other),
        ("curl", Agent::Other),
        ("", Agent::Other),
    ] {
        assert_eq!(Agent::of(agent), kind, "{agent}");
    }
}
