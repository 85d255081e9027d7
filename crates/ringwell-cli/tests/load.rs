//! Tests `ringwell load` against a real `ringwell demo`: open and closed loops, output files, and a
//! history that includes journal records and look-ups.

#![expect(clippy::unwrap_used, reason = "a test program reports failures by panicking")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use support::server::{Server, ringwell};
use tempfile::TempDir;

struct Demo {
    folder: TempDir,
    server: Server,
}

impl Demo {
    fn start(flags: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        let args = ["demo", "--listen", "127.0.0.1:0", "--log-format", "json", "--data"];
        let mut command = ringwell(&args);
        command.arg(data).args(flags);
        Self { server: Server::start(command), folder }
    }

    fn data(&self, name: &str) -> String {
        self.folder.path().join("data").join(name).to_str().unwrap().to_owned()
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// Runs `ringwell load --json`, and returns its output.
    fn load(&self, flags: &[&str]) -> Value {
        let mut command = ringwell(&["load", &self.url(), "--json", "--pools"]);
        command.arg(self.data("demo-pools.csv")).args(flags);
        serde_json::from_str(&succeed(&mut command)).unwrap()
    }
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn succeed(command: &mut Command) -> String {
    let output = output(command);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{command:?}: {printed}");
    assert_eq!(printed, "", "no live output if stderr is not a terminal");
    String::from_utf8(output.stdout).unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn both_loops_report_the_server_s_answers() {
    let demo = Demo::start(&["--durability", "memory", "--shards", "1", "--lifetime", "10ms"]);
    let (hdr, page) = (demo.file("run.hgrm"), demo.file("run.html"));
    let closed = demo.load(&["--duration", "1s", "--connections", "4", "--hdr", &hdr]);
    let open =
        demo.load(&["--duration", "1s", "--rate", "100/s", "--threads", "2", "--report", &page]);
    for run in [&closed, &open] {
        let ok = run["counts"]["statuses"]["200"].as_u64().unwrap();
        assert_eq!(run["counts"]["sent"], ok, "{run}");
        assert_eq!(run["counts"]["rows"], 40 * ok);
        assert_eq!(run["counts"]["error_rows"], 0);
        assert_eq!(run["setting"]["spread"], "pools");
        assert!(run["latency"]["p50_us"].as_f64().unwrap() > 0.0);
        assert_eq!(run["samples"].as_array().unwrap().len(), 10);
    }
    assert_eq!(closed["setting"]["mode"], "closed");
    assert_eq!(open["setting"]["mode"], "open");
    assert_eq!(open["counts"]["statuses"]["200"], 100, "a hundred are due in a second");
    assert!(fs::read_to_string(hdr).unwrap().contains("#[Mean"));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && !page.contains("<script"), "{page}");

    let (a, b) = (demo.file("a.json"), demo.file("b.json"));
    fs::write(&a, closed.to_string()).unwrap();
    fs::write(&b, open.to_string()).unwrap();
    let table = succeed(&mut ringwell(&["load", "compare", &a, &b]));
    assert!(
        table.contains("95 % confidence") && table.contains("have different settings"),
        "{table}"
    );
    demo.server.stop();
}

#[test]
fn a_history_ties_rows_to_the_journal_and_to_look_ups() {
    let flags = ["--pools", "5", "--numbers", "100", "--shards", "2", "--lifetime", "30s"];
    let demo = Demo::start(&flags);
    let history = demo.file("run.jsonl");
    let sparse = ["--rows", "4", "--rate", "50/s", "--duration", "1s", "--history", &history];
    let run = demo.load(&sparse);
    assert_eq!(run["counts"]["rows"], 200);
    // On a busy machine, some rows may be late and get overflow numbers.
    let own = 200 - run["counts"]["overflow_rows"].as_u64().unwrap();
    assert!(own > 100, "{run}");
    let mut finish = ringwell(&["load", "finish", &history, "--look-ups", "0", "--journal"]);
    finish.arg(demo.data("")).args(["--look-up", &demo.url(), "--token-file"]);
    let printed = succeed(finish.arg(demo.data("demo-token")));
    assert!(
        printed
            .contains(&format!("look-ups: {own}, of which {own} found an allocation and 0 were")),
        "{printed}"
    );

    let lines = lines(Path::new(&history));
    let of = |kind: &str| lines.iter().filter(|line| line["k"] == kind).collect::<Vec<_>>();
    assert_eq!((of("inv").len(), of("ret").len(), of("unk").len()), (50, 50, 0));
    assert_eq!(of("cfg").len(), 5);
    let journal = of("jrn");
    for answered in of("ret") {
        let rows = answered["rows"].as_array().unwrap();
        for row in rows.iter().filter(|row| row["ovf"] != true) {
            let begin = format!("rid={}&", row["rid"].as_str().unwrap());
            let found: Vec<_> = journal
                .iter()
                .filter(|line| line["record"] == "allocate" && line["number"] == row["num"])
                .collect();
            assert_eq!(found.len(), 1, "{row}");
            assert!(found[0]["params"].as_str().unwrap().starts_with(&begin), "{row}");
        }
    }
    for found in of("att") {
        assert_eq!(found["par"]["rid"], found["rid"], "{found}");
    }
    let held = of("fin").iter().filter(|line| line["number"].is_string()).count();
    assert!(held as u64 >= own, "{held}");
    demo.server.stop();
}

#[test]
fn ctrl_c_ends_a_run_early_and_the_table_is_still_printed() {
    let demo = Demo::start(&["--durability", "memory", "--shards", "1"]);
    let mut command = ringwell(&["load", &demo.url(), "--rate", "50/s", "--duration", "60s"]);
    command.arg("--pools").arg(demo.data("demo-pools.csv"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(1500));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{table}");
    assert!(table.contains("ended early") && table.contains("spread over 200 pools"), "{table}");
    demo.server.stop();
}

#[test]
fn a_run_that_cannot_take_place_reports_the_reason() {
    let folder = TempDir::new().unwrap();
    let pools = folder.path().join("pools.csv");
    let header = "id,ring_pool_key,overflow_number,lifetime_seconds,first_number,numbers";
    fs::write(&pools, format!("{header}\n1,k,,1,2000000000,5\n")).unwrap();
    let printed = |command: &mut Command| {
        let output = output(command);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let socket = format!("unix:{}", folder.path().join("nobody.sock").display());
    let (code, text) = printed(ringwell(&["load", &socket, "--pools"]).arg(&pools));
    assert_eq!(code, 1);
    assert!(text.contains("nothing listens at unix:") && text.contains("ringwell demo"), "{text}");
    let (code, text) = printed(&mut ringwell(&["load", "--pools", "/nowhere/pools.csv"]));
    assert_eq!(code, 1);
    assert!(text.contains("/nowhere/pools.csv"), "{text}");
    let (code, text) = printed(&mut ringwell(&["load", "--spike", "1s,1s,x2"]));
    assert_eq!(code, 2, "a spike needs a rate: {text}");
    let (code, text) = printed(ringwell(&["load", "--pools"]).arg(folder.path()));
    assert_eq!(code, 1);
    assert!(text.contains("is a directory"), "{text}");
    let (code, text) = printed(ringwell(&["load", "finish"]).arg(&pools));
    assert_eq!(code, 2, "there is nothing to add: {text}");
}
