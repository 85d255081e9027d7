//! Tests that after an erasure, the data directory contains neither the caller's digits nor the
//! visitor's parameters.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::phone::{Phone, Provider};
use super::support::batch::{self, BULK};
use super::support::server::{Server, ringwell};
use super::support::site::{Pool, Site, TOKEN};
use serde_json::json;

use super::{LIFETIME, Switchboard};

const CALLER: &str = "4155551234";
const SECRET: &str = "Cj0secret8675309";

/// Returns all files below `path` with their contents.
fn files(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.is_file() {
            let bytes = fs::read(&path).unwrap();
            all.push((path, bytes));
        }
    }
    all
}

/// Returns the files that contain `text`, like `grep -r`.
fn found(data: &Path, text: &str) -> Vec<PathBuf> {
    let holds = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    let all = files(data).into_iter();
    all.filter(|(_, bytes)| holds(bytes)).map(|(path, _)| path).collect()
}

fn say(mut command: Command) -> String {
    let output = command.output().unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{text}");
    text
}

/// Creates a switchboard and calls the numbers of two visitors. The tests erase the first visitor's
/// data. Returns the switchboard and both numbers.
fn board() -> (Switchboard, [u64; 2]) {
    // The segments are small, because the tests read all segments repeatedly.
    let board = Switchboard::new("[journal]\nsegment_bytes = \"1MiB\"\n");
    let theirs = board.visitor(&format!("17&gclid={SECRET}"));
    let other = board.visitor("18&gclid=Cj0other");
    board.call_of("CA1", theirs);
    board.call_of("CA2", other);
    (board, [theirs, other])
}

fn restarted(board: Switchboard) -> Switchboard {
    let Switchboard { site, server, .. } = board;
    drop(server);
    let server = Server::start(site.serve(&[]));
    Switchboard { phone: Phone::at(&server), site, server }
}

impl Switchboard {
    fn holder(&self, number: u64) -> serde_json::Value {
        self.get(&format!("/v1/attributions?number={number}")).json()
    }
}

#[test]
fn who_is_erased_is_found_nowhere_in_the_data_directory() {
    let (board, [theirs, other]) = board();
    let list = board.site.config().with_file_name("erase.list");
    let data = board.site.data().to_owned();
    assert!(
        found(&data, CALLER).iter().any(|path| path.to_string_lossy().contains("calls.sqlite"))
    );
    // Only one of the visitors has this value of `gclid`. Both calls have the same caller.
    let erase = |whom: &[&str]| {
        let mut command = ringwell(&["calls", "erase", "--journal-list"]);
        command.arg(&list).args(whom).env("RINGWELL_TOKEN", TOKEN);
        command.args(["--url", &format!("http://{}", board.server.address())]);
        say(command)
    };
    let gclid = format!("gclid={SECRET}");
    assert_eq!(erase(&["--parameter", &gclid]), "1 call, 1 allocation\n");
    assert_eq!(erase(&["--caller", &format!("+1{CALLER}")]), "1 call, 1 allocation\n");
    assert!(found(&data, CALLER).is_empty(), "{:?}", found(&data, CALLER));
    assert!(!fs::read_to_string(&list).unwrap().contains(SECRET));
    // Parameters in the journal can be erased only while no server uses it.
    let journal = || {
        let mut command = ringwell(&["journal", "erase"]);
        command.arg(&data).arg("--list").arg(&list);
        command
    };
    assert!(!journal().output().unwrap().status.success());
    let in_journal = found(&data, SECRET);
    assert!(in_journal.iter().all(|path| path.extension().is_some_and(|it| it == "rpj")));
    assert!(!in_journal.is_empty());
    let Switchboard { site, server, .. } = board;
    let log = server.stop();
    assert!(!log.contains(SECRET) && !log.contains(CALLER), "{log}");
    assert_eq!(say(journal()), "2 allocations erased\n");
    for text in [SECRET, CALLER, "Cj0other"] {
        assert!(found(&data, text).is_empty(), "{:?}", found(&data, text));
    }
    let mut verify = ringwell(&["journal", "verify"]);
    verify.arg(&data);
    say(verify);
    let server = Server::start(site.serve(&[]));
    let board = Switchboard { phone: Phone::at(&server), site, server };
    for number in [theirs, other] {
        let held = board.holder(number);
        assert!(held.to_string().contains("allocated_at"), "{held}");
        assert!(!held.to_string().contains("gclid"), "{held}");
    }
    // Erasing changes neither numbers nor lockouts.
    let next = board.visitor("19");
    assert!(next != theirs && next != other);
}

