//! A process that cannot get more memory, or whose files cannot grow. The process must end, and the
//! next process must still have all answered allocations.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::support::client::Client;
use super::support::server::Server;
use super::support::site::{Pool, Site};
use super::trial::{LIFETIME, PATIENCE, Trial, within};

const SIGABRT: i32 = 6;
const SIGXFSZ: i32 = 25;

fn limit(server: &Server, limit: &str) {
    let pid = server.pid().to_string();
    let status = Command::new("prlimit").args(["--pid", &pid, limit]).status().unwrap();
    assert!(status.success(), "prlimit --pid {pid} {limit}: {status}");
}

/// Returns the size of the server's address space, in bytes.
fn mapped(server: &Server) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", server.pid())).unwrap();
    statm.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_process_without_memory_reports_it_and_the_next_one_forgets_nothing() {
    let mut trial = Trial::new("");
    let mut server = trial.start();
    trial.load(&server);
    trial.fault("no memory is left");
    limit(&server, &format!("--as={}", mapped(&server)));
    // Incomplete request bodies use up the memory.
    let mut hungry: Vec<Client> = Vec::new();
    while hungry.len() < 2_000 {
        let Ok(mut client) = Client::connect(server.address()) else { break };
        let head =
            "POST /api/2013-07-01/bulk.json HTTP/1.1\r\nhost: x\r\ncontent-length: 250000\r\n\r\n";
        let body = "{".repeat(200_000);
        if client.send(head.as_bytes()).and_then(|()| client.send(body.as_bytes())).is_err() {
            break;
        }
        hungry.push(client);
    }
    let status = server.wait(PATIENCE);
    assert_eq!(status.signal(), Some(SIGABRT), "{status}: {}", server.log());
    server.says("memory allocation of");
    let server = trial.start();
    trial.wait_for_numbers(&server);
    trial.wait_for_answers(50);
    trial.judge(&server).assert_clean();
    server.stop();
}

/// The write that exceeds the limit on the file size is cut short, and the process ends. The file
/// then contains an incomplete frame.
#[test]
fn a_partly_written_frame_is_cut_off_and_no_answered_allocation_is_lost() {
    let mut trial = Trial::new("");
    let mut server = trial.start();
    trial.load(&server);
    for kib in [300, 301, 514, 770] {
        trial.fault("files may not grow beyond a limit");
        limit(&server, &format!("--fsize={}", kib * 1024 + 512));
        let status = server.wait(PATIENCE);
        assert_eq!(status.signal(), Some(SIGXFSZ), "{status}: {}", server.log());
        server = trial.start();
        trial.wait_for_numbers(&server);
    }
    trial.wait_for_answers(50);
    trial.judge(&server).assert_clean_but_for_cuts();
    server.stop();
}

/// The thread stacks of 256 shards exceed the memory limit, so startup must fail with advice.
#[test]
fn a_start_without_enough_threads_is_one_error_that_says_what_to_do() {
    let site = Site::new(vec![Pool::new(1, 9, LIFETIME)], "shards = 256");
    for flags in [&[][..], &["--check"]] {
        let mut tried = [1_500_000, 1_501_000, 1_502_000, 1_503_000].into_iter().map(|kib| {
            let script = format!("ulimit -v {kib}; exec \"$0\" \"$@\"");
            let refused = Server::try_start(within("sh", &["-c", &script], &site.serve(flags)));
            refused.unwrap_err()
        });
        // Rust's standard library aborts the process if there is memory for a thread's stack but
        // not for its signal stack. Attempts that end this way are skipped.
        let refused = tried.find(|refused| !refused.log.contains("an alternative stack")).unwrap();
        assert_eq!(refused.code, Some(1), "{}", refused.log);
        let advice = refused.log.matches("allow more threads (TasksMax=").count();
        assert_eq!(advice, 1, "{}", refused.log);
        assert!(!refused.log.contains("panicked"), "{}", refused.log);
    }
}
