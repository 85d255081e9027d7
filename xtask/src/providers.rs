//! `cargo xtask providers`: writes the pages of `docs/providers` from one table.
//!
//! A test compares the pages with the table, so that manual edits are detected.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::shell::root;

/// The parts of a page that differ between providers.
struct Provider {
    /// The value of `provider` in the configuration, which is also the page's name.
    key: &'static str,
    /// A number at this provider, as in the page's title.
    number: &'static str,
    /// The place where numbers are bought.
    buy: &'static str,
    /// The required contents of the secret file.
    secret: &'static str,
    /// For each hook, the location of the provider's setting and the value to enter there.
    hooks: &'static [(&'static str, &'static str)],
    /// The provider's setting for calls that arrive while the Ringwell server is unavailable.
    fallback: &'static str,
    /// Common surprises.
    notes: &'static [&'static str],
}

const PROVIDERS: [Provider; 7] = [
    Provider {
        key: "twilio",
        number: "a Twilio number",
        buy: "In the Console, open Phone Numbers, Buy a number, and choose numbers with the capability \
              Voice.",
        secret: "the auth token of your Twilio account. If the account has shared keys (SHA-256), list \
                 their files in `shared_key_files` too.",
        hooks: &[
            ("A call comes in, Webhook, HTTP POST", "answer"),
            ("Call status changes, HTTP POST", "status"),
        ],
        fallback: "Set \"Primary handler fails\" to a TwiML Bin that dials your own number: \
                   `<Response><Dial>+18005550199</Dial></Response>`.",
        notes: &[
            "The callee sees the caller's number, unless `caller_id` is set for the destination.",
            "The webhooks for the call to the destination (`dial`, `status`, `whisper`) need no \
             settings at Twilio, because the server's answer contains their URLs.",
            "Steps 6 and 7 apply to each number. For many numbers, use \
             [this loop](../calls.md#many-numbers-of-twilio).",
        ],
    },
    Provider {
        key: "signalwire",
        number: "a SignalWire number",
        buy: "In your space, open Phone Numbers, New.",
        secret: "the signing key of the project (API page), not the API token.",
        hooks: &[
            ("Handle calls using a LaML webhook, when a call comes in, POST", "answer"),
            ("Status change webhook, POST", "status"),
        ],
        fallback: "Set \"When a call fails to be answered\" to a LaML Bin that dials your own number.",
        notes: &[
            "If you set `caller_id` for a destination, it must be a number that you own or have \
             verified at SignalWire.",
        ],
    },
    Provider {
        key: "telnyx",
        number: "a Telnyx number",
        buy: "In the Portal, open Numbers, Search & Buy. Assign the numbers to a TeXML application.",
        secret: "the public key of your Telnyx account, in base64 (Account, Keys & Credentials, Public \
                 Key).",
        hooks: &[
            ("TeXML application, Voice URL, POST", "answer"),
            ("TeXML application, Status Callback URL, POST", "status"),
        ],
        fallback: "Set the application's Failover URL to a TeXML Bin that dials your own number.",
        notes: &[
            "If you use a Call Control application, send its webhook to `/t/main/status`. The \
             server then logs the application's calls, but does not connect them.",
            "Signatures are valid for five minutes, so the server's clock must be right.",
        ],
    },
    Provider {
        key: "plivo",
        number: "a Plivo number",
        buy: "In the Console, open Phone Numbers, Buy Numbers. Assign the numbers to an XML application.",
        secret: "the auth token of your Plivo account, or of the sub-account that owns the numbers.",
        hooks: &[
            ("Application, Primary Answer URL, POST", "answer"),
            ("Application, Hangup URL, POST", "hangup"),
        ],
        fallback: "Set the Fallback Answer URL to a static page with \
                   `<Response><Dial><Number>18005550199</Number></Dial></Response>`.",
        notes: &["Plivo sends numbers without `+`; the log shows them with `+`."],
    },
    Provider {
        key: "vonage",
        number: "a Vonage number",
        buy: "In the Dashboard, open Numbers, Buy numbers. Link the numbers to a Voice application.",
        secret: "the signature secret of your Vonage account. In the account's settings, turn on signed \
                 webhooks and select the method SHA-256 HMAC.",
        hooks: &[
            ("Voice application, Answer URL, with `answer_method` **POST**", "answer"),
            ("Voice application, Event URL, POST", "event"),
        ],
        fallback: "Set the application's Fallback URL to a page with an NCCO that connects to your \
                   own number.",
        notes: &[
            "A GET request has no body that could be signed, so set the method of the Answer URL to \
             POST.",
            "The callee sees the called number as the caller ID, because Vonage does not pass on the \
             caller's number.",
            "Signatures are valid for five minutes, so the server's clock must be right.",
        ],
    },
    Provider {
        key: "bandwidth",
        number: "a Bandwidth number",
        buy: "In the Dashboard, open Numbers. Assign the numbers to a location with a Voice \
              application.",
        secret: "`user:password`: the user name and password that are set for the application's \
                 callbacks. Bandwidth does not sign requests; it sends this user name and password \
                 by HTTP Basic authentication.",
        hooks: &[
            ("Voice application, Call-initiated URL, POST", "initiate"),
            ("Voice application, Call status URL, POST", "disconnect"),
        ],
        fallback: "Set the Call-initiated fallback URL to a page with BXML that transfers the call to \
                   your own number.",
        notes: &["Each request contains the password, so use HTTPS, and do not use this password \
             anywhere else."],
    },
    Provider {
        key: "generic",
        number: "a number on your own switch",
        buy: "Order numbers from the carrier that routes calls to your switch.",
        secret: "any text of 16 bytes or more, or a `whsec_…` secret of Standard Webhooks. \
                 `ringwell token` can create one.",
        hooks: &[("Your switch posts its events, as JSON or a form", "events")],
        fallback: "Configure the switch to connect the call to a default number if it gets no answer \
                   within a second, or a status other than 200.",
        notes: &[
            "Events and answers: [the generic provider](../spec/calls.md#the-generic-provider).",
            "Requests to try: [a carrier that is not in the list]\
             (../calls.md#a-carrier-that-is-not-in-the-list).",
            "Kamailio, Asterisk and FreeSWITCH send `POST /v1/sip/route` instead: see \
             [SIP](sip.md).",
        ],
    },
];

