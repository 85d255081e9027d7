//! Journals in streams on real nats-servers. While `ringwell load` sends batches to Ringwell, the
//! nats-servers are killed and paused, and several Ringwell processes share them. `ringwell check`
//! judges the history afterwards: no number may be handed out twice within its lockout, and no
//! answered allocation may be lost.
//!
//! Without a nats-server, the tests print a message and end. `cargo xtask engine` installs one.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "engine/bars.rs"]
mod bars;
#[path = "engine/disks.rs"]
mod disks;
#[path = "engine/drills.rs"]
mod drills;
#[path = "engine/hostile.rs"]
mod hostile;
#[path = "engine/losses.rs"]
mod losses;
#[path = "hostile/metrics.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod metrics;
#[path = "engine/net.rs"]
mod net;
#[path = "engine/nodes.rs"]
mod nodes;
#[path = "engine/partitions.rs"]
mod partitions;
#[path = "engine/servers.rs"]
mod servers;
mod support;
#[path = "faults/trial.rs"]
#[allow(dead_code, reason = "faults use the rest")]
mod trial;
#[path = "engine/waiting.rs"]
mod waiting;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use servers::Nats;
use support::server::{Server, ringwell};
use tempfile::TempDir;
use trial::{Trial, wait_until};

/// Creates a trial whose journals are on these servers.
fn trial(nats: &Nats) -> Trial {
    Trial::new(&nats.settings())
}

/// Starts another process for the trial's shards, with a data directory of its own.
fn other(trial: &Trial, name: &str) -> Server {
    let mut command = trial.site.serve(&["--listen", "127.0.0.1:0"]);
    command.env("RINGWELL_DATA", trial.site.data().with_file_name(name));
    Server::start(command)
}

/// Returns the command that starts another process, as [`other`] does, but on a Unix socket. All
/// hosts of the test's network can reach the socket.
fn other_on(trial: &Trial, name: &str) -> Command {
    let socket = trial.site.data().with_file_name(format!("{name}.socket"));
    let mut command = trial.site.serve(&["--listen", &format!("unix:{}", socket.display())]);
    command.env("RINGWELL_DATA", trial.site.data().with_file_name(name));
    command
}

fn readiness(server: &Server) -> (u16, String) {
    let answer = server.client().get("/readyz", &[]).unwrap();
    (answer.status, answer.body)
}

/// Returns the largest value of a metric over all shards.
fn metric(server: &Server, name: &str) -> u64 {
    let page = server.client().get("/metrics", &[]).unwrap().body;
    let values = page.lines().filter_map(|line| line.strip_prefix(name)?.split_once("} "));
    values.map(|(_, value)| value.parse().unwrap()).max().unwrap()
}

/// Returns the count of rows that got overflow numbers because the nats-servers were slow.
fn rows_without_a_log(server: &Server) -> u64 {
    metrics::labelled(server, "ringwell_overflow_rows_total", "journal_waits")
}

/// Repeatedly kills the server and starts it again, alternately with its data and without data, as
/// on another machine.
fn kill_and_start(nats: &Nats) {
    let mut trial = trial(nats);
    let mut server = trial.start();
    trial.load(&server);
    let mut without_a_log = 0;
    for round in 0..4 {
        without_a_log += rows_without_a_log(&server);
        trial.fault("kill -9");
        server.kill();
        if round % 2 == 1 {
            fs::remove_dir_all(trial.site.data()).unwrap();
        }
        let begun = Instant::now();
        server = trial.start();
        trial.wait_for_numbers(&server);
        println!("round {round}: numbers after {:?}", begun.elapsed());
        trial.wait_for_answers(30);
    }
    without_a_log += rows_without_a_log(&server);
    let verdict = trial.judge(&server);
    if without_a_log == 0 {
        verdict.assert_clean();
    } else {
        // Some rows overflowed because the machine is busy with other work. The checker does not
        // accept this as a reason for overflow.
        println!("{without_a_log} rows did not wait for the servers");
        verdict.assert_clean_but_for_overflow();
    }
    server.stop();
}

#[test]
fn a_killed_node_continues_from_the_stream_of_one_server() {
    let Some(nats) = Nats::start(1) else { return };
    kill_and_start(&nats);
}

