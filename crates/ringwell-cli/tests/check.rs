//! Tests the program in daily use: checks, help texts, wrong usage, and the demo's files.

#![expect(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn ringwell(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwell"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RINGWELL_")) {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    ringwell(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The sample configuration, unchanged.
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/ringwell.toml");

/// Creates a copy of the sample configuration with new keys.
fn sample() -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("check-sample.toml");
    let text = fs::read_to_string(SAMPLE).unwrap().replace("\"change-me-", "\"of-the-tests-");
    // Writes a separate file and renames it, because tests run in parallel and each needs a
    // complete file.
    let own = path.with_extension(format!("{:?}", std::thread::current().id()));
    fs::write(&own, text).unwrap();
    fs::rename(own, &path).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn keys_of_the_sample_are_refused_and_named_by_file_and_line() {
    let dir = TempDir::new().unwrap();
    let config = dir.path().join("ringwell.toml");
    let list = dir.path().join("pools.csv");
    fs::write(&config, "data = \"data\"\nring_pools = \"pools.csv\"\n").unwrap();
    fs::write(
        &list,
        "id,ring_pool_key,lifetime_seconds,numbers\n1,change-me-abcdefgh,60,2125550000\n",
    )
    .unwrap();
    let text = fs::read_to_string(SAMPLE).unwrap();
    let is_key = |line: &str| line.starts_with("ring_pool_key = \"change-me");
    let in_sample = text.lines().zip(1..).filter(|(line, _)| is_key(line));
    let in_sample: Vec<_> = in_sample.map(|(_, line)| format!("{SAMPLE}:{line}: ")).collect();
    assert_eq!(in_sample.len(), 2);
    let in_list = vec![format!("{}:2: ", list.display())];
    for (config, places) in [(SAMPLE, in_sample), (config.to_str().unwrap(), in_list)] {
        for command in [&["serve"][..], &["serve", "--check"], &["doctor"]] {
            let output = run(&[command, &["--config", config]].concat());
            assert_eq!(output.status.code(), Some(1));
            let said = stdout(&output) + &stderr(&output);
            for place in &places {
                let line = said.lines().find(|line| line.contains(place)).unwrap_or_default();
                assert!(line.contains("is a key of the sample"), "{command:?}: {said}");
                assert!(!line.contains("change-me"), "{said}");
            }
        }
    }
}