const HEAD: &str = "<!-- Made by `cargo xtask providers` from xtask/src/providers.rs. -->\n";

/// Writes all pages.
///
/// # Errors
/// If a file cannot be written.
pub(crate) fn run() -> anyhow::Result<()> {
    for (path, text) in pages() {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, text)?;
    }
    Ok(())
}

fn pages() -> Vec<(PathBuf, String)> {
    let folder = root().join("docs/providers");
    let page = |name: &str| folder.join(format!("{name}.md"));
    let providers = PROVIDERS.iter().map(|it| (page(it.key), it.page()));
    providers.chain([(page("sip"), sip())]).collect()
}

impl Provider {
    fn page(&self) -> String {
        let Self { key, number, buy, secret, hooks, fallback, notes } = self;
        let mut text = format!(
            "# From {number} to an attributed call\n\n{HEAD}\n\
             If an account in the configuration is already called `main`, use another name in steps \
             3, 4 and 6 ([how](../calls.md#change-the-provider-number-by-number)).\n\n"
        );
        let _ = write!(
            text,
            "1. Buy numbers. {buy}\n\
             2. Put the numbers into a ring pool (see \
             [managing pools](../guides/managing-pools.md)).\n\
             3. Store the secret in a file next to `ringwell.toml` that only the server's user can \
             read. The secret is {secret} Run the command below, paste the secret, then press Enter \
             and Ctrl+D. With the Debian package, use `sudo install -m 600 -o ringwell /dev/stdin \
             /etc/ringwell/main.secret` instead.\n\n\
             \x20  ```sh\n   install -m 600 /dev/stdin main.secret\n   ```\n\n\
             4. Add the lines below to `ringwell.toml`, and check the file as the server's user with \
             `ringwell serve --config ringwell.toml --check`. With the Debian package, use \
             `sudo -u ringwell ringwell serve --config /etc/ringwell/ringwell.toml --check`. Then \
             send SIGHUP to the server (`sudo systemctl reload ringwell`). If the file had no \
             `[calls]` before, restart the server instead.\n\n\
             \x20  ```toml\n   [calls]\n   listen = \"127.0.0.1:8090\"\n\n\
             \x20  [[calls.account]]\n   name = \"main\"\n   provider = \"{key}\"\n\
             \x20  public_url = \"https://calls.example.com\"\n\
             \x20  secret_files = [\"main.secret\"]\n\n\
             \x20  [[calls.destination]]\n   ring_pools = [1]\n   to = [\"+18005550199\"]\n   ```\n\n\
             5. Route `https://calls.example.com/t/` to `127.0.0.1:8090` in the proxy that terminates TLS, with \
             path and query unchanged.\n\
             6. Set these webhooks at the provider:\n\n\
             \x20  | setting | value |\n   |---|---|\n"
        );
        for (place, hook) in *hooks {
            let _ = writeln!(text, "   | {place} | `https://calls.example.com/t/main/{hook}` |");
        }
        let _ = write!(
            text,
            "\n7. {fallback}\n\
             8. Get a number from a page or a batch, call the number, and look up the call with \
             a management token:\n\n\
             \x20  ```sh\n   curl -w '\\n' -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:8080/v1/calls\n   ```\n\n\
             If the phone does not ring, search the log for \"a webhook is not signed \
             correctly\". Its `reason` and `hint` show the cause.\n"
        );
        for note in *notes {
            let _ = write!(text, "\n- {note}");
        }
        text.push('\n');
        wrapped(&text)
    }
}

