//! A server under load, and the checker's verdict on the answers that its clients received.
//!
//! Numbers are few and lockouts are short, so that every number is allocated again and again. Two
//! loads run side by side. One load repeats a batch whose answer was lost, with the same
//! idempotency key. The other load never repeats a batch, so that the checker can compare each of
//! its rows with the journal.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::batch::{self, Ask, BULK};
use crate::support::client::Client;
use crate::support::server::{Server, ringwell, signal};
use crate::support::site::{Pool, Site, TOKEN};

/// The time limit for events that may be slow on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const LIFETIME: Duration = Duration::from_secs(2);

/// Segments and snapshots are so small that faults also occur while the server switches to new
/// ones.
const SETTINGS: &str = "shards = 2\njournal.segment_bytes = \"1MiB\"\n\
    journal.snapshot_every_bytes = \"1MiB\"\n";

const POOLS: u64 = 20;
/// The count of numbers per pool. As long as no faults occur, the loads request fewer numbers than
/// this from one pool within a lifetime.
const NUMBERS: u64 = 400;
/// The number of batches that each load sends per second, and the number of rows in a batch.
const RATE: &str = "80/s";
const ROWS: &str = "10";
/// The number of rows of each load that are looked up at the end.
const LOOK_UPS: &str = "400";

/// One test: a site, its clients, and the injected faults.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) site: Site,
    /// The folder that contains the histories, the list of pools, and the server's socket.
    folder: TempDir,
    loads: Vec<Load>,
    /// History lines that record the injected faults.
    faults: String,
    made: usize,
}

#[derive(Debug)]
struct Load {
    child: Child,
    history: PathBuf,
}