/// Returns the command `ringwell calls erase`.
fn erase(board: &Switchboard, flags: &[&str]) -> Command {
    let mut command = ringwell(&["calls", "erase"]);
    command.args(flags).env("RINGWELL_TOKEN", TOKEN);
    command.args(["--url", &format!("http://{}", board.server.address())]);
    command
}

/// After the call log is erased, another caller may still be attributed to the visitor, because the
/// journal contains the visitor's parameters. An erasure with the list must remove them from this
/// call, too.
#[test]
fn calls_of_others_since_the_erasure_lose_the_visitor_s_parameters_with_the_list() {
    let (board, [theirs, _]) = board();
    let data = board.site.data().to_owned();
    let list = board.site.config().with_file_name("erase.list");
    let erase = |flags: &[&str]| erase(&board, flags);
    let list = list.to_str().unwrap();
    say(erase(&["--caller", &format!("+1{CALLER}"), "--journal-list", list]));
    let ring = format!("CallSid=CA9&CallStatus=ringing&From=%2B14155550888&To=%2B1{theirs}");
    Provider::twilio(&board.phone).post("/t/main/answer", &ring);
    board.call("CA9", |call| call["attribution"]["parameters"]["gclid"] == SECRET);
    let erased = say(erase(&["--list", list]));
    assert_eq!(
        erased,
        "0 calls, 1 allocation\n1 call of other callers lost the same visitor's parameters\n"
    );
    let call = board.call("CA9", |_| true);
    assert_eq!(call["from"]["e164"], "+14155550888", "{call:#}");
    assert!(!call.to_string().contains(SECRET), "{call:#}");
    let kept = found(&data, SECRET);
    assert!(kept.iter().all(|path| path.extension().is_some_and(|it| it == "rpj")), "{kept:?}");
    assert!(say(erase(&["--list", list])).starts_with("0 calls, 0 allocations\n"));
    let both = erase(&["--list", list, "--journal-list", list]).output().unwrap();
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}

#[test]
fn an_erasure_that_broke_off_is_finished_at_the_next_start() {
    let (board, [theirs, other]) = board();
    let data = board.site.data().to_owned();
    let Switchboard { site, server, .. } = board;
    server.stop();
    let before = files(&data.join("journal"));
    let mut command = ringwell(&["journal", "erase", "--parameter", &format!("gclid={SECRET}")]);
    command.arg(&data);
    assert_eq!(say(command), "1 allocation erased\n");
    // Simulates a crash during an erasure: a file in the data directory contains the bytes to
    // write, and half of them have been written to the segments.
    let mut intent = String::new();
    for (path, old) in before {
        let Ok(new) = fs::read(&path) else { continue };
        let changed: Vec<usize> = (0..old.len()).filter(|at| old[*at] != new[*at]).collect();
        let mut torn = old;
        for (place, at) in changed.iter().enumerate() {
            let file = path.strip_prefix(&data).unwrap();
            let line = serde_json::json!({ "file": file, "offset": at, "hex": format!("{:02x}", new[*at]) });
            let _ = writeln!(intent, "{line}");
            if place % 2 == 0 {
                torn[*at] = new[*at];
            }
        }
        fs::write(&path, torn).unwrap();
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, intent.as_bytes());
    for byte in digest.as_ref() {
        let _ = write!(intent, "{byte:02x}");
    }
    let noted = data.join("journal-erase.todo");
    fs::write(&noted, &intent).unwrap();
    let server = Server::start(site.serve(&[]));
    assert!(!noted.exists());
    assert!(found(&data.join("journal"), SECRET).is_empty());
    let board = Switchboard { phone: Phone::at(&server), site, server };
    assert!(board.holder(other).to_string().contains("Cj0other"));
    assert!(!board.holder(theirs).to_string().contains("gclid"));
    // If the file with the bytes to write is incomplete, no segment has been overwritten yet.
    fs::write(&noted, &intent[..intent.len() / 2]).unwrap();
    let board = restarted(board);
    assert!(board.holder(other).to_string().contains("Cj0other"));
}

