//! `ringwell calls`: exports a real server's call log, and uploads the outcomes of calls.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};
use std::thread;

use serde_json::Value;

use super::Switchboard;
use super::phone::Provider;
use super::support::server::ringwell;
use super::support::site::TOKEN;

impl Switchboard {
    fn calls_command(&self, args: &[&str]) -> Command {
        let mut command = ringwell(&["calls"]);
        command.args(args).args(["--url", &format!("http://{}", self.server.address())]);
        command.env("RINGWELL_TOKEN", TOKEN);
        command
    }

    fn calls_say(&self, args: &[&str]) -> String {
        let output = self.calls_command(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Passes `csv` to `ringwell calls outcomes` on stdin.
    fn outcomes(&self, csv: &str) -> Output {
        let mut command = self.calls_command(&["outcomes", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, csv.as_bytes()).unwrap();
        drop(stdin);
        child.wait_with_output().unwrap()
    }
}

/// The number of exported calls to `number`.
fn count_of(board: &Switchboard, number: &str) -> usize {
    board.calls_say(&["export", "--number", number]).lines().count()
}

#[test]
fn every_call_is_exported_once_and_filters_apply() {
    let board = Switchboard::new("");
    // Creates more than one page of calls. The server returns at most a thousand calls per page.
    thread::scope(|scope| {
        for thread in 0..10 {
            let phone = &board.phone;
            scope.spawn(move || {
                for call in 0..105 {
                    let end =
                        format!("CallSid=CA{thread}-{call}&CallStatus=busy&To=%2B12001600001");
                    assert_eq!(Provider::twilio(phone).post("/t/main/status", &end).status, 200);
                }
            });
        }
    });
    let number = board.visitor("17&gclid=%3D1%2B1&utm_term=x%0Ay%1B");
    board.call_of("CB1", number);
    let lines = board.calls_say(&["export"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: BTreeSet<_> = lines.iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!((lines.len(), names.len()), (1_051, 1_051));

    let csv = board.calls_say(&["export", "--format", "csv", "--outcome", "answered"]);
    let mut lines = csv.lines();
    let header: Vec<_> = lines.next().unwrap().split(',').collect();
    let line: Vec<_> = lines.next().unwrap().split(',').collect();
    let field = |name: &str| line[header.iter().position(|it| *it == name).unwrap()];
    assert_eq!((field("provider_call_id"), field("from")), ("CB1", "+14155551234"));
    assert_eq!((field("pool_id"), field("gclid")), ("16", "'=1+1"));
    assert_eq!(lines.next(), None);
    let raw = board.calls_say(&["export", "--format", "csv", "--raw", "--pool", "16"]);
    assert!(raw.contains(",=1+1,"), "{raw}");
    assert_eq!(field("utm_term"), "x y ");
    assert!(raw.contains(",\"x\ny\u{1b}\","), "{raw}");
    assert_eq!(count_of(&board, "(200) 160-0001"), 1_050);
    assert_eq!(board.calls_say(&["export", "--until", "24h"]), "");
    let count = |flags: &[&str]| board.calls_say(&[&["export"], flags].concat()).lines().count();
    assert_eq!(count(&["--pool", "15", "--pool", "16"]), 1_051);
    assert_eq!(count(&["--pool", "14", "--pool", "15"]), 0);
    assert_eq!(count(&["--number", "2001600001"]), 1_050 + usize::from(number == 2_001_600_001));
    assert_eq!(count(&["--talk-min", "1h"]), 0);
    assert_eq!(count(&["--talk-min", "0s", "--robocall-below", "60"]), 1);
    assert_eq!(count(&["--robocall-below", "0"]), 0);
    let wrong = board.calls_command(&["export", "--outcome", "lost"]).output().unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(!wrong.status.success() && said.contains("outcome: one of"), "{said}");

    // Calls can be removed, but not twice.
    let first = names.first().unwrap();
    assert_eq!(board.calls_say(&["remove", first]), "removed 1 call\n");
    assert_eq!(count(&[]), 1_050);
    let second = names.iter().nth(1).unwrap();
    let again = board.calls_command(&["remove", first, "", second]).output().unwrap();
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && said.contains("there is no such call"), "{said}");
    assert!(said.contains("\"\": this is not the id of a call"), "{said}");
    assert_eq!(String::from_utf8_lossy(&again.stdout), "removed 1 call\n");

    // An export that starts after a given position has no header.
    let page = board.get("/v1/calls?limit=1000").json();
    let rest = ["export", "--format", "csv", "--after", page["next"].as_str().unwrap()];
    assert_eq!(board.calls_say(&rest).lines().count(), 49);
    // If the output file already exists, such an export appends to it.
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("calls.csv");
    std::fs::write(&file, "the first page\n").unwrap();
    board.calls_say(&[&rest[..], &["--output", file.to_str().unwrap()]].concat());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("the first page\n") && text.lines().count() == 50, "{text}");
}

#[test]
fn an_upload_that_is_too_large_is_refused_and_not_mistaken_for_an_empty_one() {
    let board = Switchboard::new("");
    let line = format!("main,CA1,Sale,1.00,EUR,,{}\n", "x".repeat(150));
    let head = "account,provider_call_id,type,value,currency,at,external_id\n";
    let csv = head.to_owned() + &line.repeat(7_000);
    let token = format!("Bearer {TOKEN}");
    let answer = board.server.client().post("/v1/outcomes", &[("authorization", &token)], &csv);
    let answer = answer.unwrap();
    assert_eq!(answer.status, 413, "{}", answer.body);
}

#[test]
fn results_are_accepted_as_csv_and_exported_as_uploads() {
    let board = Switchboard::new("");
    for (call, parameters) in [("CA1", "1&gclid=Cj0_x-1&msclkid=0f0f"), ("CA2", "2")] {
        board.call_of(call, board.visitor(parameters));
    }
    let csv = "account,provider_call_id,type,value,currency,at,external_id\n\
               main,CA1,Sale,129.50,EUR,2026-11-22T00:05:09Z,order-7\n\
               main,CA2,Sale,1.00,EUR,,order-8\n\
               main,CA3,Sale,1.00,EUR,,order-9\n\
               main,CA1,Sale,\"1,00\",EUR,,order-10\n\
               main,CA1,\"Sa\nle\",1.00,EUR,,order-11\n\
               main,CA3,Sale,1.00,EUR,,order-12\n\
               main,CA2,Sale,1.00,EUR,2150-01-01T00:00:00Z,order-13\n";
    let output = board.outcomes(csv);
    let (said, problems) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(said).unwrap();
    assert_eq!(said, "recorded: 2, already known: 0, refused: 5\n");
    assert!(problems.contains("line 4: there is no such call"), "{problems}");
    assert!(problems.contains("line 5: value: must be a decimal number"), "{problems}");
    // The line numbers are correct although one field spans two lines.
    assert!(problems.contains("line 6: type, external_id"), "{problems}");
    assert!(problems.contains("line 8: there is no such call"), "{problems}");
    assert!(problems.contains("line 9: at: is in the future"), "{problems}");
    let again = String::from_utf8(board.outcomes(csv).stdout).unwrap();
    assert_eq!(again, "recorded: 0, already known: 2, refused: 5\n");

    let separated = board.outcomes(&"call;type;external_id\n".repeat(3));
    let problems = String::from_utf8(separated.stderr).unwrap();
    assert_eq!(separated.status.code(), Some(1));
    assert!(problems.contains("the first line names the column \"call;type;external_id\""));
    assert_eq!(problems.lines().count(), 1, "{problems}");

    let google = board.calls_say(&["export", "--format", "google-clicks"]);
    assert_eq!(
        google,
        "Google Click ID,Conversion Name,Conversion Time,Conversion Value,Conversion Currency\n\
         Cj0_x-1,Sale,2026-11-22 00:05:09+00:00,129.50,EUR\n"
    );
    // The sale is older, but it was recorded just now.
    let recorded = |flag: &str, time: &str| {
        board.calls_say(&["export", "--format", "google-clicks", flag, time]).lines().count()
    };
    assert_eq!((recorded("--since", "2h"), recorded("--recorded-since", "2h")), (1, 2));
    assert_eq!(recorded("--recorded-until", "2h"), 1);
    let refused = board.calls_command(&["export", "--recorded-since", "2h"]).output().unwrap();
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("use them with a format for uploads")
    );
    let microsoft = board.calls_say(&["export", "--format", "microsoft"]);
    assert!(microsoft.ends_with("EUR,Sale,11/22/2026 12:05:09 AM,129.50,0f0f\n"), "{microsoft}");
    let calls = ["export", "--format", "google-calls", "--conversion", "Phone call"];
    let calls = board.calls_say(&calls);
    assert_eq!(calls.lines().count(), 3, "{calls}");
    assert!(calls.lines().nth(1).unwrap().starts_with("+14155551234,"), "{calls}");
    let events = board.get("/v1/events?after=0&limit=1000").json();
    let kinds = events["events"].as_array().unwrap().iter();
    assert_eq!(kinds.filter(|event| event["type"] == "conversion.recorded").count(), 2);

    // A sale that was refunded in part: the result is removed, and then recorded again.
    let refunded = "account,provider_call_id,type,value,currency,external_id\n\
                    main,CA1,Sale,100,EUR,order/7\n";
    assert_eq!(board.outcomes(refunded).status.code(), Some(0));
    let less = refunded.replace("100", "60");
    let problems = String::from_utf8(board.outcomes(&less).stderr).unwrap();
    assert!(problems.contains("line 2: the call already has the result \"order/7\""), "{problems}");
    assert!(problems.contains("(Sale 100 EUR)"), "{problems}");
    let call = board.get("/v1/calls").json()["calls"][1]["id"].as_str().unwrap().to_owned();
    let removed = board.calls_say(&["remove", &call, "--result", "order/7"]);
    assert_eq!(removed, "removed 1 result\n");
    assert!(board.calls_command(&["remove", &call, "--result", "order/7"]).output().is_ok_and(
        |again| String::from_utf8_lossy(&again.stderr).contains("the call has no result with this")
    ));
    assert_eq!(board.outcomes(&less).status.code(), Some(0));
    for path in ["/v1/outcomes?after=x", "/v1/outcomes?since=soon", "/v1/outcomes?x=1"] {
        assert_eq!(board.get(path).status, 400, "{path}");
    }
}

#[test]
fn ambiguous_lines_empty_ids_and_periods_that_have_not_ended_are_reported() {
    let board = Switchboard::new("");
    for (call, visitor) in [("CA1", "1&gclid=Cj1"), ("CA2", "2&gclid=Cj2")] {
        board.call_of(call, board.visitor(visitor));
    }
    let call = board.call("CA1", |call| call["attribution"]["outcome"] == "allocated");
    let call = call["id"].as_str().unwrap().to_owned();
    let empty = board.calls_command(&["remove", &call, "--result", ""]).output().unwrap();
    let said = String::from_utf8_lossy(&empty.stderr).into_owned();
    assert!(empty.status.code() == Some(2) && said.contains("--result"), "{said}");
    // A line that names two different calls is refused.
    let two = "call,account,provider_call_id,type,external_id\n";
    let two = format!("{two}{call},main,CA1,Lead,a\n{call},main,CA2,Lead,b\n{call},,,Lead,c\n");
    let output = board.outcomes(&two);
    let problems = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "recorded: 2, already known: 0, refused: 1\n"
    );
    assert!(problems.contains("line 3: call names c_"), "{problems}");
    let future =
        ["export", "--format", "google-clicks", "--recorded-until", "2150-01-01T00:00:00Z"];
    let future = board.calls_command(&future).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&future.stdout).lines().count(), 3);
    assert!(String::from_utf8_lossy(&future.stderr).contains("Export this period again later"));
}

