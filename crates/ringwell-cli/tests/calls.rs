//! Tests calls with a real server: a provider's signed webhook, the document that connects the
//! caller, status callbacks, and the call log.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "calls/backup.rs"]
mod backup;
#[path = "calls/blocks.rs"]
mod blocks;
#[path = "calls/damage.rs"]
mod damage;
#[path = "calls/day.rs"]
mod day;
#[path = "calls/drill.rs"]
mod drill;
#[path = "calls/erase.rs"]
mod erase;
#[path = "calls/export.rs"]
mod export;
#[path = "calls/full_disk.rs"]
mod full_disk;
#[path = "calls/listen.rs"]
mod listen;
#[path = "calls/phone.rs"]
mod phone;
#[path = "calls/providers.rs"]
mod providers;
#[path = "calls/rate.rs"]
mod rate;
#[path = "calls/refused.rs"]
mod refused;
#[path = "calls/routing.rs"]
mod routing;
#[path = "calls/simulate.rs"]
mod simulate;
mod support;
#[path = "calls/webhooks.rs"]
mod webhooks;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use phone::{Phone, Provider};
use serde_json::Value;
use support::batch::{self, Ask, BULK};
use support::client::{HttpAnswer, request};
use support::server::Server;
use support::site::{Pool, Site, TOKEN};

const LIFETIME: Duration = Duration::from_mins(10);

/// A server with one pool and an account at a provider. Visitors and the provider use different
/// addresses of the server.
struct Switchboard {
    site: Site,
    server: Server,
    phone: Phone,
}

impl Switchboard {
    fn new(more: &str) -> Self {
        Self::with_files(more, &[])
    }

    /// Like `new`, but with files next to the configuration. Only the server's user can read them.
    fn with_files(more: &str, files: &[(&str, &str)]) -> Self {
        Self::with_settings("", more, files)
    }

    /// Like `with_files`, but with further settings before the settings for calls.
    fn with_settings(front: &str, more: &str, files: &[(&str, &str)]) -> Self {
        Self::with_pool(Pool::new(16, 10, LIFETIME), front, more, files)
    }

    /// Like `with_settings`, but with `pool` in place of the usual pool 16.
    fn with_pool(pool: Pool, front: &str, more: &str, files: &[(&str, &str)]) -> Self {
        Self::with_phone(pool, &format!("{front}{}", Phone::settings()), more, files)
    }

    /// Starts a server with `pool` in place of the usual pool 16, and with the call log in
    /// `database`.
    fn with_log(pool: Pool, database: &str) -> Self {
        let calls = format!("[calls]\ndatabase = \"{database}\"\n");
        let settings = Phone::settings().replace("[calls]\n", &calls);
        Self::with_phone(pool, &settings, "", &[])
    }

    fn with_phone(pool: Pool, phone: &str, more: &str, files: &[(&str, &str)]) -> Self {
        let destination = "[[calls.destination]]\nring_pools = [16]\nto = [\"+18005550199\"]\n";
        let settings = format!("{phone}\n{destination}{more}");
        let site = Site::new(vec![pool], &settings);
        Phone::write_secrets(&site);
        for (name, text) in files {
            Phone::write_secret(&site, name, text);
        }
        let server = Server::start(site.serve(&[]));
        let phone = Phone::at(&server);
        Self { site, server, phone }
    }

    /// Allocates a number from pool 16 to a visitor with the given parameter `id`.
    fn visitor(&self, id: &str) -> u64 {
        let mut client = self.server.client();
        let ask = Ask { pool: 16, id: id.to_owned() };
        let body = batch::body(&[ask], &self.site.pools);
        let rows = batch::rows(&client.post(BULK, &[], &body).unwrap());
        assert!(!rows[0].overflow);
        rows[0].number
    }

    fn get(&self, path: &str) -> HttpAnswer {
        let bearer = format!("Bearer {TOKEN}");
        self.server.client().get(path, &[("authorization", &bearer)]).unwrap()
    }