/// Fills two shards with allocations. Those at the beginning and at the end of each journal contain
/// the secret. Returns the stopped server's site.
fn two_shards() -> Site {
    let pools = (1..=8).map(|id| Pool::new(id, 50, LIFETIME)).collect();
    let site = Site::new(pools, "shards = 2\n[journal]\nsegment_bytes = \"1MiB\"\n");
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let pad = "x".repeat(1_500);
    let others = (0..20).map(|_| "Cj0other");
    let values: Vec<&str> = [SECRET].into_iter().chain(others).chain([SECRET]).collect();
    for (id, value) in values.iter().enumerate() {
        for pool in &site.pools {
            let suffix = pool.suffix(&format!("id={id}&gclid={value}&pad={pad}"));
            let body = json!({"requests": [{"api_suffix": suffix}]}).to_string();
            assert_ne!(batch::rows(&client.post(BULK, &[], &body).unwrap())[0].number, 0);
        }
    }
    server.stop();
    for shard in ["journal/0", "journal/1"] {
        assert!(!found(&site.data().join(shard), SECRET).is_empty());
    }
    site
}

fn erasure(data: &Path) -> Command {
    let mut command = ringwell(&["journal", "erase", "--parameter", &format!("gclid={SECRET}")]);
    command.arg(data);
    command
}

/// Runs an erasure that the system kills when it writes beyond the first `kib` KiB of a file.
fn killed(data: &Path, kib: &str) {
    let erasure = erasure(data);
    let mut shell = Command::new("bash");
    shell.args(["-c", "ulimit -c 0; ulimit -f $0; exec \"$@\"", kib]);
    let status = shell.arg(erasure.get_program()).args(erasure.get_args()).status().unwrap();
    assert!(status.signal().is_some(), "{status:?}");
}

fn said(mut command: Command) -> (bool, String) {
    let output = command.output().unwrap();
    let both = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(both).unwrap())
}

fn on(words: &[&str], path: &Path) -> Command {
    let mut command = ringwell(words);
    command.arg(path);
    command
}

#[test]
fn an_erasure_that_was_killed_is_completed_in_all_shards() {
    let site = two_shards();
    let data = site.data();
    killed(data, "100");
    let copy = data.with_file_name("copy");
    assert!(Command::new("cp").arg("-a").args([data, &copy]).status().unwrap().success());
    let mut restore = on(&["restore"], &copy);
    restore.arg(data.with_file_name("restored"));
    for command in [on(&["journal", "verify"], data), on(&["backup", "--to", "b", "--data"], data)]
        .into_iter()
        .chain([on(&["journal", "verify"], &data.join("journal/0")), restore])
    {
        let (is_done, text) = said(command);
        assert!(!is_done && text.contains("`ringwell journal erase` was interrupted"), "{text}");
        assert!(!text.contains("from a copy") && !text.contains("another copy"), "{text}");
    }
    let server = Server::start(site.serve(&[]));
    assert!(found(&data.join("journal"), SECRET).is_empty(), "{}", server.log());
    server.says("completed an interrupted erasure");
    server.stop();
    say(on(&["journal", "verify"], data));
    let text = say(erasure(&copy));
    assert_eq!(
        text,
        "an interrupted erasure was completed: 16 allocations erased\n0 allocations erased\n"
    );
    assert!(found(&copy, SECRET).is_empty());
    say(on(&["journal", "verify"], &copy));
    assert!(!found(&copy, "Cj0other").is_empty());
}