/// A large file of results takes seconds to record. Its results become visible all at once.
#[test]
fn results_that_are_recorded_during_uploads_are_each_in_one_upload() {
    const RESULTS: usize = 2_000;
    let board = Switchboard::new("");
    board.call_of("CA1", board.visitor("1&gclid=Cj0"));
    let csv = |part: usize| {
        let lines = (0..RESULTS).map(|line| format!("main,CA1,Sale,{part}-{line}\n"));
        format!("account,provider_call_id,type,external_id\n{}", lines.collect::<String>())
    };
    let mut exported = Vec::new();
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            for part in 0..3 {
                assert_eq!(board.outcomes(&csv(part)).status.code(), Some(0));
            }
        });
        let (mut since, mut is_last) = (jiff::Timestamp::UNIX_EPOCH, false);
        while !is_last {
            is_last = sender.is_finished();
            let until = jiff::Timestamp::now();
            let mut after = String::new();
            loop {
                let path = format!(
                    "/v1/outcomes?recorded_since={since}&recorded_until={until}&limit=1000{after}"
                );
                let page = board.get(&path).json();
                assert_eq!(page["complete"], true, "{page}");
                let all = page["outcomes"].as_array().unwrap().iter();
                exported.extend(all.map(|it| it["external_id"].as_str().unwrap().to_owned()));
                let Some(next) = page["next"].as_str() else { break };
                after = format!("&after={}", next.replace('+', "%2B"));
            }
            since = until;
        }
    });
    let different: BTreeSet<_> = exported.iter().collect();
    assert_eq!((exported.len(), different.len()), (3 * RESULTS, 3 * RESULTS));
}

