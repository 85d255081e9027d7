//! A damaged call log, and a call log that was replaced by another file: both faults are reported,
//! and callers are still connected.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::LIFETIME;
use super::Switchboard;
use super::phone::{self, Phone, Provider};
use super::support::server::{Server, ringwell};
use super::support::site::{Pool, Site};

/// Runs a command. Returns whether it succeeded, and everything that it printed.
fn said(mut command: Command) -> (bool, String) {
    let output = command.output().unwrap();
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.success(), texts.concat())
}

fn doctor(site: &Site) -> (bool, String) {
    said(ringwell(&["doctor", "--config", site.config().to_str().unwrap()]))
}

/// Creates a configuration with the settings `more`, and with the call log in `database` if it is
/// given.
fn site(database: Option<&str>, more: &str) -> Site {
    let database = database.map(|name| format!("[calls]\ndatabase = \"{name}\"\n"));
    let calls = database.unwrap_or_else(|| "[calls]\n".to_owned());
    let destination = "[[calls.destination]]\nto = [\"+18005550199\", \"+18005550200\"]\n";
    let settings = Phone::settings().replace("[calls]\n", &calls);
    let site =
        Site::new(vec![Pool::new(16, 10, LIFETIME)], &format!("{more}{settings}{destination}"));
    Phone::write_secrets(&site);
    site
}

/// Checks that `serve --check` and `doctor` fail with a message that contains `text`.
fn is_found(site: &Site, text: &str) {
    for (succeeded, said) in [said(site.serve(&["--check"])), doctor(site)] {
        assert!(!succeeded && said.contains(text), "{text:?}: {said}");
    }
}

fn beside(folder: &Path) -> Vec<PathBuf> {
    let locks = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    locks.filter(|path| path.extension().is_some_and(|ending| ending == "lock")).collect()
}