#[test]
fn an_erasure_that_was_killed_before_it_had_begun_is_reported_until_it_is_repeated() {
    let site = two_shards();
    let data = site.data();
    killed(data, "1");
    let text = say(on(&["journal", "verify"], data));
    assert!(text.contains("interrupted before it had erased anything"), "{text}");
    for _ in 0..2 {
        let log = Server::start(site.serve(&[])).stop();
        assert!(log.contains("interrupted before it had erased anything"), "{log}");
        assert!(!found(&data.join("journal"), SECRET).is_empty());
    }
    // An erasure of another parameter must not remove the file that causes the warnings, and a
    // backup must contain this file.
    let noted = Path::new("journal-erase.todo");
    let mut other = ringwell(&["journal", "erase", "--parameter", "gclid=other"]);
    other.arg(data);
    let (is_done, text) = said(other);
    assert!(!is_done && text.contains("other parameters"), "{text}");
    assert!(data.join(noted).exists());
    let backup = data.with_file_name("backup");
    let mut command = on(&["backup", "--data"], data);
    command.arg("--to").arg(&backup);
    say(command);
    assert!(backup.join(noted).exists());
    let text = say(erasure(data));
    assert!(text.contains("interrupted before"), "{text}");
    assert!(text.ends_with("16 allocations erased\n"), "{text}");
    assert!(found(data, SECRET).is_empty());
    let log = Server::start(site.serve(&[])).stop();
    assert!(!log.contains("interrupted"), "{log}");
}

#[test]
fn an_erasure_of_a_call_that_does_not_exist_fails() {
    let (board, _) = board();
    let mut command = ringwell(&["calls", "erase", "--call", "c_none"]);
    command.args(["--url", &format!("http://{}", board.server.address())]);
    let output = command.env("RINGWELL_TOKEN", TOKEN).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("there is no call c_none"), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn an_erasure_erases_nothing_if_its_list_cannot_be_written() {
    let (board, _) = board();
    let erase = |list: &Path| {
        let mut command = ringwell(&["calls", "erase", "--caller", &format!("+1{CALLER}")]);
        command.arg("--journal-list").arg(list).env("RINGWELL_TOKEN", TOKEN);
        command.args(["--url", &format!("http://{}", board.server.address())]);
        command.output().unwrap()
    };
    let folder = board.site.config().parent().unwrap().to_owned();
    let refused = erase(&folder);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("nothing was erased"), "{said}");
    assert_eq!(board.call("CA1", |_| true)["from"]["e164"], format!("+1{CALLER}"));
    // If the list of allocations already exists, its lines are kept.
    let list = folder.join("erase.list");
    fs::write(&list, "{\"a line\":\"of before\"}\n").unwrap();
    assert!(erase(&list).status.success());
    let lines = fs::read_to_string(&list).unwrap();
    assert!(lines.starts_with("{\"a line\"") && lines.lines().count() == 3, "{lines}");
}

/// If a parameter occurs several times, all its values must be erased, although look-ups show only
/// the last one.
#[test]
fn hidden_parameters_are_erased_too_and_short_ones_leave_no_trace() {
    let board = Switchboard::new("[journal]\nsegment_bytes = \"1MiB\"\n");
    let pool = &board.site.pools[0];
    let given = |parameters: &str| {
        let row = serde_json::json!({ "api_suffix": pool.suffix(parameters) });
        let body = serde_json::json!({ "requests": [row] }).to_string();
        batch::rows(&board.server.client().post(BULK, &[], &body).unwrap())[0].number
    };
    let hidden = given(&format!("gclid={SECRET}&gclid=x"));
    // Uses parameters of five to ten bytes. They are too short for the special parameter name that
    // overwrites longer parameters.
    let short: Vec<u64> =
        (3..9).map(|length| given(&format!("m={}", "x".repeat(length)))).collect();
    given("gclid=%ff%feCj0raw");
    assert!(board.holder(hidden)["parameters"]["gclid"] == "x");
    let data = board.site.data().to_owned();
    let erase = |parameters: &[String]| {
        let mut command = ringwell(&["journal", "erase"]);
        for parameter in parameters {
            command.args(["--parameter", parameter]);
        }
        command.arg(&data);
        say(command)
    };
    let Switchboard { site, server, .. } = board;
    server.stop();
    assert_eq!(erase(&[format!("gclid={SECRET}")]), "1 allocation erased\n");
    assert!(found(&data, SECRET).is_empty(), "{:?}", found(&data, SECRET));
    // Invalid UTF-8 can be specified only as `ringwell journal inspect` prints it.
    let mut inspect = ringwell(&["journal", "inspect"]);
    inspect.arg(&data);
    let printed = "gclid=%ff%feCj0raw";
    assert!(say(inspect).contains(printed));
    assert_eq!(erase(&[printed.to_owned()]), "1 allocation erased\n");
    assert!(found(&data, "Cj0raw").is_empty());
    let all: Vec<String> = (3..9).map(|length| format!("m={}", "x".repeat(length))).collect();
    assert_eq!(erase(&all), "6 allocations erased\n");
    let server = Server::start(site.serve(&[]));
    let board = Switchboard { phone: Phone::at(&server), site, server };
    for number in short.into_iter().chain([hidden]) {
        let held = board.holder(number);
        assert_eq!(held["parameters"], serde_json::json!({}), "{held}");
    }
}