    /// Returns the call with the provider's id `provider_call`, once `is_done` returns true for it.
    fn call(&self, provider_call: &str, is_done: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let calls = self.get("/v1/calls").json();
            // While the call log is unavailable, the answer may lack the list of calls.
            let mut all = calls["calls"].as_array().into_iter().flatten();
            let found = all.find(|call| call["provider_call_id"] == provider_call);
            if let Some(found) = found.filter(|call| is_done(call)) {
                return self.get(&format!("/v1/calls/{}", found["id"].as_str().unwrap())).json();
            }
            let said = || format!("{provider_call}: {calls}\n{}", self.server.log());
            assert!(Instant::now() < until, "{}", said());
        }
    }
}

#[test]
fn a_call_is_connected_and_logged_with_its_visitor() {
    let board = Switchboard::new("");
    let number = board.visitor("17");
    let to = format!("%2B1{number}");
    let twilio = Provider::twilio(&board.phone);
    let ring = format!("CallSid=CA1&CallStatus=ringing&From=%2B14155551234&To={to}&Extra=1");
    let answer = twilio.post("/t/main/answer", &ring);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.header("content-type"), Some("application/xml"));
    assert!(answer.body.contains(">+18005550199</Number>"), "{}", answer.body);
    let url = answer.body.split("action=\"https://calls.example").nth(1).unwrap();
    let action = url.split('"').next().unwrap().replace("&amp;", "&");
    let status = action.replace("/dial", "/status");

    let callee = "CallSid=CA2&ParentCallSid=CA1&SequenceNumber=";
    for fields in ["1&CallStatus=ringing", "2&CallStatus=in-progress"] {
        assert_eq!(twilio.post(&status, &format!("{callee}{fields}")).status, 200);
    }
    let done = "CallSid=CA1&DialCallStatus=completed&DialCallDuration=58&DialBridged=true";
    // Sends the request twice, as providers sometimes do.
    for _ in 0..2 {
        let answer = twilio.post(&action, done);
        assert!(answer.body.ends_with("<Response/>"), "{}", answer.body);
    }

    let call = board.call("CA1", |call| call["state"] == "ended");
    assert_eq!(call["outcome"], "answered", "{call:#}");
    assert_eq!(call["talk_seconds"], 58);
    assert_eq!(call["from"]["e164"], "+14155551234");
    assert_eq!(call["to"], format!("+1{number}"));
    assert_eq!(call["destination"], "+18005550199");
    assert_eq!(call["pool"]["id"], 16);
    assert_eq!(call["first_time_caller"], true);
    let attribution = &call["attribution"];
    assert_eq!(attribution["outcome"], "allocated", "{call:#}");
    assert_eq!(attribution["late"], false);
    assert_eq!(attribution["parameters"]["id"], "17", "{call:#}");
    assert_eq!(attribution["confidence"]["value"], 1.0);
    let timeline = call["timeline"].as_array().unwrap();
    let kinds: Vec<_> = timeline.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["allocated", "started", "ringing", "answered", "ended"]);

    let events = board.get("/v1/events?after=0").json();
    let all = events["events"].as_array().unwrap();
    let kinds: Vec<_> = all.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["call.started", "call.answered", "call.completed"]);
    assert_eq!(all[2]["data"]["talk_seconds"], 58);
    assert_eq!(board.get("/v1/events?after=3").json()["events"], Value::Array(Vec::new()));
}

