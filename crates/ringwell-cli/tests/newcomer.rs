//! Tests a new user's first hour, with the real program.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::batch::{self, Ask, BULK};
use support::server::{Server, ringwell};
use support::site::{Pool, Site, TOKEN};
use tempfile::TempDir;

const LONG: Duration = Duration::from_mins(30);

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn run(args: &[&str]) -> Output {
    ringwell(args).env("RINGWELL_TOKEN", TOKEN).output().unwrap()
}

/// Returns the disk space used by all files below `path`, in bytes.
fn disk_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = fs::read_dir(path).unwrap().map(Result::unwrap);
    let bytes = entries.map(|entry| {
        let meta = entry.metadata().unwrap();
        if meta.is_dir() { disk_bytes(&entry.path()) } else { meta.blocks() * 512 }
    });
    bytes.sum()
}

#[test]
fn a_demo_whose_port_is_busy_leaves_no_file_behind() {
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let folder = TempDir::new().unwrap();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for data in [folder.path().join("demo-data"), empty.clone()] {
        let output = run(&["demo", "--data", &text(&data), "--listen", &address]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("choose another address with --listen"), "{output:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(empty).unwrap().count(), 0);
}

#[test]
fn a_server_that_cannot_start_leaves_no_data_directory_behind() {
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let site = Site::new(vec![Pool::new(1, 5, LONG)], "");
    let config = text(&site.config());
    let good = fs::read_to_string(site.config()).unwrap();
    let folder = site.config().parent().unwrap().to_owned();
    let database = format!("[directory]\ndatabase = \"sqlite:{}/d.sqlite\"\n", folder.display());
    let lock = File::create(folder.join("d.sqlite.lock")).unwrap();
    lock.lock().unwrap();
    let listen = good.replacen("127.0.0.1:0", &address, 1);
    let management = format!("management.address = \"{address}\"\n{good}{database}");
    let calls = format!("{good}[calls]\nlisten = \"{address}\"\n");
    let free = format!("management.address = \"127.0.0.1:0\"\n{good}{database}");
    for (settings, wanted) in [
        (listen, "choose another address with --listen"),
        (management, "Stop that program, or choose another management.address"),
        (calls, "Stop that program, or choose another calls.listen"),
        (free, "another server keeps its ring pools"),
    ] {
        fs::write(&config, settings).unwrap();
        let data = folder.join("new-data");
        let output = within_time(&["serve", "--config", &config, "--data", &text(&data)]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(wanted), "{wanted}: {}", stderr(&output));
        assert!(!data.exists(), "{wanted}");
    }
}

#[test]
fn load_uses_up_no_number_of_the_demos_pools() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("demo-data");
    let args =
        ["demo", "--listen", "127.0.0.1:0", "--log-format", "json", "--shards", "1", "--data"];
    let server = Server::start(ringwell(&[&args[..], &[&text(&data)]].concat()));
    assert!(disk_bytes(&data) < 80 << 20, "{}", disk_bytes(&data));
    let url = format!("http://{}", server.address());
    let load = ["load", &url, "--duration", "1s", "--rate", "200/s", "--json"];
    let output = ringwell(&load).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let mut client = server.client();
    let pools = fs::read_to_string(data.join("demo-pools.csv")).unwrap();
    let first: Vec<&str> = pools.lines().nth(1).unwrap().split(',').collect();
    let suffix = format!("{}/allocate_number.json?ring_pool_key={}&m1=a", first[0], first[1]);
    let body = json!({ "requests": [{ "api_suffix": suffix }] }).to_string();
    let answer = client.post(BULK, &[], &body).unwrap().json();
    assert_eq!(answer["responses"][0]["promo_number"], "2000000000", "the first of the first pool");
}

#[test]
fn a_backup_of_a_serving_server_is_sound_and_contains_earlier_answers() {
    let pools: Vec<Pool> = (1..=4).map(|id| Pool::new(id, 50, LONG)).collect();
    let site = Site::new(pools, "shards = 2");
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let asks: Vec<Ask> = (1..=4).map(|pool| Ask { pool, id: "before".into() }).collect();
    let body = batch::body(&asks, &site.pools);
    let before = batch::rows(&client.post(BULK, &[], &body).unwrap());
    let folder = TempDir::new().unwrap();
    let to = text(&folder.path().join("copy"));
    let config = text(&site.config());
    // Sends batches while the backup is in progress.
    let output = std::thread::scope(|scope| {
        let copying = scope.spawn(|| run(&["backup", "--config", &config, "--to", &to]));
        while !copying.is_finished() {
            batch::rows(&client.post(BULK, &[], &body).unwrap());
        }
        copying.join().unwrap()
    });
    assert!(output.status.success(), "{}", stderr(&output));
    let verified = run(&["backup", "--verify", &to]);
    assert!(stdout(&verified).contains("sound"), "{}", stderr(&verified));
    let again = run(&["backup", "--config", &config, "--to", &to]);
    assert!(stderr(&again).contains("already exists"), "{}", stderr(&again));
    server.kill();

    let copy = Server::start(site.serve(&["--data", &to]));
    let mut client = copy.client();
    for (row, ask) in before.iter().zip(&asks) {
        let number = row.number;
        let held = batch::holder(&mut client, number).unwrap();
        assert_eq!(held["ring_pool_id"], ask.pool, "{held}");
    }
    copy.stop();

    // A one-byte change in a journal must be detected.
    let shard = folder.path().join("copy/journal/0");
    let segment = fs::read_dir(&shard).unwrap().map(|entry| entry.unwrap().path());
    let segment = { segment }.find(|path| path.extension().is_some_and(|it| it == "rpj")).unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    bytes[5000] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let verified = run(&["backup", "--verify", &to]);
    assert_eq!(verified.status.code(), Some(1), "{}", stdout(&verified));
}

#[test]
fn top_metrics_and_state_name_the_overflowing_pool() {
    let pools = vec![Pool::new(1, 50, LONG), Pool::new(2, 1, LONG)];
    let site = Site::new(pools, "shards = 1");
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    for id in ["a", "b", "c"] {
        let asks: Vec<Ask> = (1..=2).map(|pool| Ask { pool, id: id.into() }).collect();
        let body = batch::body(&asks, &site.pools);
        client.post(BULK, &[], &body).unwrap();
    }
    let url = format!("http://{}", server.address());
    let top = stdout(&run(&["top", "--url", &url]));
    let lines: Vec<Vec<&str>> = top.lines().map(|it| it.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 2, "{top}");
    assert_eq!(lines[1], ["2", "1", "1", "2", "0"], "{top}");
    let metrics = client.get("/metrics", &[]).unwrap().body;
    assert!(metrics.contains("ringwell_pool_overflow_rows_total{pool=\"2\"} 2\n"), "{metrics}");
    assert!(!metrics.contains("ringwell_pool_overflow_rows_total{pool=\"1\"}"), "{metrics}");
    let token = format!("Bearer {TOKEN}");
    let headers = [("authorization", token.as_str())];
    let state = client.get("/v1/pools/2/state", &headers).unwrap().json();
    assert_eq!((&state["free"], &state["exhausted"]), (&json!(0), &json!(2)), "{state}");
    assert_eq!(client.get("/v1/pools/3/state", &headers).unwrap().status, 404);
    assert_eq!(client.get("/v1/overflow?top=0", &headers).unwrap().status, 400);
    assert_eq!(client.get("/v1/overflow", &[]).unwrap().status, 401);
}

#[test]
fn a_reload_accepts_new_management_tokens() {
    let site = Site::new(vec![Pool::new(1, 5, LONG)], "shards = 1");
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let made = run(&["token"]);
    let (secret, setting) = (stdout(&made), stderr(&made));
    let bearer = format!("Bearer {}", secret.trim());
    let mut status = || client.get("/v1/shards", &[("authorization", &bearer)]).unwrap().status;
    assert_eq!(status(), 401);
    let hash = setting.split('"').nth(1).unwrap();
    let config = fs::read_to_string(site.config()).unwrap();
    let (head, rest) = config.split_once("token_sha256 = [").unwrap();
    fs::write(site.config(), format!("{head}token_sha256 = [\"{hash}\", {rest}")).unwrap();
    assert!(server.reload().contains("tokens were reloaded"), "{}", server.log());
    assert_eq!(status(), 200);
}

#[test]
fn a_doctor_finds_what_keeps_a_configuration_from_serving() {
    let site = Site::new(vec![Pool::new(1, 5, LONG)], "");
    let config = text(&site.config());
    let good = run(&["doctor", "--config", &config, "--json"]);
    let found: Value = serde_json::from_slice(&good.stdout).unwrap();
    let about: Vec<&str> =
        found.as_array().unwrap().iter().map(|it| it["about"].as_str().unwrap()).collect();
    for wanted in ["version", "cores", "memory", "clock", "config", "files", "port"] {
        assert!(about.contains(&wanted), "{wanted}: {found}");
    }
    assert_eq!(good.status.code(), Some(0), "{found}");

    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = busy.local_addr().unwrap().to_string();
    let bad = ringwell(&["doctor", "--config", &config]).env("RINGWELL_LISTEN", &listen).output();
    let bad = bad.unwrap();
    assert_eq!(bad.status.code(), Some(1));
    assert!(stdout(&bad).contains("is in use or not available"), "{}", stdout(&bad));
    // `doctor` checks the address in the flags, because flags override environment variables.
    let given = ["doctor", "--config", &config, "--listen", "127.0.0.1:0", "--shards", "1"];
    let good = ringwell(&given).env("RINGWELL_LISTEN", &listen).output().unwrap();
    assert!(stdout(&good).contains("ok    port       127.0.0.1:0 is free"), "{}", stdout(&good));
    let bad = run(&["doctor", "--config", &config, "--listen", &listen]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(stdout(&bad).contains(&format!("{listen} is in use")), "{}", stdout(&bad));
    let memory = run(&["doctor", "--config", &config, "--durability", "memory"]);
    assert!(stdout(&memory).contains("a restart loses every allocation"), "{memory:?}");
    fs::write(site.config(), "listen = 3\n").unwrap();
    let bad = run(&["doctor", "--config", &config]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(stdout(&bad).contains("bad   config"), "{}", stdout(&bad));
}

/// Returns a command with a time limit, because a server that started despite a fault would never
/// end.
fn within_time(args: &[&str]) -> Command {
    let program = ringwell(args);
    let mut command = Command::new("timeout");
    for (name, _) in program.get_envs() {
        command.env_remove(name);
    }
    command.arg("20").arg(program.get_program()).args(args).stdin(Stdio::null());
    command
}

/// `serve --check` and `doctor` must report the faults that make `serve` refuse to start, in the
/// same words.
#[test]
fn serve_its_check_and_the_doctor_find_the_same_faults_of_a_machine() {
    let long = format!("unix:/tmp/{}", "x".repeat(200));
    let site = Site::new(vec![Pool::new(1, 5, LONG)], "");
    let config = text(&site.config());
    let good = fs::read_to_string(site.config()).unwrap();
    let tls = |certificate: &str| {
        format!(
            "{good}[tls]\nlisten = [\"127.0.0.1:0\"]\ncertificate = \"{certificate}\"\nkey = \"{certificate}\"\n"
        )
    };
    let data = text(site.data());
    let not_a_folder = text(&site.config());
    let below_a_file = format!("{not_a_folder}/data");
    let cases: [(&[&str], String, &str); 6] = [
        (&[], tls("no.pem"), "no.pem"),
        (&[], tls(&config), "certificate"),
        (&["--listen", &long], good.clone(), "at most 107 bytes"),
        (&["--listen", &format!("unix:{config}")], good.clone(), "not a socket"),
        (&["--data", &not_a_folder], good.clone(), "cannot create the data directory"),
        (&["--data", &below_a_file], good.clone(), "cannot create the data directory"),
    ];
    for (flags, settings, wanted) in cases {
        fs::write(site.config(), settings).unwrap();
        for command in [&["serve"][..], &["serve", "--check"], &["doctor"]] {
            let args = [command, &["--config", &config], flags].concat();
            let done = within_time(&args).output().unwrap();
            let said = stdout(&done) + &stderr(&done);
            assert_eq!(done.status.code(), Some(1), "{args:?}: {said}");
            assert!(said.contains(wanted), "{args:?}: {said}");
        }
    }
    assert!(!Path::new(&data).join("journal").exists(), "nothing was opened");
}

/// Each file is either empty, as a crash may leave it, or damaged.
#[test]
fn serve_the_doctor_and_verify_name_an_unreadable_file_and_its_remedy() {
    let site = Site::new(vec![Pool::new(1, 5, LONG)], "shards = 1");
    Server::start(site.serve(&[])).stop();
    let (config, data) = (text(&site.config()), text(site.data()));
    for name in ["identity.json", "unflushed.json", "gaps.json", "lifetimes.json", "site-secret"] {
        let path = site.data().join(name);
        let before = fs::read(&path).ok();
        for broken in ["", "{"] {
            fs::write(&path, broken).unwrap();
            let mut commands =
                vec![vec!["journal", "verify", &data], vec!["doctor", "--config", &config]];
            if name != "site-secret" {
                commands.push(vec!["serve", "--config", &config]);
            }
            for args in commands {
                let done = within_time(&args).output().unwrap();
                let said = stdout(&done) + &stderr(&done);
                assert_eq!(done.status.code(), Some(1), "{args:?}: {said}");
                let path = text(&path);
                let remedies = [format!("`mv {path} {path}.bad`"), format!("`rm {path}`")];
                assert!(remedies.iter().any(|it| said.contains(it)), "{args:?}: {said}");
            }
        }
        match before {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
    // After the advice in the error message has been followed, the server starts.
    let path = site.data().join("identity.json");
    fs::write(&path, "").unwrap();
    fs::rename(&path, site.data().join("identity.json.bad")).unwrap();
    let server = Server::start(site.serve(&["--restored"]));
    assert!(batch::one(&mut server.client(), &site.pools[0], "after").overflow);
    server.stop();
}

#[test]
fn a_proxys_configuration_needs_no_data_directory() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let deploy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/cluster.toml");
    fs::write(
        path("ringwell.toml"),
        "deadline = \"80ms\"\n[[ring_pool]]\nid = 1\nring_pool_key = \"key-of-pool-1\"\n\
         lifetime = \"30m\"\nnumbers = [\"8885550100-8885550109\"]\nallow_overflow = false\n",
    )
    .unwrap();
    let config = text(&path("ringwell.toml"));
    let output = run(&["haproxy", "--cluster", deploy, "--config", &config]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn a_plan_without_a_load_is_a_usage_error_as_for_every_other_command() {
    for words in ["plan", "plan --target 0 --load 5", "plan --load 5 --numbers 0"] {
        let output = ringwell(&words.split(' ').collect::<Vec<_>>()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(["--load", "--target", "0 numbers"].iter().any(|it| said.contains(it)), "{said}");
    }
}

#[test]
fn a_doctor_beside_a_healthy_server_finds_all_its_listeners_healthy() {
    let ports: Vec<TcpListener> =
        (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let [listen, pages, calls]: [String; 3] =
        std::array::from_fn(|place| ports[place].local_addr().unwrap().to_string());
    drop(ports);
    let more = format!("[sites]\nlisten = [\"{pages}\"]\n[calls]\nlisten = \"{calls}\"\n");
    let site = Site::new(vec![Pool::new(16, 10, LONG)], &more);
    let config = text(&site.config());
    let settings = fs::read_to_string(&config).unwrap();
    fs::write(&config, settings.replacen("127.0.0.1:0", &listen, 1)).unwrap();
    let server = Server::start(site.serve(&[]));
    server.says("\"calls\"");
    let beside = run(&["doctor", "--config", &config]);
    let said = stdout(&beside);
    assert!(said.contains(&format!("{listen} is in use by the running ringwell")), "{said}");
    for address in [&pages, &calls] {
        let wanted = format!("{address} is in use by the running server");
        assert!(said.contains(&wanted), "{said}");
    }
    assert!(!said.contains("bad   port"), "{said}");
    // With another data directory, `doctor` must not assume that this server uses the addresses.
    let other = text(&site.config().with_file_name("other-data"));
    let taken = stdout(&run(&["doctor", "--config", &config, "--data", &other]));
    for address in [&listen, &pages, &calls] {
        assert!(taken.contains(&format!("bad   port       {address} is in use")), "{taken}");
    }
    let nowhere = run(&["ui", "--url", "http://127.0.0.1:9"]);
    assert!(stderr(&nowhere).contains("needs management.dashboard = true"), "{nowhere:?}");
    server.stop();
    // The program at this address is not a Ringwell server.
    let _other = TcpListener::bind(&calls).unwrap();
    let taken = stdout(&run(&["doctor", "--config", &config]));
    assert!(taken.contains(&format!("bad   port       {calls} is in use")), "{taken}");
}

#[test]
fn a_doctor_without_a_configuration_checks_the_given_data_directory() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let data = text(&file.join("data"));
    let output = ringwell(&["doctor", "--data", &data]).env_remove("RINGWELL_CONFIG").output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("Not a directory"), "{}", stdout(&output));
    let busy = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let free = ringwell(&["doctor", "--listen", &busy]).env_remove("RINGWELL_CONFIG").output();
    let free = stdout(&free.unwrap());
    assert!(free.contains(&format!("{busy} is free")), "{free}");
}

/// If they were accepted, these values would make each database connection or the first call fail.
#[test]
fn the_check_and_the_doctor_find_values_that_only_a_start_would_refuse() {
    let site = Site::new(vec![Pool::new(1, 5, LONG)], "");
    let config = text(&site.config());
    let good = fs::read_to_string(site.config()).unwrap();
    let database = |url: &str| format!("{good}[directory]\ndatabase = \"postgres://{url}\"\n");
    let zone = "[calls]\n[[calls.destination]]\nto = [\"+18005550199\"]\n\
                time_zone = \"Europe/Nowhere\"\n";
    for (settings, field, wanted) in [
        (database("u:p@S3CR:w/o@127.0.0.1:1/x"), "directory.database", "percent-encode"),
        (database("u:S3CR@127.0.0.1:1/x?sslpassword=S3CR"), "directory.database", "sslpassword"),
        (database("u:S3CR@127.0.0.1:1/x?passwrd=S3CR"), "directory.database", "passwrd"),
        (format!("{good}{zone}"), "calls.destination[0].time_zone", "no time zone Europe/Nowhere"),
    ] {
        fs::write(site.config(), settings).unwrap();
        for command in [&["serve"][..], &["serve", "--check"], &["doctor"]] {
            let done = within_time(&[command, &["--config", &config]].concat()).output().unwrap();
            let said = stdout(&done) + &stderr(&done);
            assert!(![Some(0), Some(124)].contains(&done.status.code()), "{command:?}: {said}");
            assert!(said.contains(field) && said.contains(wanted), "{command:?}: {said}");
            assert!(!said.contains("S3CR"), "{command:?}: {said}");
        }
    }
}

/// The data directory may be given on the command line instead of in the configuration.
#[test]
fn configurations_without_data_can_be_examined_and_simulated() {
    let site = Site::new(vec![Pool::new(1, 5, LONG)], "");
    let all = fs::read_to_string(site.config()).unwrap();
    let is_data = |line: &&str| line.trim_start().starts_with("data =");
    let without: Vec<&str> = all.lines().filter(|line| !is_data(line)).collect();
    assert_eq!(without.len() + 1, all.lines().count(), "{all}");
    fs::write(site.config(), without.join("\n")).unwrap();
    let config = text(&site.config());
    let data = text(site.data());
    let said = stdout(&run(&["doctor", "engine", "--config", &config, "--data", &data]));
    assert!(said.contains("there are no servers to check"), "{said}");
    let log = site.config().with_file_name("access.log");
    let view = "1.2.3.4 - - [28/Mar/2026:00:00:01 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"x\"\n";
    fs::write(&log, view).unwrap();
    let done = run(&["simulate", "--site-log", &text(&log), "--config", &config]);
    assert!(done.status.success(), "{}", stderr(&done));
}

#[test]
fn small_mistakes_are_named() {
    use std::os::unix::ffi::OsStrExt as _;

    let site = Site::new(vec![Pool::new(16, 10, LONG)], "");
    let folder = site.config().parent().unwrap().to_owned();
    let no_text = std::ffi::OsStr::from_bytes(b"/tmp/\xff");
    let output = site.serve(&["--check"]).env("RINGWELL_DATA", no_text).output().unwrap();
    assert!(!output.status.success());
    assert!(stderr(&output).contains("RINGWELL_DATA is not UTF-8"), "{}", stderr(&output));

    let output = run(&["top", "--url", "http://root:planted@127.0.0.1:8080"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("not shown") && !said.contains("planted"), "{said}");

    let plain = folder.join("plain");
    fs::write(&plain, "").unwrap();
    let listen = format!("unix:{}", plain.display());
    let output = site.serve(&["--listen", &listen]).output().unwrap();
    assert!(
        stderr(&output).contains("not a socket already exists at that path"),
        "{}",
        stderr(&output)
    );
    assert!(plain.is_file());

    let output = run(&["check", &text(&plain)]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stderr(&output).contains("nothing can be judged"), "{}", stderr(&output));

    if !cfg!(feature = "nats") {
        let config = text(&site.config());
        let settings = fs::read_to_string(&config).unwrap();
        let engine = "journal.engine = \"nats\"\njournal.servers = [\"nats://127.0.0.1:4222\"]\n\
            journal.monitor = [\"http://127.0.0.1:8222\"]\n";
        fs::write(&config, engine.to_owned() + &settings).unwrap();
        let output = site.serve(&["--check"]).output().unwrap();
        assert!(!output.status.success(), "{}", stdout(&output));
        assert!(stderr(&output).contains("require the feature `nats`"), "{}", stderr(&output));
    }
}

/// A running demo on separate ports. Killed when dropped.
struct Demo {
    child: Child,
    /// The introduction that the demo printed.
    said: String,
}

impl Demo {
    fn start(data: &Path) -> Self {
        let args = ["demo", "--listen", "127.0.0.1:0", "--durability", "memory", "--shards", "1"];
        let mut command = ringwell(&args);
        command.arg("--data").arg(data).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let lines: Vec<_> = lines.take_while(|line| line != "Ctrl-C stops the demo.").collect();
        Self { child, said: lines.join("\n") }
    }

    /// Runs the introduction's command that contains `text`, with the additional arguments `more`.
    fn run(&self, text: &str, more: &str) -> Output {
        let line = self.said.lines().find(|line| line.contains(text));
        let line = line.unwrap_or_else(|| panic!("no {text:?} in {}", self.said));
        Command::new("sh").args(["-c", &format!("{line} {more}")]).output().unwrap()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_demo_prints_a_command_that_calls_its_number() {
    let folder = TempDir::new().unwrap();
    let demo = Demo::start(&folder.path().join("demo's data"));
    let allocated = demo.run("/bulk.json", "-s");
    assert!(stdout(&allocated).contains("2000000000"), "{allocated:?}");
    let called = demo.run(" call --config ", "--answer-after 50ms --talk 1s");
    assert_eq!(called.status.code(), Some(0), "{called:?}");
    assert!(stdout(&called).contains("ended after a conversation of 1 s"), "{called:?}");
    let cut = demo.run(" call --config ", "--answer-after 50ms --talk 1s | true");
    assert_eq!(stderr(&cut), "", "{cut:?}");
    let shown = demo.run("/v1/attributions", "-s");
    assert!(stdout(&shown).contains("ford"), "{shown:?}");
}

#[test]
fn a_demo_says_which_of_its_usual_addresses_are_busy() {
    let folder = TempDir::new().unwrap();
    // Demos in other tests use these addresses for a few seconds, but other programs may use them
    // indefinitely.
    let until = Instant::now() + Duration::from_secs(30);
    let bind = |port: u16| loop {
        match TcpListener::bind(("127.0.0.1", port)) {
            Err(_) if Instant::now() < until => thread::sleep(Duration::from_millis(50)),
            bound => return bound,
        }
    };
    let _busy = [8081, 8082, 8090].map(bind);
    let Demo { said, .. } = &Demo::start(folder.path());
    for (name, address) in
        [("dashboard", "127.0.0.1:8081"), ("shop", "127.0.0.1:8082"), ("calls", "127.0.0.1:8090")]
    {
        let note = format!("{address} ({name}) is in use by another program: 127.0.0.1:");
        assert!(said.contains(&note), "{said}");
        assert!(said.contains(&format!(" {name} 127.0.0.1:")), "{said}");
    }
    assert!(said.contains("1 more pool for the load that the shop's page creates"), "{said}");
}

#[test]
fn a_destination_for_a_missing_ring_pool_and_a_pool_without_one_are_reported() {
    let settings = "[calls]\nlisten = \"127.0.0.1:0\"\n[[calls.destination]]\n\
                    ring_pools = [1, 16]\nto = [\"+18005550199\"]\n";
    let numbers = "[[calls.destination]]\nnumbers = [\"+12000300000\"]\nto = [\"+18005550199\"]\n";
    let pools = [1, 2, 3].map(|id| Pool::new(id, 5, LONG));
    let site = Site::new(pools.into(), &format!("{settings}{numbers}"));
    let config = text(&site.config());
    let wanted = "calls.destination: ring_pools names pools that do not exist: 16;";
    let checked = run(&["serve", "--check", "--config", &config]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let without = "no destination applies to numbers of the ring pools 2, 3: calls to these";
    assert!(stderr(&checked).contains(wanted), "{checked:?}");
    assert!(stderr(&checked).contains(without), "{checked:?}");
    let examined = run(&["doctor", "--config", &config]);
    assert!(stdout(&examined).contains(wanted), "{examined:?}");
    assert!(stdout(&examined).contains(without), "{examined:?}");
    let server = Server::start(site.serve(&[]));
    server.says(wanted);
    server.says(without);
    // If pools are in a database, they may be created later, so there is no warning.
    let file = fs::read_to_string(&config).unwrap();
    let database = "[directory]\ndatabase = \"sqlite:directory.sqlite\"\n";
    fs::write(&config, format!("{file}{database}")).unwrap();
    let checked = run(&["serve", "--check", "--config", &config]);
    assert_eq!(stderr(&checked), "");
}