#[test]
fn a_call_is_found_by_every_value_of_a_parameter() {
    let board = Switchboard::new("");
    let number = board.visitor(&format!("17&gclid={SECRET}&gclid=Cj0shown"));
    board.call_of("CA1", number);
    board.call("CA1", |call| call["attribution"]["parameters"]["gclid"] == "Cj0shown");
    let data = board.site.data().to_owned();
    let list = board.site.config().with_file_name("erase.list");
    let mut erase = ringwell(&["calls", "erase", "--parameter", &format!("gclid={SECRET}")]);
    erase.args(["--url", &format!("http://{}", board.server.address())]);
    erase.arg("--journal-list").arg(&list).env("RINGWELL_TOKEN", TOKEN);
    assert_eq!(say(erase), "1 call, 1 allocation\n");
    let call = board.call("CA1", |_| true);
    assert_eq!(call["from"]["erased"], true, "{call:#}");
    let Switchboard { server, .. } = board;
    server.stop();
    let mut erase = ringwell(&["journal", "erase"]);
    erase.arg(&data).arg("--list").arg(&list);
    assert_eq!(say(erase), "1 allocation erased\n");
    for text in [CALLER, SECRET, "Cj0shown"] {
        assert!(found(&data, text).is_empty(), "{:?}", found(&data, text));
    }
}

/// Forwards requests to the server at `to`. Drops the first request that erases, and drops the
/// answers to all later ones. Returns its address.
fn lossy(to: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut is_first = true;
        for mut client in listener.incoming().flatten() {
            client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let (mut request, mut part) = (Vec::new(), [0; 4096]);
            while let Ok(length @ 1..) = client.read(&mut part) {
                request.extend_from_slice(&part[..length]);
            }
            let is_list = String::from_utf8_lossy(&request).contains("dry_run");
            if !is_list && std::mem::take(&mut is_first) {
                continue;
            }
            let mut server = TcpStream::connect(&to).unwrap();
            server.write_all(&request).unwrap();
            server.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            if !is_list {
                server.read_exact(&mut [0]).unwrap();
                continue;
            }
            while let Ok(length @ 1..) = server.read(&mut part) {
                client.write_all(&part[..length]).unwrap();
            }
        }
    });
    address
}

