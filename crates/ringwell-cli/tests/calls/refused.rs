//! Tests that wrong settings and arguments for calls are refused with a message that says what to
//! do.

use std::process::Output;

use super::phone::Phone;
use super::support::server::ringwell;
use super::support::site::{Pool, Site, TOKEN};
use super::{LIFETIME, Switchboard};

fn run(args: &[&str]) -> Output {
    ringwell(args).env("RINGWELL_TOKEN", TOKEN).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_unknown_number_whose_calls_would_come_back_is_refused_at_the_start() {
    let rule = "[[calls.destination]]\nring_pools = [1]\nto = [\"+18005550199\"]\n";
    let wanted = "calls.account.unknown_number: +12000100000 is a number of this server";
    for (rule, is_refused) in [("", true), (rule, false)] {
        let calls = Phone::settings() + "unknown_number = \"+12000100000\"\n" + rule;
        let site = Site::new(vec![Pool::new(1, 5, LIFETIME)], &calls);
        Phone::write_secrets(&site);
        let config = site.config().to_str().unwrap().to_owned();
        let checked = run(&["serve", "--check", "--config", &config]);
        assert_eq!(checked.status.success(), !is_refused, "{checked:?}");
        assert_eq!(text(&checked.stderr).contains(wanted), is_refused, "{checked:?}");
        let examined = run(&["doctor", "--config", &config]);
        assert_eq!(text(&examined.stdout).contains(wanted), is_refused, "{examined:?}");
    }
}

#[test]
fn empty_and_wrong_arguments_say_what_to_type() {
    let board = Switchboard::new("");
    let config = board.site.config().to_str().unwrap().to_owned();
    let folder = board.site.config().parent().unwrap().to_str().unwrap().to_owned();
    let (url, to_file) = (board.server.address().to_owned(), format!("{folder} is a directory"));
    for (args, wanted) in [
        (vec!["calls", "unblock", "", "--url", &url], "`ringwell calls blocks` lists the ids"),
        (vec!["calls", "outcomes", &folder, "--url", &url], to_file.as_str()),
        (vec!["call", "--to", "", "--config", &config], "--to \"\" is not a telephone number"),
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains(wanted), "{output:?}");
    }
}

/// RFC 9110, section 11.1: the scheme's name is case-insensitive.
#[test]
fn a_token_is_accepted_however_its_scheme_is_written() {
    let board = Switchboard::new("");
    let mut client = board.server.client();
    let question = "{\"to\":\"1\",\"call_id\":\"c\"}";
    for scheme in ["Bearer", "bearer", "BEARER", "Bearer "] {
        let value = format!("{scheme} {TOKEN}");
        let token = [("authorization", value.as_str())];
        for path in ["/v1/calls", "/v1/shards"] {
            assert_eq!(client.get(path, &token).unwrap().status, 200, "{scheme:?} {path}");
        }
        let status = client.post("/v1/sip/route", &token, question).unwrap().status;
        assert_eq!(status, 200, "{scheme:?}");
    }
    let value = format!("Bearer {TOKEN}");
    let token = [("authorization", value.as_str())];
    for (query, wanted) in [
        ("attribution=no", 200),
        ("attribution=yes", 200),
        ("attribution=NO", 400),
        ("attribution=false", 400),
        ("attribution=", 400),
    ] {
        let answer = client.post(&format!("/v1/sip/route?{query}"), &token, question).unwrap();
        assert_eq!(answer.status, wanted, "{query}: {}", answer.body);
        let is_named = answer.body.contains("attribution: must be yes or no");
        assert_eq!(is_named, wanted == 400, "{query}: {}", answer.body);
    }
    let refused = [("authorization", "Bearers 0")];
    assert_eq!(client.get("/v1/calls", &refused).unwrap().status, 401);
}