fn sip() -> String {
    let text = format!(
        "# From a number on your SIP trunk to an attributed call\n\n{HEAD}\n\
         1. Order numbers from your carrier, and have it route them to your switch.\n\
         2. Put the numbers into a ring pool (see \
         [managing pools](../guides/managing-pools.md)).\n\
         3. Create a token for the switch with `ringwell token`, and add its SHA-256 hash to \
         `management.token_sha256`.\n\
         4. Add the following to `ringwell.toml`:\n\n\
         \x20  ```toml\n   [calls]\n\n   [[calls.destination]]\n   ring_pools = [1]\n\
         \x20  to = [\"+18005550199\"]\n   ```\n\n\
         5. Configure the switch to send `POST /v1/sip/route` for each call. \
         [deploy/kamailio.cfg](../../deploy/kamailio.cfg), \
         [deploy/asterisk-extensions.conf](../../deploy/asterisk-extensions.conf) and \
         [deploy/freeswitch.xml](../../deploy/freeswitch.xml) contain such configurations; \
         [spec/sip.md](../spec/sip.md) describes each of them.\n\
         6. Add an account with `provider = \"generic\"` (see [generic.md](generic.md)). If the switch \
         is on the same machine, the account's `public_url` is `\"http://127.0.0.1:8090\"`. Configure \
         the switch to report to this account when calls are answered and when they end, and to \
         send the account's name as `trunk` in `POST /v1/sip/route`. The files for Asterisk and FreeSWITCH already do this; for Kamailio, use \
         [deploy/kamailio-proxy.cfg](../../deploy/kamailio-proxy.cfg). A switch that only \
         redirects calls cannot report these events.\n\
         7. Set a default destination in the switch. The switch uses it if the Ringwell server does \
         not answer with status 200 within a second.\n\
         8. Let the switch accept calls only from your trunk. In the files for Kamailio, list the addresses of \
         the trunk, of the gateway and of other SIP destinations in `RINGWELL_SOURCES`; the shipped \
         files accept only requests from the same machine. [spec/sip.md](../spec/sip.md#kamailio) \
         describes this list, and the characters of Call-IDs that Kamailio keeps.\n\
         9. Get a number from a page or a batch, call the number, and look up the call with a \
         management token:\n\n\
         \x20  ```sh\n   curl -w '\\n' -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:8080/v1/calls\n   ```\n"
    );
    wrapped(&text)
}

/// Wraps lines of prose at 110 columns; code and tables stay unchanged.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let is_prose = !is_code && !line.trim_start().starts_with(['|', '`', '#', '<']);
        if !is_prose || line.len() <= 110 {
            let _ = writeln!(out, "{line}");
            continue;
        }
        let indent = match line.as_bytes().first() {
            Some(byte) if byte.is_ascii_digit() => 3,
            Some(b'-') => 2,
            _ => 0,
        };
        let mut width = 0;
        for word in line.split(' ') {
            if width > 0 && width + 1 + word.len() > 110 {
                let _ = write!(out, "\n{}{word}", " ".repeat(indent));
                width = indent + word.len();
            } else {
                let space = if width > 0 { " " } else { "" };
                let _ = write!(out, "{space}{word}");
                width += space.len() + word.len();
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
#[test]
fn the_pages_of_providers_are_those_of_the_table() {
    for (path, text) in pages() {
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "{} is not current: run `cargo xtask providers`", path.display());
    }
}