#[test]
fn a_good_configuration_is_counted() {
    let output = run(&["serve", "--config", &sample(), "--check"]);
    assert_eq!(stdout(&output), "ok: 2 pools, 71 numbers\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_check_says_that_the_pools_are_in_the_database() {
    let dir = TempDir::new().unwrap();
    let config = dir.path().join("ringwell.toml");
    let pool = "[[ring_pool]]\nid = 1\nring_pool_key = \"a-key-of-pool-1\"\nlifetime = \"30m\"\n\
                numbers = [\"2125550000-2125550004\"]\nallow_overflow = false\n";
    let database = "[directory]\ndatabase = \"sqlite:directory.sqlite\"\n";
    for (settings, wanted) in [
        (pool.to_owned(), "1 pool, 5 numbers"),
        (format!("{pool}{database}"), "1 pool, 5 numbers, imported if the database has no"),
        (database.to_owned(), "the ring pools are in the database"),
    ] {
        fs::write(&config, format!("data = \"data\"\n{settings}")).unwrap();
        let config = config.to_str().unwrap();
        let checked = stdout(&run(&["serve", "--check", "--config", config]));
        assert!(checked.starts_with(&format!("ok: {wanted}")), "{checked}");
        let examined = stdout(&run(&["doctor", "--config", config]));
        assert!(examined.contains(&format!("no faults; {wanted}")), "{examined}");
    }
}

#[test]
fn a_pool_whose_lifetime_is_shorter_than_a_page_s_keep_alive_interval_causes_a_warning() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ringwell.toml");
    let pool = |id: u32, lifetime: &str| {
        format!(
            "[[ring_pool]]\nid = {id}\nring_pool_key = \"a-key-of-pool-{id}\"\nlifetime = \"{lifetime}\"\n\
             numbers = [\"21255500{id}0-21255500{id}9\"]\nallow_overflow = false\n"
        )
    };
    let site = "[[site]]\nkey = \"pk_shop\"\norigins = [\"https://shop.example\"]\n";
    let swap = |id| format!("[[site.swap]]\nnumber = \"+1800555010{id}\"\nring_pool = {id}\n");
    let text =
        format!("data = \"d\"\n{}{}{site}{}{}", pool(1, "60s"), pool(2, "61s"), swap(1), swap(2));
    fs::write(&path, text).unwrap();
    let output = run(&["serve", "--config", path.to_str().unwrap(), "--check"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let warning = "warning: site pk_shop: ring pool 1 has a lifetime of a minute or less";
    assert!(said.contains(warning) && !said.contains("ring pool 2"), "{said}");
}

#[test]
fn every_fault_of_a_configuration_is_reported_and_it_is_not_served() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ringwell.toml");
    fs::write(&path, "data = \"d\"\nlisten = [\"here\"]\n[limits]\nrow = 1\n[[ring_pool]]\n")
        .unwrap();
    let path = path.to_str().unwrap();
    for args in [&["serve", "--config", path, "--check"][..], &["serve", "--config", path]] {
        let output = ringwell(args).env("RINGWELL_SHARDS", "x").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stdout(&output), "");
        let said = stderr(&output).replace(path, "ringwell.toml");
        let places: Vec<&str> = said.lines().filter_map(|line| line.split(": ").next()).collect();
        let five = "ringwell.toml:5";
        assert_eq!(
            places,
            ["RINGWELL_SHARDS", "ringwell.toml:2", "ringwell.toml:4", five, five, five, five, five]
        );
        assert!(
            said.contains(
                "ringwell.toml:4: limits.row: there is no such field; did you mean rows?\n"
            )
        );
    }
}

#[test]
fn flags_and_variables_override_the_configuration() {
    let output = ringwell(&["serve", "--check", "--shards", "2", "--durability", "memory"])
        .env("RINGWELL_CONFIG", sample())
        .env("RINGWELL_DEADLINE", "50ms")
        .output()
        .unwrap();
    assert_eq!(
        (stdout(&output).as_str(), output.status.code()),
        ("ok: 2 pools, 71 numbers\n", Some(0))
    );
}

#[test]
fn wrong_usage_is_reported_on_stderr_and_exits_with_2() {
    let wrong: [&[&str]; 17] = [
        &[],
        &["serv"],
        &["serve"],
        &["serve", "--config", "x", "--durability", "ram"],
        &["demo", "--lifetime", "soon"],
        &["demo", "--listen", "here"],
        &["demo", "--shards", "300"],
        &["demo", "--pools", "0"],
        &["demo", "--pools", "1000001"],
        &["demo", "--numbers", "many"],
        &["completions", "dos"],
        &["backup", "--to", "x"],
        &["webhooks", "listen"],
        &["restore", "copy"],
        &["journal", "erase", "data"],
        &["pools", "create", "--name", "x", "--size", "5", "--id", "1"],
        &["plan", "--load", "5", "--lifetime", "30"],
    ];
    for args in wrong {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
        assert!(!stderr(&output).is_empty(), "{args:?}");
    }
    let said = stderr(&run(&["demo", "--listen", "here"]));
    assert!(said.contains("must be HOST:PORT or unix:PATH; write e.g."), "{said}");
    for (args, wanted) in [
        (&["demo", "--listen", "127.0.0.1:99999"][..], "the port must be 1 to 65535"),
        (&["load", "http://127.0.0.1:99999"], "the port must be 1 to 65535"),
        (&["pools", "list", "--url", "127.0.0.1:99999"], "the port must be 1 to 65535"),
        (&["demo", "--deadline", "100"], "e.g. \"100ms\""),
        (&["backup", "--to", "x"], "or --data to its data directory"),
        (&["backup"], "ringwell backup --verify DIR"),
        (&["restore", "copy"], "set --config (or RINGWELL_CONFIG)"),
        (&["restore"], "ringwell restore --config FILE <COPY>"),
        (&["journal", "erase", "data"], "--parameter <NAME=VALUE>"),
        (wrong[15], "the server chooses the id"),
        (wrong[16], "needs a unit, e.g. 30s or 30m"),
    ] {
        let said = stderr(&run(args));
        assert!(said.contains(wanted), "{args:?}: {said}");
    }
}