#[test]
fn a_token_with_the_role_lookup_reads_calls_with_masked_callers() {
    // The server's configuration contains the SHA-256 hash of the token.
    let token = "a-token-of-the-tests-that-looks-up";
    let sha256 = "41fa85103615e3e971508a233f21084a5dc06df94049956beb97e34cef095340";
    let front = format!("management.lookup_sha256 = [\"{sha256}\"]\n");
    let allowed = "[calls.webhooks]\nallow_networks = [\"127.0.0.0/8\"]\nallow_http = true\n\
                   allow_ports = [9]\n";
    let board = Switchboard::with_settings(&front, allowed, &[]);
    let number = board.visitor("17");
    let ring = format!("CallSid=CA1&From=%2B14155551234&To=%2B1{number}");
    assert_eq!(Provider::twilio(&board.phone).post("/t/main/answer", &ring).status, 200);
    let ask_management = |path: &str, body: &str| {
        let bearer = format!("Bearer {TOKEN}");
        board.server.client().post(path, &[("authorization", &bearer)], body).unwrap().status
    };
    let full = board.call("CA1", |call| call["attribution"]["outcome"] == "allocated");
    assert_eq!(full["from"]["e164"], "+14155551234");
    // The endpoint cannot be reached, so the delivery's error contains the endpoint's address.
    let endpoint = "{\"url\":\"http://127.0.0.1:9/SECRET-PATH\"}";
    assert_eq!(ask_management("/v1/webhooks", endpoint), 201);
    let outcomes = format!("/v1/calls/{}/outcomes", full["id"].as_str().unwrap());
    let sale = "{\"type\":\"SECRET-TYPE\",\"value\":\"99.5\",\"currency\":\"EUR\",\
                \"external_id\":\"SECRET-ID\"}";
    assert_eq!(ask_management(&outcomes, sale), 201);
    let is_tried = |call: &Value| {
        let path = format!("/v1/calls/{}", call["id"].as_str().unwrap());
        let body = board.get(&path).body;
        body.contains("127.0.0.1:9") && body.contains("SECRET-ID")
    };
    let full = board.call("CA1", is_tried);

    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let ask = |path: &str| board.server.client().get(path, &headers).unwrap();
    let one = ask(&format!("/v1/calls/{}", full["id"].as_str().unwrap()));
    for answer in [ask("/v1/calls"), ask(&format!("/v1/calls?number=%2B1{number}")), one] {
        assert_eq!(answer.status, 200, "{}", answer.body);
        for text in ["4155551234", "SECRET", "99.5", "127.0.0.1", "conversion", "webhook"] {
            assert!(!answer.body.contains(text), "{text}: {}", answer.body);
        }
        let body = answer.json();
        let call = body["calls"].get(0).unwrap_or(&body);
        assert_eq!(call["from"], serde_json::json!({ "masked": "+1415***1234" }), "{call}");
        assert_eq!(call["attribution"]["parameters"]["id"], "17");
    }
    let head = |path: &str| {
        let fields = [("authorization", bearer.as_str()), ("connection", "close")];
        let mut stream = TcpStream::connect(board.server.address()).unwrap();
        stream.write_all(request("HEAD", path, &fields, "").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for (path, status) in
        [("/v1/calls", "200"), ("/v1/attributions?number=2001600000", "200"), ("/v1/events", "403")]
    {
        assert!(head(path).starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {}", head(path));
    }
    // The token does not permit these requests. A filter by caller would confirm a guessed number,
    // and events and outcomes contain callers' numbers.
    for path in ["/v1/calls?caller=%2B14155551234", "/v1/events", "/v1/outcomes", "/v1/webhooks"] {
        let answer = ask(path);
        assert_eq!(answer.status, 403, "{path}: {}", answer.body);
    }
    let posted = board.server.client().post(&outcomes, &headers, "{}").unwrap();
    assert_eq!(posted.status, 403, "{}", posted.body);
}

#[test]
fn an_unauthenticated_client_gets_no_data_and_the_log_shows_the_url_that_would_have_matched() {
    let board = Switchboard::new("");
    let ring = "CallSid=CA1&From=%2B14155551234&To=%2B12001600000";
    let twilio = Provider::twilio(&board.phone);
    let behind_a_proxy = twilio.at_url("http://calls.example").post("/t/main/answer", ring);
    assert_eq!(behind_a_proxy.status, 403, "{}", behind_a_proxy.body);
    board.server.says("a signature for http://calls.example would have matched");
    let log = board.server.log();
    assert!(!log.contains("14155551234") && !log.contains(phone::SECRET), "{log}");
    let mut client = board.phone.client();
    let form = ("content-type", "application/x-www-form-urlencoded");
    assert_eq!(client.post("/t/main/answer", &[form], ring).unwrap().status, 403);
    assert_eq!(client.post("/t/other/answer", &[form], ring).unwrap().status, 404);
    assert_eq!(client.post("/t/main/nothing", &[form], ring).unwrap().status, 404);
    // The management API has a separate address, and requires the management token.
    assert_eq!(client.get("/v1/calls", &[]).unwrap().status, 404);
    let asked_for = |answer: HttpAnswer| -> Vec<String> {
        assert_eq!(answer.status, 401);
        let asked = answer.headers.into_iter().filter(|(name, _)| name == "www-authenticate");
        asked.map(|(_, value)| value).collect()
    };
    let mut client = board.server.client();
    assert_eq!(asked_for(client.get("/v1/calls", &[]).unwrap()), ["Bearer"]);
    // A switch that uses libcurl sends the credentials from its URL only after a Basic challenge.
    let asked = asked_for(client.post("/v1/sip/route", &[], "{}").unwrap());
    assert_eq!(asked, ["Bearer", "Basic realm=\"ringwell\""]);
    assert!(board.get("/v1/calls").json()["calls"].as_array().unwrap().is_empty());
}

#[test]
fn a_stranger_cannot_fill_the_log() {
    let board = Switchboard::new("");
    let mut client = board.phone.client();
    let form = ("content-type", "application/x-www-form-urlencoded");
    let body = format!("CallSid=CA1&Note={}", "x".repeat(60_000));
    let start = Instant::now();
    for _ in 0..200 {
        assert_eq!(client.post("/t/main/answer", &[form], &body).unwrap().status, 403);
    }
    let seconds = start.elapsed().as_secs();
    let log = board.server.log();
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains("not signed correctly")).collect();
    assert!((1..=seconds + 2).contains(&(lines.len() as u64)), "{} lines", lines.len());
    assert!(lines.iter().all(|line| line.len() < 4_000), "{}", lines[0].len());
    let metrics = board.get("/metrics").body;
    assert!(metrics.contains("\nringwell_call_webhooks_unsigned_total 200\n"), "{metrics}");
}

#[test]
fn bad_input_has_an_answer_and_the_phone_rings_where_it_can() {
    let board = Switchboard::new("");
    let number = board.visitor("17");
    let twilio = Provider::twilio(&board.phone);
    let hundred = "4".repeat(100);
    for (place, from) in ["", "anonymous", "sip:alice@pbx.example", &hundred].iter().enumerate() {
        let ring = format!("CallSid=CB{place}&From={from}&To=%2B1{number}");
        let answer = twilio.post("/t/main/answer", &ring);
        assert!(answer.body.contains(">+18005550199<"), "{from}: {}", answer.body);
        let call = board.call(&format!("CB{place}"), |_| true);
        assert!(call["from"].get("e164").is_none(), "{call}");
    }
    // There is no destination, so the provider must use its own fallback.
    let nowhere = "CallSid=CC1&From=%2B14155551234&To=%2B19995550100";
    assert_eq!(twilio.post("/t/main/answer", nowhere).status, 503);
    assert_eq!(board.call("CC1", |_| true)["attribution"]["outcome"], "none");
    // Reports the end of a call whose beginning was never reported.
    let end = "CallSid=CD1&CallStatus=completed&From=%2B14155551234&To=%2B12001600001";
    assert_eq!(twilio.post("/t/main/status", end).status, 200);
    let end = board.call("CD1", |call| call["attribution"]["outcome"] == "none");
    assert_eq!(end["outcome"], "caller_gave_up");
    // The call to a number outside all pools does not count.
    let counted = ["allocated\"} 4\n", "overflow\"} 0\n", "none\"} 1\n", "unknown\"} 0\n"]
        .map(|count| format!("\nringwell_calls_attributed_total{{outcome=\"{count}"));
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let metrics = board.get("/metrics").body;
        if counted.iter().all(|line| metrics.contains(line.as_str())) {
            break;
        }
        assert!(Instant::now() < until, "{metrics}");
    }
    assert_eq!(twilio.post("/t/main/answer", "From=%2B14155551234").status, 400);
    assert_eq!(twilio.post("/t/main/answer", "{\"CallSid\":\"CA1\"}").status, 400);
    let large = format!("CallSid=CE1&Large={}", "x".repeat(100 << 10));
    assert_eq!(twilio.post("/t/main/answer", &large).status, 413);
    let fields = "&more=".repeat(1_000);
    assert_eq!(twilio.post("/t/main/answer", &format!("CallSid=CE1{fields}")).status, 413);
    // The server stops reading when the body exceeds the limit. Either the client gets the answer,
    // or the connection breaks while the client is still writing.
    let huge = format!("CallSid=CE1&Large={}", "x".repeat(10 << 20));
    assert!(twilio.try_post("/t/main/answer", &huge).is_none_or(|answer| answer.status == 413));
    for path in
        ["/v1/calls?since=soon", "/v1/calls?outcome=x", "/v1/calls?after=x", "/v1/calls?x=1"]
    {
        assert_eq!(board.get(path).status, 400, "{path}");
    }
    assert_eq!(board.get("/v1/calls/c_none").status, 404);
}

#[test]
fn the_second_destination_is_called_when_the_first_is_busy() {
    let more = "\n[[calls.destination]]\nto = [\"+18005550001\", \"sip:desk@pbx.example\"]\n\
                timeout = \"10s\"\nwhisper = \"A call from the web\"\n";
    let board = Switchboard::new(more);
    let twilio = Provider::twilio(&board.phone);
    let ring = "CallSid=CA1&From=%2B14155551234&To=%2B19995550100";
    let first = twilio.post("/t/main/answer", ring);
    assert!(first.body.contains("+18005550001") && first.body.contains("timeout=\"10\""));
    let hooks = phone::urls(&first.body);
    let whisper = hooks.iter().find(|url| url.contains("/whisper")).unwrap();
    assert!(twilio.post(whisper, "CallSid=CA2").body.contains("<Say>A call from the web</Say>"));
    let dial = hooks.iter().find(|url| url.contains("/dial")).unwrap();
    let second = twilio.post(dial, "CallSid=CA1&From=%2B14155551234&DialCallStatus=busy");
    assert!(second.body.contains("<Sip "), "{}", second.body);
    assert_eq!(board.call("CA1", |_| true)["state"], "ringing");
    let dial = phone::urls(&second.body).into_iter().find(|url| url.contains("/dial")).unwrap();
    let last = twilio.post(&dial, "CallSid=CA1&DialCallStatus=no-answer");
    assert!(last.body.ends_with("<Response/>"), "{}", last.body);
    let call = board.call("CA1", |call| call["state"] == "ended");
    assert_eq!(call["outcome"], "busy", "{call:#}");
}

#[test]
fn answered_calls_survive_kill_9() {
    let board = Switchboard::new("");
    let number = board.visitor("17");
    let twilio = Provider::twilio(&board.phone);
    for call in 0..20 {
        let ring = format!("CallSid=CA{call}&From=%2B14155551234&To=%2B1{number}");
        assert_eq!(twilio.post("/t/main/answer", &ring).status, 200);
    }
    let Switchboard { site, server, .. } = board;
    server.kill();
    let server = Server::start(site.serve(&[]));
    let board = Switchboard { phone: Phone::at(&server), site, server };
    for call in 0..20 {
        let call = board.call(&format!("CA{call}"), |it| it["attribution"]["outcome"] != "pending");
        assert_eq!(call["attribution"]["parameters"]["id"], "17");
    }
}

#[test]
fn ringwell_call_calls_a_number_like_its_provider() {
    let board = Switchboard::new("");
    let number = board.visitor("17").to_string();
    let config = board.site.config();
    let url = format!("http://{}", board.phone.address());
    let ring = || {
        let mut command = support::server::ringwell(&["call", "--to", &number, "--url", &url]);
        command.args(["--answer-after", "100ms", "--talk", "1s", "--config"]).arg(&config);
        command.output().unwrap()
    };
    let output = ring();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("dialing +18005550199"), "{said}");
    let call = board.call(said.split(':').next().unwrap(), |call| call["state"] == "ended");
    assert_eq!((&call["outcome"], &call["talk_seconds"]), (&"answered".into(), &1.into()));
    assert_eq!(call["attribution"]["parameters"]["id"], "17", "{call:#}");

    // A request that is signed with a wrong secret gets the same answer as an unsigned one.
    std::fs::write(config.with_file_name("main.secret"), "another-secret-0123456789abcdef")
        .unwrap();
    let output = ring();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("403"), "{said}");
}