#[test]
fn a_lost_request_or_answer_does_not_lose_the_list_of_allocations() {
    let (board, _) = board();
    let lossy = lossy(board.server.address().to_owned());
    let list = board.site.config().with_file_name("erase.list");
    let erase = |address: &str| {
        let mut command = ringwell(&["calls", "erase", "--parameter"]);
        command.arg(format!("gclid={SECRET}")).arg("--journal-list").arg(&list);
        command.args(["--url", &format!("http://{address}")]).env("RINGWELL_TOKEN", TOKEN);
        command
    };
    let lines = || fs::read_to_string(&list).unwrap_or_default().lines().count();
    for (is_erased, _) in [(false, "the request was lost"), (true, "the answer was lost")] {
        let (is_done, text) = said(erase(&lossy));
        assert!(!is_done && text.contains("Run this command again"), "{text}");
        assert_eq!(lines(), 1, "{text}");
        let call = board.call("CA1", |_| true);
        assert_eq!(call["from"]["erased"] == true, is_erased, "{call:#}");
    }
    assert!(say(erase(board.server.address())).starts_with("0 calls, 0 allocations\n"));
    assert_eq!(lines(), 1);
    let data = board.site.data().to_owned();
    let Switchboard { server, .. } = board;
    server.stop();
    let mut journal = on(&["journal", "erase"], &data);
    journal.arg("--list").arg(&list);
    assert_eq!(say(journal), "1 allocation erased\n");
    assert!(found(&data, SECRET).is_empty(), "{:?}", found(&data, SECRET));
}

/// A request is limited to 1 MiB, so a long list must be sent in parts.
#[test]
fn a_long_list_is_sent_in_parts() {
    let (board, _) = board();
    let list = board.site.config().with_file_name("erase.list");
    let erase = |flags: &[&str]| erase(&board, flags);
    let file = list.to_str().unwrap();
    say(erase(&["--caller", &format!("+1{CALLER}"), "--journal-list", file]));
    let mut lines = String::new();
    for n in 0..12_000 {
        let _ = writeln!(
            lines,
            "{{\"number\":\"+1888555{:04}\",\"parameters\":\"{n:064x}\"}}",
            n % 9_000
        );
    }
    lines.push_str(&fs::read_to_string(&list).unwrap());
    fs::write(&list, lines).unwrap();
    assert_eq!(say(erase(&["--list", file])), "0 calls, 0 allocations\n");
    // An editor may add blank lines, and remove the last line break.
    let complete = fs::read_to_string(&list).unwrap();
    let entry = complete.lines().last().unwrap();
    fs::write(&list, format!("\n{entry}\n\n")).unwrap();
    assert_eq!(say(erase(&["--list", file])), "0 calls, 0 allocations\n");
    fs::write(&list, entry).unwrap();
    board.call_of("CA3", board.visitor("19&gclid=Cj0third"));
    let call = board.call("CA3", |call| call["attribution"]["outcome"] == "allocated");
    let call = call["id"].as_str().unwrap().to_owned();
    assert_eq!(say(erase(&["--call", &call, "--journal-list", file])), "1 call, 1 allocation\n");
    let text = fs::read_to_string(&list).unwrap();
    assert!(text.starts_with(entry) && text.ends_with("}\n"), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    // Lines that are not allocations are named, even if they are JSON.
    let nonsense = ["soon", "{\"number\":\"x\",\"parameters\":\"y\"}", &entry[..20]];
    let lists = nonsense.map(|bad| format!("\n{entry}\n{bad}\n"));
    for text in &lists {
        fs::write(&list, text).unwrap();
        let (is_done, text) = said(erase(&["--list", file]));
        assert!(!is_done && text.contains("line 3 of "), "{text}");
    }
    let bearer = format!("Bearer {TOKEN}");
    for bad in ["{\"number\":\"8885550100\",\"parameters\":\"zz\"}", "{\"number\":\"+1888\"}"] {
        let body = format!("{{\"allocations\":[{bad}]}}");
        let headers = [("authorization", bearer.as_str())];
        let answer = board.server.client().post("/v1/erasures", &headers, &body).unwrap();
        assert_eq!(answer.status, 400, "{bad}: {}", answer.body);
    }
    // A crash may leave an incomplete line.
    fs::write(&list, &complete[..complete.len() - 9]).unwrap();
    let (is_done, text) = said(erase(&["--call", "c_1", "--journal-list", file]));
    assert!(!is_done && text.contains("last line"), "{text}");

    let Switchboard { site, server, .. } = board;
    drop(server);
    for text in &lists {
        fs::write(&list, text).unwrap();
        let mut journal = on(&["journal", "erase"], site.data());
        journal.arg("--list").arg(&list);
        let (is_done, text) = said(journal);
        assert!(!is_done && text.contains("line 3 of "), "{text}");
    }
}