/// The command in docs/calls.md, "Conversions in Google Ads, Microsoft or Meta", on two nights. One
/// call rings, and another one has been answered, when the first export is made.
#[test]
fn nightly_exports_that_overlap_contain_calls_that_were_in_progress() {
    let board = Switchboard::new("");
    let numbers = [1, 2, 3].map(|visitor| board.visitor(&format!("{visitor}&gclid=Cj{visitor}")));
    let post = |hook: &str, form: &str| {
        assert_eq!(Provider::twilio(&board.phone).post(hook, form).status, 200);
    };
    for (call, number) in ["CA1", "CA2", "CA3"].iter().zip(numbers) {
        post("/t/main/answer", &format!("CallSid={call}&From=%2B14155551234&To=%2B1{number}"));
    }
    let end = |call: &str| {
        let done = "DialCallStatus=completed&DialCallDuration=90&DialBridged=true";
        post("/t/main/dial?leg=0&last=1", &format!("CallSid={call}&{done}"));
        board.call(call, |call| call["state"] == "ended");
    };
    let night = |file: &str, since: &str| {
        let flags = ["--since", since, "--format", "google-clicks", "--conversion", "Phone call"];
        let more = ["--robocall-below", "60", "--talk-min", "60s"];
        let text = board.calls_say(&[&["export"], &flags[..], &more[..]].concat());
        std::fs::write(board.site.config().with_file_name(file), &text).unwrap();
        text.lines().skip(1).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    end("CA1");
    let first = night("yesterday.csv", "48h");
    let time = jiff::Timestamp::now().to_string();
    end("CA2");
    end("CA3");
    // Without the overlap, these calls would be in no export.
    assert!(night("next.csv", &time).is_empty());
    let second = night("today.csv", "48h");
    // Google ignores the line that it already has, because click and time are the same.
    assert_eq!((first.len(), second.len()), (1, 3));
    assert!(first.is_subset(&second), "{first:?} {second:?}");
    // The command for systems that would count a repeated line again.
    let guide = include_str!("../../../../docs/calls.md");
    let awk = guide.lines().find(|line| line.contains("awk 'NR == FNR")).unwrap();
    let config = board.site.config();
    let folder = config.parent().unwrap();
    assert!(Command::new("sh").args(["-c", awk]).current_dir(folder).status().unwrap().success());
    let upload = std::fs::read_to_string(folder.join("upload.csv")).unwrap();
    let lines: BTreeSet<_> = upload.lines().skip(1).map(str::to_owned).collect();
    assert!(upload.starts_with("Google Click ID,"), "{upload}");
    assert_eq!(lines, &second - &first);
}

/// Reads an exported Parquet file with Python's pyarrow, call by call. Skipped if pip cannot
/// install pyarrow.
#[cfg(feature = "parquet")]
#[test]
fn a_file_of_parquet_has_what_the_lines_have() {
    const READ: &str = "import json, sys, pyarrow.parquet as pq\n\
                        table = pq.read_table(sys.argv[1])\n\
                        print(json.dumps([str(table.schema.field('started_at').type), \
                        str(table.schema.field('talk_seconds').type)]))\n\
                        for row in table.to_pylist(): print(json.dumps(row, default=lambda it: \
                        it.isoformat(timespec='milliseconds').replace('+00:00', 'Z')))";
    let home = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pyarrow");
    let is_there = || home.join("bin/python").exists();
    let run = |program: &str, args: &[&str]| {
        std::process::Command::new(program).args(args).output().is_ok_and(|it| it.status.success())
    };
    let python = home.join("bin/python").to_str().unwrap().to_owned();
    if !is_there() {
        run("python3", &["-m", "venv", home.to_str().unwrap()]);
    }
    if !run(&python, &["-c", "import pyarrow"])
        && !run(&python, &["-m", "pip", "install", "--quiet", "pyarrow"])
    {
        println!("skipped: pip cannot install pyarrow here");
        return;
    }
    let board = Switchboard::new("");
    for call in 0..30 {
        let end = format!("CallSid=CA{call}&CallStatus=busy&To=%2B12001600001");
        assert_eq!(Provider::twilio(&board.phone).post("/t/main/status", &end).status, 200);
    }
    board.call_of("CB1", board.visitor("17&gclid=%3D1%2B1&utm_source=%C3%B6"));
    let file = board.site.config().with_file_name("calls.parquet");
    board.calls_say(&["export", "--format", "parquet", "--output", file.to_str().unwrap()]);
    let read = std::process::Command::new(&python).args(["-c", READ]).arg(&file).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let read = String::from_utf8(read.stdout).unwrap();
    let mut read = read.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(read.next().unwrap(), serde_json::json!(["timestamp[ms, tz=UTC]", "int64"]));
    let read: Vec<Value> = read.collect();
    let lines = board.calls_say(&["export"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((read.len(), lines.len()), (31, 31));
    for (row, call) in read.iter().zip(&lines) {
        for (column, path) in [
            ("id", "/id"),
            ("started_at", "/started_at"),
            ("answered_at", "/answered_at"),
            ("outcome", "/outcome"),
            ("talk_seconds", "/talk_seconds"),
            ("from", "/from/e164"),
            ("first_time_caller", "/first_time_caller"),
            ("pool_id", "/pool/id"),
            ("confidence", "/attribution/confidence/value"),
            ("gclid", "/attribution/parameters/gclid"),
            ("utm_source", "/attribution/parameters/utm_source"),
            ("robocall_score", "/robocall/score"),
        ] {
            let wanted = call.pointer(path).cloned().unwrap_or_default();
            assert_eq!(row[column], wanted, "{column}: {row:#}");
        }
    }
    assert!(read.iter().any(|row| row["gclid"] == "=1+1" && row["utm_source"] == "ö"));
}