#[test]
fn a_damaged_call_log_is_reported_and_calls_are_logged_once_it_is_moved_away() {
    let site = site(None, "");
    let log = site.data().join("calls.sqlite");
    Server::start(site.serve(&[])).stop();
    let mut bytes = fs::read(&log).unwrap();
    bytes[..4096].fill(0);
    fs::write(&log, bytes).unwrap();
    is_found(&site, "copy its calls.sqlite to ");
    let server = Server::start(site.serve(&[]));
    let phone = Phone::at(&server);
    let board = Switchboard { site, server, phone };
    let number = board.visitor("17");
    let twilio = Provider::twilio(&board.phone);
    for call in 0..30 {
        let form = format!("CallSid=CA{call}&From=%2B14155551234&To=%2B1{number}");
        let answer = twilio.post("/t/main/answer", &form);
        assert!(answer.body.contains(">+18005550199</Number>"), "{}", answer.body);
    }
    // The server logs the damage once at startup, and once in the thread that writes calls. It logs
    // the damage at most twice more if the test lasts longer than a minute.
    let said = board.server.log();
    let errors = said.lines().filter(|line| line.contains("its beginning is damaged"));
    assert!((1..=4).contains(&errors.count()), "{said}");
    assert!(!said.contains("sqlx"), "{said}");
    let away = log.with_extension("damaged");
    fs::rename(&log, &away).unwrap();
    board.call("CA29", |call| call["attribution"]["outcome"] == "allocated");
    assert_eq!(board.get("/v1/calls?limit=100").json()["calls"].as_array().unwrap().len(), 30);
    board.server.stop();
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(log).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

/// Starts a server whose call log is already damaged.
pub(super) fn damaged() -> Switchboard {
    let site = site(None, "");
    fs::create_dir(site.data()).unwrap();
    fs::write(site.data().join("calls.sqlite"), [0; 8192]).unwrap();
    let server = Server::start(site.serve(&[]));
    let phone = Phone::at(&server);
    Switchboard { site, server, phone }
}

#[test]
fn the_next_destination_is_called_at_once_although_the_call_log_is_damaged() {
    let board = damaged();
    let number = board.visitor("17");
    let twilio = Provider::twilio(&board.phone);
    let ring = format!("CallSid=CA1&From=%2B14155551234&To=%2B1{number}");
    let first = twilio.post("/t/main/answer", &ring);
    let dial = phone::urls(&first.body).into_iter().find(|url| url.contains("/dial")).unwrap();
    let start = Instant::now();
    let second = twilio.post(&dial, "CallSid=CA1&From=%2B14155551234&DialCallStatus=busy");
    assert!(second.body.contains(">+18005550200</Number>"), "{}", second.body);
    // The answer must be fast, because the caller is waiting.
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn a_server_with_a_damaged_call_log_stops_in_time() {
    let board = damaged();
    let number = board.visitor("17");
    let form = format!("CallSid=CA1&From=%2B14155551234&To=%2B1{number}");
    assert_eq!(Provider::twilio(&board.phone).post("/t/main/answer", &form).status, 200);
    // The shutdown need not wait for the call log: the call's report is in a separate file, and the
    // next server process stores it in the call log.
    let began = Instant::now();
    let said = board.server.stop();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(said.contains("reports of calls will be stored at the next startup"), "{said}");
}

/// Moves the damaged call log away.
pub(super) fn repair(site: &Site) {
    let log = site.data().join("calls.sqlite");
    fs::rename(&log, log.with_extension("damaged")).unwrap();
}

#[test]
fn reports_that_wait_for_the_call_log_survive_the_process() {
    let board = damaged();
    let number = board.visitor("17");
    let twilio = Provider::twilio(&board.phone);
    let ring = format!("CallSid=CA1&CallStatus=ringing&From=%2B14155551234&To=%2B1{number}");
    assert_eq!(twilio.post("/t/main/answer", &ring).status, 200);
    // The report is accepted although the call log cannot store it. The answer must arrive within
    // seconds, because providers do not wait longer.
    let began = Instant::now();
    let ended = twilio.post("/t/main/status", "CallSid=CA1&CallStatus=completed&CallDuration=9");
    assert!(ended.status < 300, "{}", ended.status);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    board.server.kill();

    let Switchboard { site, .. } = board;
    let waiting = site.data().join("calls-waiting.jsonl");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&waiting).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    // The call log is still damaged. More reports are added to the file of waiting reports, even
    // during an orderly shutdown.
    let server = Server::start(site.serve(&[]));
    let phone = Phone::at(&server);
    let ring = format!("CallSid=CA2&CallStatus=ringing&From=%2B14155551234&To=%2B1{number}");
    assert_eq!(Provider::twilio(&phone).post("/t/main/answer", &ring).status, 200);
    server.stop();

    repair(&site);
    let server = Server::start(site.serve(&[]));
    let phone = Phone::at(&server);
    let board = Switchboard { site, server, phone };
    // The waiting reports are stored one after the other.
    let call = board.call("CA1", |call| call["state"] == "ended");
    assert_eq!(call["attribution"]["outcome"], "allocated", "{call}");
    board.call("CA2", |call| call["attribution"]["outcome"] == "allocated");
    assert_eq!(board.get("/v1/calls?limit=100").json()["calls"].as_array().unwrap().len(), 2);
    let until = Instant::now() + Duration::from_secs(10);
    while waiting.exists() {
        assert!(Instant::now() < until, "the file is not needed any more");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the call log contains all calls with these provider ids, and checks that it contains
/// no others.
fn are_logged(board: &Switchboard, calls: &[&str]) {
    for call in calls {
        board.call(call, |call| call["attribution"]["outcome"] == "allocated");
    }
    let found = board.get("/v1/calls?limit=100").json();
    assert_eq!(found["calls"].as_array().unwrap().len(), calls.len(), "{found}");
}

/// Renames the call log's file and the files that SQLite keeps next to it.
fn move_away(log: &Path) {
    for ending in ["", "-wal", "-shm"] {
        let from = PathBuf::from(format!("{}{ending}", log.display()));
        if from.exists() {
            fs::rename(&from, log.with_extension(format!("away{ending}"))).unwrap();
        }
    }
}

fn ring(board: &Switchboard, call: &str, number: u64) {
    let form = format!("CallSid={call}&From=%2B14155551234&To=%2B1{number}");
    let answer = Provider::twilio(&board.phone).post("/t/main/answer", &form);
    assert!(answer.body.contains(">+18005550199</Number>"), "{}", answer.body);
}

fn lines<'a>(said: &'a str, text: &str) -> Vec<&'a str> {
    said.lines().filter(|line| line.contains(text)).collect()
}

/// If the damaged call log is replaced by a copy, the running server opens the copy. If it is only
/// moved away, the server creates a new call log.
#[test]
fn a_call_log_that_was_damaged_while_the_server_ran_is_repaired_without_a_restart() {
    for is_restored in [false, true] {
        let site = site(None, "");
        let server = Server::start(site.serve(&[]));
        let phone = Phone::at(&server);
        let board = Switchboard { site, server, phone };
        let log = board.site.data().join("calls.sqlite");
        let number = board.visitor("17");
        ring(&board, "CA1", number);
        are_logged(&board, &["CA1"]);
        let copy = board.site.config().with_file_name("copy");
        let mut backup = ringwell(&["backup", "--config"]);
        backup.arg(board.site.config()).arg("--to").arg(&copy);
        let (succeeded, text) = said(backup);
        assert!(succeeded, "{text}");
        // Simulates a failing disk, which also destroys SQLite's write-ahead log.
        for ending in ["", "-wal"] {
            let path = format!("{}{ending}", log.display());
            let bytes = usize::try_from(fs::metadata(&path).unwrap().len()).unwrap();
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &vec![b'X'; bytes], 0).unwrap();
        }
        ring(&board, "CA2", number);
        ring(&board, "CA3", number);
        let until = Instant::now() + Duration::from_secs(10);
        while lines(&board.server.log(), "copy its calls.sqlite to ").is_empty() {
            assert!(Instant::now() < until, "{}", board.server.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        let text = board.server.log();
        assert!(!text.contains("ringwell restore`)"), "{text}");
        move_away(&log);
        if is_restored {
            fs::copy(copy.join("calls.sqlite"), &log).unwrap();
            are_logged(&board, &["CA1", "CA2", "CA3"]);
        } else {
            are_logged(&board, &["CA2", "CA3"]);
        }
        let text = board.server.stop();
        assert!(!text.contains("stored at the next startup"), "{text}");
    }
}

/// After a call log is removed or renamed, the server must not lose reports by writing them to the
/// old file.
#[test]
fn a_call_log_that_was_moved_away_is_complete_and_calls_go_on_in_a_new_one() {
    let board = Switchboard::new("");
    let log = board.site.data().join("calls.sqlite");
    let number = board.visitor("17");
    ring(&board, "CA1", number);
    are_logged(&board, &["CA1"]);
    let away = log.with_extension("away");
    fs::rename(&log, &away).unwrap();
    ring(&board, "CA2", number);
    are_logged(&board, &["CA2"]);
    // Moves the log back with a single rename.
    fs::rename(&away, &log).unwrap();
    ring(&board, "CA3", number);
    are_logged(&board, &["CA1", "CA3"]);
    let text = board.server.stop();
    assert!(text.contains("was removed or replaced"), "{text}");
    assert!(!text.contains("If you restart the server"), "{text}");
}

/// SQLite itself would continue to use a write-ahead log that was removed. The changes in it would
/// be lost when the process ends.
#[test]
fn calls_after_the_removal_of_the_log_of_changes_survive_the_process() {
    let board = Switchboard::new("");
    let number = board.visitor("17");
    ring(&board, "CA1", number);
    are_logged(&board, &["CA1"]);
    fs::remove_file(board.site.data().join("calls.sqlite-wal")).unwrap();
    ring(&board, "CA2", number);
    are_logged(&board, &["CA1", "CA2"]);
    let Switchboard { site, server, .. } = board;
    server.kill();
    let server = Server::start(site.serve(&[]));
    let board = Switchboard { phone: Phone::at(&server), site, server };
    are_logged(&board, &["CA1", "CA2"]);
}

/// While reports wait for the call log, a look-up must not answer that their calls do not exist,
/// and an erasure must not skip these calls.
#[test]
fn while_reports_wait_no_call_is_called_missing_and_no_person_erased() {
    let board = Switchboard::new("");
    let number = board.visitor("17");
    ring(&board, "CA1", number);
    are_logged(&board, &["CA1"]);
    assert_eq!(board.get("/v1/calls/unknown").status, 404);
    // Another program holds the database's write lock until its input ends.
    let script = "import sqlite3, sys; held = sqlite3.connect(sys.argv[1], isolation_level=None); \
                  held.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()";
    let mut program = Command::new("python3");
    program.args(["-c", script]).arg(board.site.data().join("calls.sqlite"));
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    program.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    ring(&board, "CA2", number);
    let erase = || board.manage("/v1/erasures", &json!({ "caller": "+14155551234" }));
    for answer in [board.get("/v1/calls/unknown"), erase()] {
        assert_eq!(answer.status, 503, "{}", answer.body);
        let said = "some reports of calls are not in the call log yet";
        assert!(answer.body.contains(said), "{}", answer.body);
    }
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    are_logged(&board, &["CA1", "CA2"]);
    let until = Instant::now() + Duration::from_secs(10);
    let erased = loop {
        let answer = erase();
        if answer.status != 503 {
            break answer.json();
        }
        assert!(Instant::now() < until, "{}", answer.body);
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(erased["calls"], 2, "{erased}");
    assert_eq!(board.get("/v1/calls/unknown").status, 404);
}

#[test]
fn a_backup_names_the_damaged_call_log() {
    let site = site(None, "");
    Server::start(site.serve(&[])).stop();
    let log = site.data().join("calls.sqlite");
    let good = fs::read(&log).unwrap();
    let mut beginning = good.clone();
    beginning[..4096].fill(b'X');
    // The cell count in the schema's root page exceeds the page's capacity.
    let mut schema = good;
    schema[103..105].fill(0xff);
    for bytes in [beginning, schema] {
        fs::write(&log, bytes).unwrap();
        let mut backup = ringwell(&["backup", "--config"]);
        backup.arg(site.config()).arg("--to").arg(site.config().with_file_name("copy"));
        let (succeeded, text) = said(backup);
        assert!(!succeeded && text.contains("calls.sqlite is damaged"), "{text}");
        assert!(text.contains("copy its calls.sqlite to "), "{text}");
        assert!(!text.contains("directory's database"), "{text}");
    }
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A backup must not omit the call log without an error, because the loss would go unnoticed. A
/// FIFO in place of the call log must not block the backup or the startup forever.
#[test]
fn a_backup_and_a_startup_report_a_path_that_is_not_a_file() {
    let site = site(None, "");
    Server::start(site.serve(&[])).stop();
    let log = site.data().join("calls.sqlite");
    let backup = || {
        let mut backup = ringwell(&["backup", "--config"]);
        backup.arg(site.config()).arg("--to").arg(site.config().with_file_name("copy"));
        said(backup)
    };
    fs::remove_file(&log).unwrap();
    let (directory, link) =
        (|| fs::create_dir(&log), || std::os::unix::fs::symlink("/nowhere/x", &log));
    for (make, wanted) in
        [(&directory as &dyn Fn() -> std::io::Result<()>, "is not a file"), (&link, "missing file")]
    {
        make().unwrap();
        let (succeeded, text) = backup();
        assert!(!succeeded && text.contains("calls.sqlite is") && text.contains(wanted), "{text}");
        let _ = fs::remove_dir(&log);
        let _ = fs::remove_file(&log);
    }
    let copy = site.config().with_file_name("copy");
    let (succeeded, text) = backup();
    assert!(succeeded, "{text}");
    make_fifo(&copy.join("calls.sqlite"));
    let mut verify = ringwell(&["backup", "--verify"]);
    verify.arg(&copy);
    let (succeeded, text) = said(verify);
    assert!(!succeeded && text.contains("calls.sqlite is not a file"), "{text}");
    fs::remove_dir_all(&copy).unwrap();
    let journal = site.data().join("journal/0");
    let mut names = fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path());
    let segment = names.find(|path| path.extension().is_some_and(|it| it == "rpj")).unwrap();
    let kept = segment.with_extension("kept");
    fs::rename(&segment, &kept).unwrap();
    make_fifo(&segment);
    let (succeeded, text) = backup();
    assert!(!succeeded && text.contains("is not a regular file"), "{text}");
    fs::rename(&kept, &segment).unwrap();
    let lock = site.data().join("calls.sqlite.lock");
    fs::remove_file(&lock).unwrap();
    make_fifo(&lock);
    let refused = Server::try_start(site.serve(&[])).unwrap_err();
    assert!(refused.log.contains("calls.sqlite.lock is not a file"), "{}", refused.log);
}

/// `doctor` used to approve a machine on which the server then refused to start, or waited forever.
#[test]
fn doctor_names_what_is_no_file_like_the_start() {
    let site = site(None, "");
    Server::start(site.serve(&[])).stop();
    let data = site.data();
    let names = fs::read_dir(data.join("journal/0")).unwrap().map(|entry| entry.unwrap().path());
    let spare = names.into_iter().find(|path| path.extension().is_some_and(|it| it == "spare"));
    let others = [
        "LOCK",
        "journal-erase.todo",
        "calls.sqlite-wal",
        "calls.sqlite-shm",
        "calls.sqlite-journal",
        "calls.sqlite.lock",
        "calls-waiting.jsonl",
    ];
    for path in others.map(|name| data.join(name)).into_iter().chain(spare) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let kept = path.with_extension("kept");
        let is_kept = fs::rename(&path, &kept).is_ok();
        make_fifo(&path);
        let mut doctor = ringwell(&["doctor", "--config"]);
        doctor.arg(site.config());
        let (is_fit, text) = said(doctor);
        assert!(!is_fit && text.contains(name), "{name}: {text}");
        if name == "calls-waiting.jsonl" {
            Server::start(site.serve(&[])).stop();
        } else {
            let refused = Server::try_start(site.serve(&[])).unwrap_err();
            assert!(refused.log.contains(name), "{name}: {}", refused.log);
        }
        fs::remove_file(&path).unwrap();
        if is_kept {
            fs::rename(&kept, &path).unwrap();
        }
    }
}

/// A FIFO or a directory in place of the file of waiting reports must not block startup. The error
/// must include the remedy.
#[test]
fn something_else_in_the_place_of_waiting_reports_is_refused() {
    for is_fifo in [false, true] {
        let site = site(None, "");
        fs::create_dir(site.data()).unwrap();
        let path = site.data().join("calls-waiting.jsonl");
        if is_fifo {
            make_fifo(&path);
        } else {
            fs::create_dir(&path).unwrap();
        }
        let server = Server::start(site.serve(&[]));
        let until = Instant::now() + Duration::from_secs(5);
        while lines(&server.log(), "move it away. Once this is corrected, restart").is_empty() {
            assert!(Instant::now() < until, "{}", server.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        let began = Instant::now();
        let said = server.stop();
        assert!(began.elapsed() < Duration::from_secs(8), "{said}");
    }
}

#[test]
fn waiting_reports_are_counted_by_metrics() {
    let board = damaged();
    let number = board.visitor("17");
    ring(&board, "CA1", number);
    let metrics = || board.server.client().get("/metrics", &[]).unwrap().body;
    let wait_for = |line: &str| {
        let until = Instant::now() + Duration::from_secs(5);
        while !metrics().contains(line) {
            assert!(Instant::now() < until, "{}", metrics());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for("\nringwell_call_reports_waiting_in_file 1\n");
    assert!(metrics().contains("\nringwell_call_reports_waiting 1\n"), "{}", metrics());
    repair(&board.site);
    board.call("CA1", |call| call["attribution"]["outcome"] == "allocated");
    // A report still counts as waiting for a moment after it appears in the log.
    wait_for("\nringwell_call_reports_waiting 0\n");
    wait_for("\nringwell_call_reports_waiting_in_file 0\n");
}

#[test]
fn an_orderly_stop_soon_after_calls_logs_no_error() {
    let mut board = Switchboard::new("");
    for round in 0..8_u32 {
        let number = board.visitor("17");
        let twilio = Provider::twilio(&board.phone);
        for call in 0..3 {
            let form = format!("CallSid=CA{round}x{call}&From=%2B14155551234&To=%2B1{number}");
            assert_eq!(twilio.post("/t/main/answer", &form).status, 200);
        }
        // The webhook sender checks for new events within 20 ms after a call is stored. Some rounds
        // stop the server before this check, and others after it.
        std::thread::sleep(Duration::from_millis(3) * round);
        let Switchboard { site, server, .. } = board;
        let log = server.stop();
        assert!(!log.contains("ERROR"), "{log}");
        let server = Server::start(site.serve(&[]));
        let phone = Phone::at(&server);
        board = Switchboard { site, server, phone };
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_and_nothing_is_made_beside_it() {
    let site = site(Some("sqlite:notes.txt"), "");
    let notes = site.config().with_file_name("notes.txt");
    fs::write(&notes, "notes of an operator").unwrap();
    is_found(&site, "notes.txt is not a SQLite database");
    let (succeeded, text) = said(site.serve(&[]));
    assert!(!succeeded && text.contains("notes.txt is not a SQLite database"), "{text}");
    assert_eq!(beside(notes.parent().unwrap()), Vec::<PathBuf>::new());
    assert_eq!(fs::read_to_string(&notes).unwrap(), "notes of an operator");
}

#[test]
fn a_directory_is_no_database_of_calls_or_of_ring_pools() {
    let pools = "management.address = \"127.0.0.1:0\"\n\
                 [directory]\ndatabase = \"sqlite:folder\"\n";
    for more in ["", pools] {
        let site = site((more.is_empty()).then_some("sqlite:folder"), more);
        let folder = site.config().with_file_name("folder");
        fs::create_dir(&folder).unwrap();
        is_found(&site, "folder is not a file");
        let (succeeded, text) = said(site.serve(&[]));
        assert!(!succeeded && text.contains("folder is not a file"), "{text}");
        assert_eq!(beside(folder.parent().unwrap()), Vec::<PathBuf>::new());
    }
}

#[test]
fn ring_pools_and_calls_in_one_file_are_refused() {
    let pools = "[directory]\ndatabase = \"sqlite:./same.sqlite\"\n";
    let site = site(Some("sqlite:same.sqlite"), pools);
    let text = "contains the ring pools: store calls in a separate file";
    is_found(&site, text);
    let (succeeded, found) = said(site.serve(&[]));
    assert!(!succeeded && found.contains(text), "{found}");
}