#[test]
fn a_killed_node_continues_from_the_stream_of_three_servers() {
    let Some(nats) = Nats::start(3) else { return };
    kill_and_start(&nats);
}

#[test]
fn a_second_process_of_the_same_shards_fences_the_first() {
    let Some(nats) = Nats::start(3) else { return };
    let mut trial = trial(&nats);
    let first = trial.start();
    trial.load(&first);
    trial.fault("another process takes over the shards");
    let second = other(&trial, "second");
    trial.load(&second);
    first.says("another process serves this shard");
    trial.wait_for_overflow(&first);
    wait_until("not both shards are taken", || {
        readiness(&first).1.contains(r#""journals":["taken","taken"]"#)
    });
    assert_eq!(readiness(&first).0, 503);
    assert_eq!(readiness(&second).0, 200);
    trial.wait_for_answers(50);
    trial.judge_with(&second, &trial.site.data().with_file_name("second")).assert_clean();
    first.kill();
    second.stop();
}

/// A shard without rows appends its first record after 5 s, the next one 10 s later, and the next
/// one 20 s later. Between these appends, the process cannot detect from a failed append that the
/// shard is fenced. It must detect this in another way, so that load balancers send no rows to it.
#[test]
fn an_idle_process_that_is_fenced_is_not_ready() {
    let Some(nats) = Nats::start(3) else { return };
    let trial = trial(&nats);
    let first = trial.start();
    std::thread::sleep(Duration::from_millis(16_500));
    assert_eq!(readiness(&first).0, 200);
    let second = other(&trial, "second");
    let until = Instant::now() + Duration::from_secs(6);
    while readiness(&first).0 == 200 {
        assert!(Instant::now() < until, "the fenced process is ready");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(readiness(&second).0, 200);
    first.kill();
    second.stop();
}

#[test]
fn a_paused_owner_finds_itself_fenced() {
    let Some(nats) = Nats::start(3) else { return };
    let mut trial = trial(&nats);
    let first = trial.start();
    trial.load(&first);
    trial.fault("kill -STOP, and another process takes over the shards");
    first.signal("STOP");
    let second = other(&trial, "second");
    trial.load(&second);
    thread::sleep(Duration::from_secs(5));
    first.signal("CONT");
    first.says("another process serves this shard");
    trial.wait_for_overflow(&first);
    trial.wait_for_answers(50);
    trial.judge_with(&second, &trial.site.data().with_file_name("second")).assert_clean();
    first.kill();
    second.stop();
}

/// Like [`other`], but the process waits while another process serves. Returns a thread that waits
/// for the server. The thread's result is the server and the time when it began to serve.
fn standby(trial: &Trial, name: &str) -> thread::JoinHandle<(Server, Instant)> {
    let mut command = trial.site.serve(&["--listen", "127.0.0.1:0"]);
    command.env("RINGWELL_DATA", trial.site.data().with_file_name(name));
    thread::spawn(|| (Server::start(command), Instant::now()))
}

#[test]
fn a_standby_takes_over_from_a_killed_owner_within_five_seconds() {
    let Some(nats) = Nats::start(3) else { return };
    let mut trial = Trial::new(&format!("{}journal.standby = true\n", nats.settings()));
    let first = trial.start();
    trial.load(&first);
    let waiting = standby(&trial, "second");
    thread::sleep(Duration::from_secs(6));
    assert!(!waiting.is_finished(), "the owner lives");
    trial.fault("kill -9, and a standby takes over");
    let killed = Instant::now();
    first.kill();
    let (second, _) = waiting.join().unwrap();
    trial.wait_for_numbers(&second);
    println!("numbers {:?} after the owner's end", killed.elapsed());
    // A standby begins to take over after 3 to 4 s without heartbeats. The additional time allows
    // for a busy machine.
    assert!(killed.elapsed() < Duration::from_secs(8), "{:?}", killed.elapsed());
    trial.load(&second);
    trial.wait_for_answers_of_new(50);
    trial.judge_with(&second, &trial.site.data().with_file_name("second")).assert_clean();
    second.stop();
}

#[test]
fn while_the_servers_are_down_rows_overflow_at_once_and_numbers_are_allocated_again_afterwards() {
    let Some(nats) = Nats::start(3) else { return };
    let mut trial = trial(&nats);
    let server = trial.start();
    trial.load(&server);
    trial.fault("all servers of the journal are paused");
    nats.signal_all("STOP");
    wait_until("it is still ready", || readiness(&server).0 == 503);
    trial.wait_for_overflow(&server);
    assert!(readiness(&server).1.contains("waiting"), "{}", readiness(&server).1);
    let reasons = server.client().get("/readyz", &[]).unwrap().json()["reasons"].clone();
    assert_eq!((&reasons[0]["shard"], &reasons[0]["state"]), (&0.into(), &"waiting".into()));
    let reason = reasons[0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("group ") && reason.ends_with("is not stored yet"), "{reason}");
    assert!(metric(&server, "ringwell_journal_trouble_seconds") > 0, "{reasons}");
    assert_eq!(metric(&server, "ringwell_journal_state"), 3);
    server.says("two of three must run");
    server.says("nats://127.0.0.1:");
    let begun = Instant::now();
    trial.overflow(&mut server.client(), "at once");
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    thread::sleep(Duration::from_secs(5));
    nats.signal_all("CONT");
    let begun = Instant::now();
    trial.wait_for_numbers(&server);
    println!("numbers {:?} after the servers' return", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(readiness(&server).0, 200);
    assert!(readiness(&server).1.contains(r#""reasons":[]"#), "{}", readiness(&server).1);
    assert_eq!(metric(&server, "ringwell_journal_trouble_seconds"), 0);
    trial.wait_for_answers(30);
    trial.judge(&server).assert_clean();
    server.stop();
}

#[test]
fn the_leader_of_a_stream_may_be_killed() {
    let Some(mut nats) = Nats::start(3) else { return };
    let mut trial = trial(&nats);
    let server = trial.start();
    trial.load(&server);
    for _ in 0..2 {
        trial.fault("kill -9 of a stream's leader");
        let killed = nats.kill_leader("RINGWELL_0");
        let begun = Instant::now();
        trial.wait_for_numbers(&server);
        println!("numbers {:?} after the leader's end", begun.elapsed());
        nats.restart(killed);
        trial.wait_for_answers(30);
    }
    trial.judge(&server).assert_clean();
    server.stop();
}

#[test]
fn everything_may_be_killed_at_once() {
    let Some(mut nats) = Nats::start(3) else { return };
    let mut trial = trial(&nats);
    let server = trial.start();
    trial.load(&server);
    trial.fault("kill -9 of the node and of all servers");
    server.kill();
    nats.kill_all();
    (0..3).for_each(|index| nats.restart(index));
    let server = trial.start();
    trial.wait_for_numbers(&server);
    trial.wait_for_answers(30);
    trial.judge(&server).assert_clean();
    server.stop();
}

#[test]
fn a_stream_is_trimmed_and_a_machine_without_data_starts_from_a_snapshot() {
    let Some(nats) = Nats::start(3) else { return };
    let small = nats.settings().replace("512MiB", "8MiB");
    let mut trial = Trial::new(&small);
    let first = trial.start();
    trial.load(&first);
    // Records a fault, because rows may overflow: the load is so heavy that storing a group may
    // take 250 ms on a busy machine.
    trial.fault("streams are filled and trimmed");
    wait_until("a stream is not trimmed", || {
        let stream = nats.first_and_bytes("RINGWELL_0");
        assert!(stream.1 < 8 << 20, "{stream:?}");
        stream.0 > 1
    });
    trial.fault("kill -9, and another machine takes over");
    first.kill();
    let killed = Instant::now();
    fs::remove_dir_all(trial.site.data()).unwrap();
    let second = trial.start();
    trial.wait_for_numbers(&second);
    println!("numbers {:?} after the end", killed.elapsed());
    second.says("took over the shard");
    second.says(r#""snapshot":true"#);
    trial.wait_for_answers(30);
    // The verdict includes look-ups of older rows, which the server must read from the log.
    trial.judge(&second).assert_clean();
    second.stop();
}

/// A public NATS key for tests, and the seed from which its private key is derived.
const KEY: &str = "UBA4BEDKVYKOHQ5QWOAIENXSLELMAYCNR5E7244YXAFZNYWKHODB7WZQ";
const SEED: &str = "SUAHSF33Y2OG753LVUBXBOOZQDZE5KQ5VCSZB44ATQFI5AVLZ3MLSKZJNM";

/// Creates a self-signed certificate for this machine. Returns the paths of the certificate and its
/// key.
fn certificate(folder: &Path) -> [PathBuf; 2] {
    let [certificate, key] = ["server.pem", "server.key"].map(|name| folder.join(name));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    [certificate, key]
}

#[test]
fn servers_with_tls_and_a_key_accept_its_holder_and_refuse_all_others() {
    let folder = TempDir::new().unwrap();
    let [certificate, key] = certificate(folder.path());
    let guard = format!(
        "tls {{ cert_file: {certificate:?}, key_file: {key:?} }}\n\
         authorization {{ users: [ {{ nkey: {KEY} }} ] }}\n"
    );
    let Some(nats) = Nats::start_guarded(1, &guard) else { return };
    let seed = folder.path().join("seed");
    let settings = format!(
        "{}journal.authority = {certificate:?}\njournal.credentials = {seed:?}\n",
        nats.settings()
    );
    fs::write(&seed, format!("{SEED}\n")).unwrap();
    let trial = Trial::new(&settings);
    let server = trial.start();
    trial.wait_for_numbers(&server);
    server.stop();
    // Checks that the nats-server refuses a wrong key, and a client without a key.
    fs::write(&seed, "SUAMAM7HWGBBATCEGRWXND7MJVXC4LDGT3OBBMLXG37QXW4EBVADRTXCTA\n").unwrap();
    assert!(doctor(&trial).contains("cannot be reached"), "{}", doctor(&trial));
    let open = Trial::new(&nats.settings());
    assert!(doctor(&open).contains("cannot be reached"), "{}", doctor(&open));
}

/// Returns the output of `ringwell doctor engine`.
fn doctor(trial: &Trial) -> String {
    let mut command = ringwell(&["doctor", "engine", "--config"]);
    let output = command.arg(trial.site.config()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_doctor_sees_servers_and_streams() {
    let Some(mut nats) = Nats::start(3) else { return };
    let trial = trial(&nats);
    let text = doctor(&trial);
    assert!(text.contains("3 servers have a tested version and flush each message"), "{text}");
    assert!(text.contains("RINGWELL_0 will be created at the first start"), "{text}");
    assert!(text.contains("the servers' clocks differ from this machine's by"), "{text}");
    assert!(text.contains("this client has all permissions that it needs"), "{text}");
    assert!(text.contains("anyone who can reach the NATS servers can publish"), "{text}");
    trial.start().stop();
    nats.publish("ringwell_0.groups", "not a group");
    trial.start().stop();
    let text = doctor(&trial);
    assert!(text.contains("stream RINGWELL_1: led by n"), "{text}");
    assert!(text.contains("RINGWELL_0 has 1 messages from another program"), "{text}");
    nats.kill_all();
    assert!(doctor(&trial).contains("cannot be reached"), "{}", doctor(&trial));
}

#[test]
fn the_doctor_names_permissions_that_are_missing() {
    let guard = format!(
        "authorization {{ users: [ {{ nkey: {KEY}, permissions: {{\n\
         publish: {{ deny: [\"$JS.API.STREAM.PURGE.>\"] }} }} }} ] }}\n"
    );
    let Some(nats) = Nats::start_guarded(1, &guard) else { return };
    let folder = TempDir::new().unwrap();
    let seed = folder.path().join("seed");
    fs::write(&seed, SEED).unwrap();
    let trial = Trial::new(&format!("{}journal.credentials = {seed:?}\n", nats.settings()));
    let text = doctor(&trial);
    assert!(text.contains("publish $JS.API.STREAM.PURGE.RINGWELL_0"), "{text}");
    assert!(!text.contains("anyone who can reach"), "{text}");
}

#[test]
fn servers_that_do_not_flush_are_refused() {
    let Some(nats) = Nats::start_with(1, "sync_interval: \"2m\"") else { return };
    let trial = trial(&nats);
    let refused = Server::try_start(trial.serve()).unwrap_err();
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.contains("sync_interval: always"), "{}", refused.log);
    assert!(doctor(&trial).contains("sync_interval: always"));
}
