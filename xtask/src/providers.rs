//! `cargo xtask providers`: the pages of `docs/providers`, from one table.
//!
//! A test compares the pages with it, so that manual edits are detected.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::shell::root;

/// The differences between providers; the rest of a page is the same.
struct Provider {
    /// The value of `provider` in the configuration, and the page's name.
    key: &'static str,
    name: &'static str,
    /// The place to buy numbers.
    buy: &'static str,
    /// The contents of the secret file.
    secret: &'static str,
    /// The place and the value of each hook's setting.
    hooks: &'static [(&'static str, &'static str)],
    /// The setting for the case that this server is unavailable.
    fallback: &'static str,
    /// Common surprises.
    notes: &'static [&'static str],
}

const PROVIDERS: [Provider; 7] = [
    Provider {
        key: "twilio",
        name: "Twilio",
        buy: "Console, Phone Numbers, Buy a number, with the capability Voice.",
        secret: "the account's auth token. Accounts with shared keys (SHA-256) also name those in \
                 `shared_key_files`.",
        hooks: &[
            ("A call comes in, Webhook, HTTP POST", "answer"),
            ("Call status changes, HTTP POST", "status"),
        ],
        fallback: "Set \"Primary handler fails\" to a TwiML Bin that dials your own number: \
                   `<Response><Dial>+18005550199</Dial></Response>`.",
        notes: &[
            "The callee sees the caller's number, unless the destination has `caller_id`.",
            "The hooks of the dial itself (`dial`, `status`, `whisper`) are in the document that the \
             server answers with: they need no settings.",
        ],
    },
    Provider {
        key: "signalwire",
        name: "SignalWire",
        buy: "Your space, Phone Numbers, New.",
        secret: "the signing key of the project (API page), not the API token.",
        hooks: &[
            ("Handle calls using a LaML webhook, when a call comes in, POST", "answer"),
            ("Status change webhook, POST", "status"),
        ],
        fallback: "Set \"When a call fails to be answered\" to a LaML Bin that dials your own number.",
        notes: &["`caller_id` must be a number that you own or have verified."],
    },
    Provider {
        key: "telnyx",
        name: "Telnyx",
        buy: "Portal, Numbers, Search & Buy, then assign the numbers to a TeXML application.",
        secret: "the public key of the account, in base64 (Account, Keys & Credentials, Public Key).",
        hooks: &[
            ("TeXML application, Voice URL, POST", "answer"),
            ("TeXML application, Status Callback URL, POST", "status"),
        ],
        fallback: "Set the Failover URL of the application to a TeXML Bin that dials your own number.",
        notes: &[
            "A Call Control application sends its webhook to `/t/main/status`: its calls are logged, and \
             not connected by this server.",
            "Signatures are accepted for five minutes: keep the clock right.",
        ],
    },
    Provider {
        key: "plivo",
        name: "Plivo",
        buy: "Console, Phone Numbers, Buy Numbers, then assign them to an XML application.",
        secret: "the auth token of the account, or of the sub-account that has the numbers.",
        hooks: &[
            ("Application, Primary Answer URL, POST", "answer"),
            ("Application, Hangup URL, POST", "hangup"),
        ],
        fallback: "Set the Fallback Answer URL to a static page with \
                   `<Response><Dial><Number>18005550199</Number></Dial></Response>`.",
        notes: &["Plivo sends numbers without `+`; the log has them with it."],
    },
    Provider {
        key: "vonage",
        name: "Vonage",
        buy: "Dashboard, Numbers, Buy numbers, then link them to a Voice application.",
        secret: "the account's signature secret, with signed webhooks on and the method SHA-256 HMAC.",
        hooks: &[
            ("Voice application, Answer URL, with `answer_method` **POST**", "answer"),
            ("Voice application, Event URL, POST", "event"),
        ],
        fallback: "Set the Fallback URL of the application to a page with an NCCO that connects to your \
                   own number.",
        notes: &[
            "With GET there is no body to sign: the answer URL must be called by POST.",
            "Callees see the number that was called, because Vonage does not pass on any other.",
        ],
    },
    Provider {
        key: "bandwidth",
        name: "Bandwidth",
        buy: "Dashboard, Numbers, then assign them to a location with a Voice application.",
        secret: "`user:password`, as set for the callbacks of the application: Bandwidth does not sign, \
                 and sends these by HTTP Basic.",
        hooks: &[
            ("Voice application, Call-initiated URL, POST", "initiate"),
            ("Voice application, Call status URL, POST", "disconnect"),
        ],
        fallback: "Set the Call-initiated fallback URL to a page with BXML that transfers to your own \
                   number.",
        notes: &["Passwords travel with each request: use HTTPS, and this password nowhere else."],
    },
    Provider {
        key: "generic",
        name: "your own switch",
        buy: "Order them from the carrier that routes calls to your switch.",
        secret: "any text of 16 bytes or more, or `whsec_…` of Standard Webhooks; `ringwell token` makes \
                 one.",
        hooks: &[("Your switch posts its events, as JSON or a form", "events")],
        fallback: "If the switch gets no answer within a second, or a status other than 200, it \
                   connects the call to a default number.",
        notes: &[
            "Events and answers: [spec/calls.md](../spec/calls.md), \"The generic provider\".",
            "Kamailio, Asterisk and FreeSWITCH ask by `POST /v1/sip/route` instead: [SIP](sip.md).",
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
        let Self { key, name, buy, secret, hooks, fallback, notes } = self;
        let mut text = format!("# From a number of {name} to an attributed call\n\n{HEAD}\n");
        let _ = write!(
            text,
            "1. Buy numbers. {buy}\n\
             2. Put them into a ring pool ([managing pools](../guides/managing-pools.md)).\n\
             3. Write the secret into a file that only the server can read: {secret} Paste it, then press Enter and \
             Ctrl+D.\n\n\
             \x20  ```sh\n   install -m 600 /dev/stdin main.secret\n   ```\n\n\
             4. Add to `ringwell.toml`, then send SIGHUP, or restart if there was no `[calls]` before:\n\n\
             \x20  ```toml\n   [calls]\n   listen = \"127.0.0.1:8090\"\n\n\
             \x20  [[calls.account]]\n   name = \"main\"\n   provider = \"{key}\"\n\
             \x20  public_url = \"https://calls.example.com\"\n\
             \x20  secret_files = [\"main.secret\"]\n\n\
             \x20  [[calls.destination]]\n   ring_pools = [1]\n   to = [\"+18005550199\"]\n   ```\n\n\
             5. Route `https://calls.example.com/t/` to `127.0.0.1:8090` in the proxy that terminates TLS, with \
             path and query unchanged.\n\
             6. Set the hooks:\n\n\
             \x20  | where | what |\n   |---|---|\n"
        );
        for (place, hook) in *hooks {
            let _ = writeln!(text, "   | {place} | `https://calls.example.com/t/main/{hook}` |");
        }
        let _ = write!(
            text,
            "\n7. {fallback}\n\
             8. Get a number from a page or a batch, call it, and look at the call with a management token:\n\n\
             \x20  ```sh\n   curl -w '\\n' -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:8080/v1/calls\n   ```\n\n\
             If the phone does not ring, search the log for \"a webhook is not signed correctly\": it \
             names the `public_url` that would have matched.\n"
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
         1. Order numbers from your carrier, routed to your switch.\n\
         2. Put them into a ring pool ([managing pools](../guides/managing-pools.md)).\n\
         3. Make a token for the switch: `ringwell token`; its SHA-256 goes into \
         `management.token_sha256`.\n\
         4. Add to `ringwell.toml`:\n\n\
         \x20  ```toml\n   [calls]\n\n   [[calls.destination]]\n   ring_pools = [1]\n\
         \x20  to = [\"+18005550199\"]\n   ```\n\n\
         5. Have the switch ask `POST /v1/sip/route` for each call: \
         [deploy/kamailio.cfg](../../deploy/kamailio.cfg), \
         [deploy/asterisk-extensions.conf](../../deploy/asterisk-extensions.conf) and \
         [deploy/freeswitch.xml](../../deploy/freeswitch.xml) do; [spec/sip.md](../spec/sip.md) describes each.\n\
         6. Have the switch report answers and ends to an account with `provider = \"generic\"`, whose name it \
         sends as `trunk`: the files for Asterisk and FreeSWITCH do, and for Kamailio \
         [deploy/kamailio-proxy.cfg](../../deploy/kamailio-proxy.cfg). A switch that redirects does not see them.\n\
         7. Set a default destination in the switch, in case this server does not answer with 200 within a \
         second.\n\
         8. Get a number from a page or a batch, call it, and look at the call with a management token:\n\n\
         \x20  ```sh\n   curl -w '\\n' -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:8080/v1/calls\n   ```\n"
    );
    wrapped(&text)
}

/// Wraps lines of prose at 110 columns; code and tables stay.
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