#[test]
fn a_directory_in_place_of_a_file_is_named_with_the_flag() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().to_str().unwrap();
    let fault = format!("{path}: is a directory, not a file");
    let cases: [(&[&str], &str); 8] = [
        (&["serve", "--config", path], "--config"),
        (&["serve", "--check", "--config", path], "--config"),
        (&["doctor", "--config", path], "--config"),
        (&["backup", "--to", "/nowhere/x", "--config", path], "--config"),
        (&["restore", path, "--config", path], "--config"),
        (&["simulate", "--site-log", "x", "--config", path], "--config"),
        (&["haproxy", "--cluster", path, "--config", path], "--config"),
        (&["haproxy", "--cluster", path], "--cluster"),
    ];
    for (args, flag) in cases {
        let output = run(args);
        let said = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains(&fault) && said.contains("to the path of"), "{args:?}: {said}");
        assert!(said.contains(flag) && !said.contains("os error"), "{args:?}: {said}");
        let is_error = said.lines().any(|line| line.starts_with(&format!("error: {fault}")));
        assert!(is_error || args[0] == "doctor", "{args:?}: {said}");
    }
    let output = run(&["check", path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("is a directory: specify the files"), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_opened_is_named_once_and_exits_with_1() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let (file, sample) = (file.to_str().unwrap(), sample());
    let cases: [(&[&str], &str); 5] = [
        (&["serve", "--config", "/nowhere/x.toml"], "/nowhere/x.toml: cannot be read: No such"),
        (&["serve", "--config", &sample, "--data", file], "Not a directory"),
        (&["demo", "--data", file], "choose another directory with --data"),
        (&["journal", "verify", "/nowhere"], "cannot read /nowhere: No such file"),
        (&["journal", "inspect", file], "Not a directory"),
    ];
    for (args, text) in cases {
        let output = run(args);
        let said = stderr(&output);
        assert_eq!(said.matches(text).count(), 1, "{args:?}: {said}");
        assert_eq!(said.matches("os error").count(), 1, "{args:?}: {said}");
        assert_eq!(output.status.code(), Some(1), "{args:?}");
    }
}

#[test]
fn a_check_also_tries_the_level_of_the_log() {
    let args = ["serve", "--config", &sample(), "--check"];
    let output = ringwell(&args).env("RINGWELL_LOG_LEVEL", "info,,=").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("error: log.level, or RINGWELL_LOG_LEVEL, cannot be"));
}

#[test]
fn each_token_is_new_and_is_printed_with_its_setting() {
    let output = run(&["token"]);
    let secret = stdout(&output);
    assert_ne!(secret, stdout(&run(&["token"])));
    assert!(secret.starts_with("rw_") && secret.trim_end().len() == 67, "{secret}");
    let setting = stderr(&output);
    assert!(!setting.contains(secret.trim_end()), "the setting keeps the secret");
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ringwell.toml");
    let text = fs::read_to_string(sample()).unwrap();
    let (before, rest) = text.split_once("[management]\n").unwrap();
    let (_, after) = rest.split_once("token_sha256 = []\n").unwrap();
    fs::write(&path, format!("{before}{setting}{after}")).unwrap();
    let output = run(&["serve", "--check", "--config", path.to_str().unwrap()]);
    assert_eq!(stderr(&output), "");
    assert!(output.status.success());
}

#[test]
fn shells_get_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&run(&["completions", shell]));
        assert!(script.contains("durability") && script.contains("journal"), "{shell}");
    }
}

