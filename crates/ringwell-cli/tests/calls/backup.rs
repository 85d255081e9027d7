//! Tests that backups also contain calls.

use std::fs;
use std::time::Duration;

use super::Switchboard;
use super::damage;
use super::phone::{Phone, Provider};
use super::support::server::{Server, ringwell};
use super::support::site::Pool;

#[test]
fn a_backup_restores_calls() {
    let board = Switchboard::new("");
    board.call_of("CA1", board.visitor("17"));
    let mut before = board.call("CA1", |call| call["state"] == "ended");
    // The restored node cannot determine whether the allocation was undone after the backup.
    before["keep_alives"] = serde_json::Value::Null;
    let copy = board.site.config().with_file_name("copy");
    let data = board.site.data().to_owned();
    let secret = [7; 32];
    fs::write(data.join("site-secret"), secret).unwrap();
    let mut backup = ringwell(&["backup", "--config"]);
    let output = backup.arg(board.site.config()).arg("--to").arg(&copy).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let Switchboard { site, server, .. } = board;
    drop(server);
    fs::remove_dir_all(&data).unwrap();
    let restored = ringwell(&["restore"]).arg(&copy).arg(&data).output().unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    assert_eq!(fs::read(data.join("site-secret")).unwrap(), secret);
    fs::remove_file(data.join("site-secret")).unwrap();
    let server = Server::start(site.serve(&[]));
    let board = Switchboard { phone: Phone::at(&server), site, server };
    assert_eq!(board.call("CA1", |_| true), before);
}

/// The visitors who received the number between the backup and the restore are unknown, so the
/// attribution must not be certain.
#[test]
fn after_a_restore_an_attribution_lists_the_visitors_before_the_backup_and_is_not_certain() {
    let short = Duration::from_secs(1);
    let board = Switchboard::with_pool(Pool::new(16, 1, short), "", "", &[]);
    let free = || std::thread::sleep(2 * short);
    for visitor in ["1", "2"] {
        board.visitor(visitor);
        free();
    }
    let copy = board.site.config().with_file_name("copy");
    let mut backup = ringwell(&["backup", "--config"]);
    assert!(backup.arg(board.site.config()).arg("--to").arg(&copy).status().unwrap().success());
    board.visitor("lost");
    let Switchboard { site, server, .. } = board;
    drop(server);
    fs::remove_dir_all(site.data()).unwrap();
    assert!(ringwell(&["restore"]).arg(&copy).arg(site.data()).status().unwrap().success());
    let server = Server::start(site.serve(&[]));
    let board = Switchboard { phone: Phone::at(&server), site, server };
    free();
    board.call_of("CA1", board.visitor("4"));
    let call = board.call("CA1", |call| call["attribution"]["outcome"] == "allocated");
    let attribution = &call["attribution"];
    assert_eq!(attribution["parameters"]["id"], "4");
    let earlier = attribution["earlier"].as_array().unwrap();
    let ids: Vec<_> = earlier.iter().map(|it| it["parameters"]["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["2", "1"], "{call:#}");
    let confidence = &attribution["confidence"];
    assert!(confidence["value"].as_f64().unwrap() < 0.5, "{call:#}");
    let reason = confidence["reason"].as_str().unwrap();
    assert!(reason.contains("; one of 2 earlier visitors who had the number may be"), "{reason}");
    assert!(reason.contains("; earlier visitors may be missing, because part of"), "{reason}");
}

/// A backup must include the files outside the call log. They contain reports that wait for it,
/// unreadable reports, and the periods in which numbers were overflow numbers.
#[test]
fn a_backup_restores_reports_that_wait_for_the_call_log() {
    let board = damage::damaged();
    let number = board.visitor("17");
    let ring = format!("CallSid=CA1&From=%2B14155551234&To=%2B1{number}");
    assert_eq!(Provider::twilio(&board.phone).post("/t/main/answer", &ring).status, 200);
    let Switchboard { site, server, .. } = board;
    server.stop();
    damage::repair(&site);
    let data = site.data().to_owned();
    let periods = "[{\"number\":2000000000,\"from\":1,\"to\":2}]";
    fs::write(data.join("overflow-periods.json"), periods).unwrap();
    fs::write(data.join("calls-waiting.unread"), "of a later version\n").unwrap();
    let waiting = fs::read(data.join("calls-waiting.jsonl")).unwrap();
    let copy = site.config().with_file_name("copy");
    let run = |command: &str, more: &[&std::ffi::OsStr]| {
        let mut command = ringwell(&[command, "--config"]);
        let output = command.arg(site.config()).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run("backup", &["--to".as_ref(), copy.as_os_str()]);
    fs::remove_dir_all(&data).unwrap();
    run("restore", &[copy.as_os_str()]);
    assert_eq!(fs::read_to_string(data.join("overflow-periods.json")).unwrap(), periods);
    assert_eq!(fs::read(data.join("calls-waiting.jsonl")).unwrap(), waiting);
    let unread = fs::read_to_string(data.join("calls-waiting.unread")).unwrap();
    assert_eq!(unread, "of a later version\n");
    let server = Server::start(site.serve(&[]));
    let board = Switchboard { phone: Phone::at(&server), site, server };
    board.call("CA1", |_| true);
}
