//! Tests that blocked callers are refused, and that the call log shows this.

use super::Switchboard;
use super::phone::Provider;
use super::support::server::ringwell;
use super::support::site::{TOKEN, TOKEN_SHA256};

/// The configuration of a second pool, whose numbers are not called.
const OTHER_POOL: &str = "[[ring_pool]]\nid = 17\nring_pool_key = \"key-of-another-pool-17\"\n\
                          lifetime = \"30m\"\nnumbers = [\"3125550100\"]\noverflow_number = \"3125550199\"\n";

impl Switchboard {
    /// Returns the output of `ringwell calls …`.
    fn calls(&self, args: &[&str]) -> Result<String, String> {
        let mut command = ringwell(&["calls"]);
        command.args(args).args(["--url", self.server.address()]).env("RINGWELL_TOKEN", TOKEN);
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }
}

#[test]
fn a_blocked_caller_is_refused_and_logged_as_blocked_until_unblocked() {
    let board = Switchboard::with_settings("", OTHER_POOL, &[]);
    let number = board.visitor("17");
    let twilio = Provider::twilio(&board.phone);
    let ring = |call: &str, from: &str| {
        let ring = format!("CallSid={call}&CallStatus=ringing&From={from}&To=%2B1{number}");
        twilio.post("/t/main/answer", &ring).body
    };
    let robot = "%2B14155551234";
    assert!(ring("CA1", robot).contains("+18005550199"));
    let id = board.calls(&["block", "+14155551234", "--note", "a robot"]).unwrap();
    board.calls(&["block", "+1900*", "--answer", "busy"]).unwrap();
    board.calls(&["block", "withheld", "--pool", "16"]).unwrap();
    board.calls(&["block", "+14155550000", "--pool", "17"]).unwrap();
    let list = board.calls(&["blocks"]).unwrap();
    assert!(list.contains("+1900*") && list.contains("a robot"), "{list}");

    assert!(ring("CA2", robot).contains("<Reject reason=\"rejected\"/>"));
    assert!(ring("CA3", "%2B19005551234").contains("<Reject reason=\"busy\"/>"));
    assert!(ring("CA4", "anonymous").contains("<Reject reason=\"rejected\"/>"));
    // This caller is blocked only for another pool.
    assert!(ring("CA5", "%2B14155550000").contains("+18005550199"));
    let call = board.call("CA2", |call| call["state"] == "ended");
    assert_eq!((&call["outcome"], &call["blocked"]), (&"rejected".into(), &id.trim().into()));
    assert_eq!(call["destination"], serde_json::Value::Null);
    assert_eq!(call["attribution"]["parameters"]["id"], "17", "{call:#}");
    assert_eq!(board.call("CA3", |call| call["state"] == "ended")["outcome"], "busy");
    // The provider reports that the refused call failed.
    let end = "CallSid=CA2&CallStatus=failed&From=%2B14155551234";
    assert_eq!(twilio.post("/t/main/status", end).status, 200);
    assert_eq!(board.call("CA2", |_| true)["outcome"], "rejected");
    let blocked = board.get("/v1/calls?blocked=true").json();
    assert_eq!(blocked["calls"].as_array().unwrap().len(), 3);

    board.calls(&["unblock", id.trim()]).unwrap();
    assert!(ring("CA6", robot).contains("+18005550199"));
    let again = board.calls(&["unblock", id.trim()]).unwrap_err();
    assert!(again.contains("there is no such entry"), "{again}");
    let elsewhere = board.calls(&["block", "+14155551234", "--pool", "99"]).unwrap_err();
    assert!(elsewhere.contains("pool: there is no ring pool 99"), "{elsewhere}");
    let unreadable = board.calls(&["block", "4155551234"]).unwrap_err();
    assert!(unreadable.contains("caller: must be a number"), "{unreadable}");
    let wide = board.calls(&["block", "+1*"]).unwrap_err();
    assert!(wide.contains("+1* matches all callers of a large country"), "{wide}");
    board.calls(&["block", "+1*", "--wide"]).unwrap();
    assert!(ring("CA7", "%2B14155550000").contains("<Reject"));
    assert_eq!(board.get("/v1/calls?robocall=300").status, 400);
    // The log names the entries and the token, but no caller.
    let log = board.server.stop();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("a caller was ")).collect();
    assert_eq!(lines.len(), 6, "{log}");
    let id = id.trim();
    assert!(lines[0].contains("a caller was blocked") && lines[0].contains(id), "{log}");
    assert!(lines[4].contains("a caller was unblocked") && lines[4].contains(id), "{log}");
    for line in lines {
        assert!(line.contains(&format!("configured token {}", &TOKEN_SHA256[..8])), "{line}");
    }
    assert!(!log.contains("4155551234"), "{log}");
}

#[test]
fn a_second_server_is_refused_before_it_has_touched_the_call_log() {
    let board = Switchboard::new("");
    let output = board.site.serve(&[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("another server keeps its call log"),
        "{said}"
    );
}