#[test]
fn the_manual_is_one_page_with_every_command_and_has_no_references_to_others() {
    let page = stdout(&run(&["man"])).replace('\\', "");
    assert_eq!(page.matches(".TH ").count(), 1);
    for command in ["serve", "demo", "journal verify", "token", "completions", "man"] {
        let heading = format!(".SS \"ringwell {command}\"\n");
        assert!(page.contains(&heading), "{heading}");
    }
    for text in ["--lifetime", "--without-snapshot", "RINGWELL_DEADLINE", "Exit codes"] {
        assert!(page.contains(text), "{text}");
    }
    for text in ["(1)", "EXTRA", "--help"] {
        assert!(!page.contains(text), "{text}");
    }
}

#[test]
fn help_has_examples() {
    for command in ["", "serve", "demo", "journal", "token", "man"] {
        let args: Vec<&str> =
            [command, "--help"].into_iter().filter(|arg| !arg.is_empty()).collect();
        let output = run(&args);
        assert!(stdout(&output).contains("\n  ringwell "), "{args:?}");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn the_help_of_serve_names_every_variable() {
    let help = stdout(&run(&["serve", "--help"]));
    for name in ringwell_config::VARIABLES {
        assert!(help.contains(name), "{name}");
    }
}

/// Starts a demo, and returns its output up to the last line of the introduction.
fn demo(data: &Path) -> String {
    let data = data.to_str().unwrap();
    let args = ["demo", "--data", data, "--listen", "127.0.0.1:0", "--durability", "memory"];
    let mut child = ringwell(&args)
        .args(["--pools", "3", "--shards", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let said: Vec<String> = lines.take_while(|line| line != "Ctrl-C stops the demo.").collect();
    child.kill().unwrap();
    child.wait().unwrap();
    said.join("\n")
}

#[test]
fn a_demo_writes_its_list_of_pools_and_reuses_it_and_its_token() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("demo's data");
    let said = demo(&data);
    assert!(said.contains("made    3 ring pools of 500 numbers, lifetime 30m"), "{said}");
    assert!(said.contains("/api/2013-07-01/bulk.json"), "{said}");
    assert!(said.contains("/v1/attributions?number=2000000000'"), "{said}");
    assert!(!said.contains(":0/"), "the address is the bound one: {said}");

    let list = fs::read_to_string(data.join("demo-pools.csv")).unwrap();
    assert_eq!(list.lines().count(), 4);
    let token_file = data.join("demo-token");
    assert_eq!(fs::metadata(&token_file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = fs::read_to_string(&token_file).unwrap();
    let said = demo(&data);
    assert!(said.contains("found   3 ring pools of 500 numbers, lifetime 30m"), "{said}");
    assert_eq!(fs::read_to_string(&token_file).unwrap(), token);
}

/// Returns the subcommands of `command`. An empty `command` means the program itself.
fn commands_below(command: &[String]) -> Vec<Vec<String>> {
    let help = stdout(&run_help(command, "100"));
    let listed = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let names = listed.lines().take_while(|line| !line.is_empty());
    let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next()).filter(|it| *it != "help");
    names.map(|name| [command, &[name.to_owned()]].concat()).collect()
}

fn run_help(command: &[String], columns: &str) -> Output {
    let words: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
    ringwell(&words).env("COLUMNS", columns).output().unwrap()
}

#[test]
fn help_texts_break_lines_where_the_terminal_ends() {
    let mut commands = vec![Vec::new()];
    let mut next = 0;
    while let Some(command) = commands.get(next).cloned() {
        next += 1;
        commands.extend(commands_below(&command));
        for columns in [80, 100] {
            let help = stdout(&run_help(&command, &columns.to_string()));
            let lines: Vec<&str> = help.lines().collect();
            for pair in lines.windows(2).filter(|pair| !pair[0].is_empty()) {
                let first_word = pair[1].split(' ').next().unwrap_or_default();
                if first_word.is_empty() {
                    continue;
                }
                let at = format!("{command:?} at {columns} columns: {pair:#?}");
                assert!(!pair[0].starts_with("  ") || pair[0].ends_with('\\'), "an example: {at}");
                let would_fit = pair[0].len() + 1 + first_word.len() <= columns;
                assert!(!would_fit, "a line breaks too early: {at}");
            }
        }
    }
    assert!(commands.len() > 40, "{commands:?}");
}