impl Drop for Load {
    fn drop(&mut self) {
        // An error is ignored, because it means that the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The checker's verdict.
#[derive(Debug)]
pub(crate) struct Verdict(pub(crate) Value);

impl Trial {
    pub(crate) fn new(settings: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        Self::with_data(folder, data, settings)
    }

    /// Creates a trial with the data directory `data`, which may be on a separate file system.
    pub(crate) fn with_data(folder: TempDir, data: PathBuf, settings: &str) -> Self {
        let pools: Vec<Pool> = (1..=POOLS).map(|id| Pool::new(id, NUMBERS, LIFETIME)).collect();
        write_list(&folder.path().join("pools.csv"), &pools);
        fs::write(folder.path().join("token"), TOKEN).unwrap();
        let run = json!({"k": "run", "v": 1, "t": now_ns(), "run": "faults", "by": "the test"});
        let settings = format!("{SETTINGS}{settings}");
        let site = Site::with_data(TempDir::new().unwrap(), data, pools, &settings);
        Self { site, folder, loads: Vec::new(), faults: format!("{run}\n"), made: 0 }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a `ringwell serve` command that listens on a unix socket. The socket's path stays
    /// the same after a restart.
    pub(crate) fn serve(&self) -> Command {
        let socket = format!("unix:{}", self.file("socket").display());
        self.site.serve(&["--listen", &socket])
    }

    pub(crate) fn start(&self) -> Server {
        Server::start(self.serve())
    }

    /// Starts both loads. Returns after both have received answers.
    pub(crate) fn load(&mut self, server: &Server) {
        for flags in [&["--retry"][..], &[]] {
            let history = self.file(&format!("load{}.jsonl", self.loads.len()));
            let mut command = ringwell(&["load", &url(server), "--rate", RATE, "--rows", ROWS]);
            command.args(["--connections", "8", "--duration", "300s", "--timeout", "20s"]);
            command.args(["--pools"]).arg(self.file("pools.csv"));
            command.args(flags).arg("--history").arg(&history);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            self.loads.push(Load { child: command.spawn().unwrap(), history });
        }
        self.wait_for_answers_of_new(100);
    }

    /// Waits until each load has received `more` further answers.
    pub(crate) fn wait_for_answers(&self, more: usize) {
        for load in &self.loads {
            let wanted = load.answers() + more;
            wait_until("the load is not answered", || load.answers() >= wanted);
        }
    }

    /// Like [`Self::wait_for_answers`], but waits only for the two loads that were started last,
    /// because the server for earlier loads may be gone.
    pub(crate) fn wait_for_answers_of_new(&self, more: usize) {
        for load in self.loads.iter().rev().take(2) {
            let wanted = load.answers() + more;
            wait_until("the load is not answered", || load.answers() >= wanted);
        }
    }

    /// Records in the history that a fault begins now. After the first fault, the checker accepts
    /// overflow numbers even without any other reason.
    pub(crate) fn fault(&mut self, what: &str) {
        let line = json!({"k": "nem", "t": now_ns(), "what": what, "phase": "begin"});
        writeln!(self.faults, "{line}").unwrap();
        self.made += 1;
    }

    /// Counts an event without recording a fault, so that the event does not excuse overflow.
    pub(crate) fn unnoticed(&mut self) {
        self.made += 1;
    }

    /// Pauses all loads for `length`.
    pub(crate) fn pause_loads(&self, length: Duration) {
        for (name, pause) in [("STOP", length), ("CONT", Duration::ZERO)] {
            self.loads.iter().for_each(|load| signal(load.child.id(), name));
            thread::sleep(pause);
        }
    }

    /// Ends the loads, and lets the checker compare their answers with the final state of `server`.
    pub(crate) fn judge(&mut self, server: &Server) -> Verdict {
        let data = self.site.data().to_owned();
        self.judge_with(server, &data)
    }

    /// Like [`Self::judge`], but with the journal in another data directory.
    pub(crate) fn judge_with(&mut self, server: &Server, data: &Path) -> Verdict {
        let histories: Vec<PathBuf> = self.loads.drain(..).map(Load::end).collect();
        let faults = self.file("faults.jsonl");
        fs::File::create(&faults).unwrap().write_all(self.faults.as_bytes()).unwrap();
        for (place, history) in histories.iter().enumerate() {
            let mut finish = ringwell(&["load", "finish"]);
            finish.arg(history).args(["--look-ups", LOOK_UPS, "--look-up", &url(server)]);
            finish.arg("--token-file").arg(self.file("token"));
            if place == 0 {
                finish.arg("--journal").arg(data);
            }
            let done = finish.output().unwrap();
            assert!(done.status.success(), "{done:?}");
        }
        let mut check = ringwell(&["check", "--json"]);
        let output = check.args(&histories).arg(&faults).output().unwrap();
        let verdict: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        println!("{} faults: {} rows, judged by ringwell check", self.made, verdict["rows"]);
        if verdict["clean"] != true {
            println!("the server's log:\n{}", server.log());
        }
        Verdict(verdict)
    }

    /// Requests a number from each pool, and returns the count of overflow numbers. Takes at most
    /// two seconds.
    pub(crate) fn overflow(&self, client: &mut Client, name: &str) -> usize {
        let ask = |pool: &Pool| Ask { pool: pool.id, id: name.to_owned() };
        let asks: Vec<Ask> = self.site.pools.iter().map(ask).collect();
        let body = batch::body(&asks, &self.site.pools);
        let soon = [("ringwell-deadline-ms", "2000")];
        let rows = batch::rows(&client.post(BULK, &soon, &body).unwrap());
        rows.iter().filter(|row| row.overflow).count()
    }

    /// Sends batches until all pools hand out numbers.
    #[track_caller]
    pub(crate) fn wait_for_numbers(&self, server: &Server) {
        let mut client = server.client();
        let until = Instant::now() + PATIENCE;
        while self.overflow(&mut client, "again") > 0 {
            assert!(Instant::now() < until, "rows still overflow:\n{}", server.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends batches until no pool hands out numbers.
    pub(crate) fn wait_for_overflow(&self, server: &Server) {
        let mut client = server.client();
        let all = self.site.pools.len();
        wait_until("rows still get numbers", || self.overflow(&mut client, "none") == all);
    }
}

impl Load {
    fn answers(&self) -> usize {
        let text = fs::read_to_string(&self.history).unwrap_or_default();
        text.lines().filter(|line| line.contains("\"k\":\"ret\"")).count()
    }

    /// Ends the load as Ctrl-C would.
    fn end(mut self) -> PathBuf {
        signal(self.child.id(), "INT");
        wait_until("the load does not end", || self.child.try_wait().unwrap().is_some());
        assert!(self.child.wait().unwrap().success(), "the load failed");
        std::mem::take(&mut self.history)
    }
}

impl Verdict {
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        self.assert_clean_but_for_cuts();
        assert_eq!(self.0["damaged"], json!([]));
    }

    /// Allows violations of rule C6: rows that overflowed without a cause that the checker accepts.
    #[track_caller]
    pub(crate) fn assert_clean_but_for_overflow(&self) {
        let rules = self.0["violations"].as_object().unwrap();
        assert!(rules.keys().all(|rule| rule == "C6"), "{:#}", self.0);
        assert_eq!(self.0["damaged"], json!([]));
    }

    /// Accepts incomplete frames. An incomplete frame of one block looks like a damaged frame:
    /// recovery holds the pools, and a dump of the journal reports damage.
    #[track_caller]
    pub(crate) fn assert_clean_but_for_cuts(&self) {
        assert_eq!(self.0["clean"], true, "{:#}", self.0);
        let number = |name: &str| self.0[name].as_u64().unwrap();
        assert!(number("numbers") > 500, "too little happened: {:#}", self.0);
        assert!(number("records") > 0 && number("lookups") > 0, "{:#}", self.0);
    }
}

/// Writes the list of pools for `ringwell load`.
fn write_list(path: &Path, pools: &[Pool]) {
    let header = "id,ring_pool_key,overflow_number,lifetime_seconds,first_number,numbers\n";
    let mut list = header.to_owned();
    for Pool { id, key, first, numbers, overflow, lifetime } in pools {
        let seconds = lifetime.as_secs_f64();
        writeln!(list, "{id},{key},{overflow},{seconds},{first},{numbers}").unwrap();
    }
    fs::write(path, list).unwrap();
}

fn url(server: &Server) -> String {
    let address = server.address();
    if address.starts_with("unix:") { address.to_owned() } else { format!("http://{address}") }
}

/// Returns the time of `CLOCK_MONOTONIC`, which histories also use.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// Calls `is_so` repeatedly until it returns true. Fails with the message `otherwise` after
/// [`PATIENCE`].
#[track_caller]
pub(crate) fn wait_until(otherwise: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "after {PATIENCE:?} {otherwise}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the command line `program ARGS command…`, for a program that runs another program.
pub(crate) fn within(program: &str, args: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(program);
    outer.args(args).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer.stdin(Stdio::null());
    outer
}

/// Returns whether a program can be run with these arguments. Prints a message if it cannot.
pub(crate) fn can_run(program: &str, args: &[&str], what_for: &str) -> bool {
    let output = Command::new(program).args(args).output();
    let can = output.is_ok_and(|done| done.status.success());
    if !can {
        println!("SKIPPED: no {what_for} here: `{program} {}` does not work", args.join(" "));
    }
    can
}
