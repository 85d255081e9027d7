//! Drills: repeated kills, lost quorums, wrong clocks, upgrades, and machines without data that
//! take over large pools.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::other;
use crate::servers::Nats;
use crate::support::batch::{self, Ask, BULK};
use crate::support::server::Server;
use crate::support::site::{Pool, Site};
use crate::support::wall::Wall;
use crate::trial::{Trial, wait_until};

const STREAM: &str = "RINGWELL_0";

/// The variable that sets the number of rounds of each kind of kill. If it is set, the strict time
/// limits apply, and the machine must be otherwise idle.
const ROUNDS: &str = "RINGWELL_ENGINE_ROUNDS";

/// Used if the variable is not set: the number of rounds, and the factor that extends the time
/// limits for a busy machine.
const FEW: u32 = 2;
const BUSY: u32 = 4;

/// The measured times until all pools hand out numbers again, and the limit for these times.
struct Bar {
    what: &'static str,
    most: Duration,
    took: Vec<Duration>,
}

impl Bar {
    fn new(what: &'static str, seconds: u64) -> Self {
        Self { what, most: Duration::from_secs(seconds), took: Vec::new() }
    }

    fn add(&mut self, took: Duration) {
        println!("{}: numbers after {took:?}", self.what);
        self.took.push(took);
    }

    fn assert_kept(&mut self) {
        self.took.sort_unstable();
        let (rounds, worst) = (self.took.len(), self.took[self.took.len() - 1]);
        let median = self.took[rounds / 2];
        let most = self.most;
        println!(
            "{}: {rounds} rounds, median {median:.1?}, worst {worst:.1?}, bar {most:?}",
            self.what
        );
        let allowed = if std::env::var_os(ROUNDS).is_some() { most } else { most * BUSY };
        assert!(worst <= allowed, "{}: {worst:?}", self.what);
    }
}

fn rounds() -> u32 {
    std::env::var(ROUNDS).ok().map_or(FEW, |text| text.parse().unwrap())
}

/// Starts a standby with its own data directory, at the same address as the serving process.
fn standby(trial: &Trial, round: u32) -> JoinHandle<Server> {
    let command = on_machine(trial, round % 2);
    thread::spawn(|| Server::start(command))
}

fn on_machine(trial: &Trial, machine: u32) -> Command {
    let mut command = trial.serve();
    command.env("RINGWELL_DATA", trial.site.data().with_file_name(format!("machine{machine}")));
    command
}

/// Kills the owner in each round. If `with_leader`, also kills the leader of a stream.
fn kill_owners(with_leader: bool, mut bar: Bar) {
    let Some(mut nats) = Nats::start(3) else { return };
    let mut trial = Trial::new(&format!("{}journal.standby = true\n", nats.settings()));
    let mut server = Server::start(on_machine(&trial, 0));
    trial.load(&server);
    for round in 1..=rounds() {
        let waiting = standby(&trial, round);
        thread::sleep(Duration::from_secs(2));
        trial.fault(bar.what);
        let begun = Instant::now();
        let killed = with_leader.then(|| nats.kill_leader(STREAM));
        server.kill();
        server = waiting.join().unwrap();
        trial.wait_for_numbers(&server);
        bar.add(begun.elapsed());
        if let Some(killed) = killed {
            nats.restart(killed);
        }
        trial.wait_for_answers(20);
    }
    let data = trial.site.data().with_file_name(format!("machine{}", rounds() % 2));
    trial.judge_with(&server, &data).assert_clean();
    server.stop();
    bar.assert_kept();
}

#[test]
fn owners_are_killed_round_after_round() {
    kill_owners(false, Bar::new("kill -9 of the owner", 5));
}

#[test]
fn owners_are_killed_together_with_leaders_round_after_round() {
    kill_owners(true, Bar::new("kill -9 of the owner and of a stream's leader", 12));
}

#[test]
fn leaders_are_killed_round_after_round() {
    let Some(mut nats) = Nats::start(3) else { return };
    let mut trial = Trial::new(&nats.settings());
    let server = trial.start();
    trial.load(&server);
    let mut bar = Bar::new("kill -9 of a stream's leader", 10);
    for _ in 0..rounds() {
        trial.fault(bar.what);
        let killed = nats.kill_leader(STREAM);
        let begun = Instant::now();
        trial.wait_for_numbers(&server);
        bar.add(begun.elapsed());
        nats.restart(killed);
        trial.wait_for_answers(20);
    }
    trial.judge(&server).assert_clean();
    server.stop();
    bar.assert_kept();
}

#[test]
fn without_a_quorum_for_a_minute_rows_overflow_and_then_get_numbers() {
    let Some(mut nats) = Nats::start(3) else { return };
    let mut trial = Trial::new(&nats.settings());
    let server = trial.start();
    trial.load(&server);
    trial.fault("two of three servers are killed, and are back after a minute");
    let lost = nats.leader(STREAM);
    let killed = [lost, (lost + 1) % 3];
    for index in killed {
        nats.kill(index);
    }
    let begun = Instant::now();
    trial.wait_for_overflow(&server);
    let mut client = server.client();
    while begun.elapsed() < Duration::from_mins(1) {
        let asked = Instant::now();
        assert_eq!(trial.overflow(&mut client, "no quorum"), trial.site.pools.len());
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        thread::sleep(Duration::from_millis(500));
    }
    for index in killed {
        nats.restart(index);
    }
    let mut bar = Bar::new("quorum back after a minute", 10);
    let begun = Instant::now();
    trial.wait_for_numbers(&server);
    bar.add(begun.elapsed());
    trial.wait_for_answers(30);
    trial.judge(&server).assert_clean();
    server.stop();
    bar.assert_kept();
}

const TEN_MINUTES: i64 = 600;

#[test]
fn clocks_of_owner_and_standby_may_differ_by_twenty_minutes() {
    let Some(nats) = Nats::start(3) else { return };
    let mut trial = Trial::new(&format!("{}journal.standby = true\n", nats.settings()));
    let place = |name: &str| trial.site.config().with_extension(name);
    let (Some(behind), Some(ahead)) = (Wall::new(place("behind")), Wall::new(place("ahead")))
    else {
        return;
    };
    behind.set(-TEN_MINUTES);
    ahead.set(TEN_MINUTES);
    let walls = [behind, ahead];
    let start = |trial: &Trial, machine: usize| {
        let command = on_machine(trial, u32::try_from(machine).unwrap());
        let command = walls[machine].shown_to(command);
        thread::spawn(|| Server::start(command))
    };
    let mut server = start(&trial, 0).join().unwrap();
    trial.load(&server);
    // The last process runs on the first machine, whose copy of the log contains all groups. If the
    // copy began with a later group, the checker would need the time from which the copy is
    // complete. With this test's wrong clocks, that time would be wrong.
    for round in 1..=4_usize {
        let waiting = start(&trial, round % 2);
        // Waits long enough for the standby to receive a heartbeat.
        thread::sleep(Duration::from_secs(3));
        trial.fault("kill -9, and a machine whose clock differs by 20 minutes takes over");
        server.kill();
        server = waiting.join().unwrap();
        trial.wait_for_numbers(&server);
        trial.wait_for_answers(60);
        // This time, the clock changes while the process serves.
        trial.unnoticed();
        let sign = if round % 2 == 0 { 1 } else { -1 };
        walls[round % 2].set(sign * TEN_MINUTES);
        trial.wait_for_answers(60);
        walls[round % 2].set(-sign * TEN_MINUTES);
        trial.wait_for_answers(60);
    }
    let data = trial.site.data().with_file_name("machine0");
    for wall in &walls {
        wall.set(0);
    }
    trial.judge_with(&server, &data).assert_clean();
    server.stop();
}

#[test]
fn a_node_starts_while_one_of_three_servers_is_down() {
    let Some(mut nats) = Nats::start(3) else { return };
    let trial = Trial::new(&nats.settings());
    let start = || Server::start(on_machine(&trial, 0));
    let server = start();
    trial.wait_for_numbers(&server);
    server.stop();
    for down in 0..3 {
        nats.kill(down);
        let server = start();
        trial.wait_for_numbers(&server);
        nats.restart(down);
        server.stop();
    }
    nats.kill(0);
    let server = start();
    trial.wait_for_numbers(&server);
    // Running nats-servers do not apply changes to `sync_interval`, so the nats-server that is down
    // must start with the new value.
    nats.reconfigure(|text| text.replace("sync_interval: always", ""));
    nats.restart(0);
    server.says("is back, but must not be used");
    server.stop();
}

/// The variable that names the program of another release. During an upgrade, every second process
/// runs that program.
const OTHER_RELEASE: &str = "RINGWELL_OTHER_RELEASE";

/// Returns `command` with the program of the other release, if there is one.
fn of_other_release(command: Command) -> Command {
    let Some(program) = std::env::var_os(OTHER_RELEASE) else { return command };
    let mut other = Command::new(program);
    other.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

/// If another release of this program is given, upgrades from that release to this one, downgrades,
/// and upgrades again. If another release of nats-server is given, switches the nats-servers to
/// that release and back.
#[test]
fn servers_and_nodes_are_upgraded_one_at_a_time_in_both_orders() {
    let Some(mut nats) = Nats::start(3) else { return };
    let mut trial = Trial::new(&format!("{}journal.standby = true\n", nats.settings()));
    let mut server = Server::start(of_other_release(on_machine(&trial, 0)));
    trial.load(&server);
    trial.fault("everything is started again, one at a time");
    let mut machine = 0;
    for servers_first in [true, false] {
        if servers_first {
            restart_servers(&mut nats, &trial);
        }
        for _ in 0..2 {
            machine = 1 - machine;
            let command = on_machine(&trial, machine);
            let command = if machine == 0 { of_other_release(command) } else { command };
            let waiting = thread::spawn(|| Server::start(command));
            thread::sleep(Duration::from_secs(2));
            server.stop();
            server = waiting.join().unwrap();
            trial.wait_for_numbers(&server);
        }
        if !servers_first {
            restart_servers(&mut nats, &trial);
        }
        trial.wait_for_numbers(&server);
        trial.wait_for_answers(30);
    }
    let data = trial.site.data().with_file_name(format!("machine{machine}"));
    trial.judge_with(&server, &data).assert_clean();
    server.stop();
}

/// Follows the upgrade guide: restarts a nats-server only when all nats-servers are ready.
fn restart_servers(nats: &mut Nats, trial: &Trial) {
    for index in 0..3 {
        nats.stop(index);
        nats.change_release(index);
        trial.wait_for_answers(10);
        nats.restart(index);
    }
}

/// Requests a number from each pool. Checks that the numbers are not in `given`, and adds them to
/// `given`.
fn numbers_of_each(site: &Site, server: &Server, given: &mut BTreeSet<u64>) {
    let ask = |pool: &Pool| Ask { pool: pool.id, id: "large".to_owned() };
    let asks: Vec<Ask> = site.pools.iter().map(ask).collect();
    let (mut client, body) = (server.client(), batch::body(&asks, &site.pools));
    wait_until("a pool gives no number", || {
        let rows = batch::rows(&client.post(BULK, &[], &body).unwrap());
        for row in rows.iter().filter(|row| !row.overflow) {
            assert!(given.insert(row.number), "{} went out before", row.number);
        }
        rows.iter().all(|row| !row.overflow)
    });
}

#[test]
fn a_machine_without_data_takes_over_a_million_numbers() {
    let Some(nats) = Nats::start(3) else { return };
    // `RINGWELL_ENGINE_NUMBERS` sets the count of numbers, rounded up to a multiple of 90,000.
    let wanted = std::env::var("RINGWELL_ENGINE_NUMBERS").ok();
    let wanted: u64 = wanted.map_or(1_000_000, |text| text.parse().unwrap());
    let lockout = Duration::from_mins(30);
    let pools = |per: u64| (1..=wanted.div_ceil(per)).map(move |id| Pool::new(id, per, lockout));
    let site = Site::new(pools(90_000).collect(), &nats.settings());
    let begun = Instant::now();
    let first = Server::start(site.serve(&["--listen", "127.0.0.1:0"]));
    println!("first start of {wanted} numbers: {:?}", begun.elapsed());
    let mut given = BTreeSet::new();
    numbers_of_each(&site, &first, &mut given);
    first.stop();
    fs::remove_dir_all(site.data()).unwrap();
    let begun = Instant::now();
    let second = Server::start(site.serve(&["--listen", "127.0.0.1:0"]));
    numbers_of_each(&site, &second, &mut given);
    println!("numbers {:?} after the start without data", begun.elapsed());
    second.stop();
}

#[test]
fn a_second_process_with_one_nodes_name_fences_the_first_which_returns_to_nothing() {
    let Some(nats) = Nats::start(3) else { return };
    let mut trial = Trial::new(&nats.settings());
    let first = trial.start();
    trial.load(&first);
    trial.fault("a second process of one name, three times");
    let mut servers = vec![first];
    for name in ["second", "third", "fourth"] {
        let next = other(&trial, name);
        let last = &servers[servers.len() - 1];
        trial.wait_for_overflow(last);
        last.says("another process serves this shard");
        servers.push(next);
    }
    let serving = servers.pop().unwrap();
    trial.load(&serving);
    // The processes that served earlier must never hand out a number again.
    for fenced in &servers {
        trial.wait_for_overflow(fenced);
    }
    wait_until("it does not serve", || crate::readiness(&serving).0 == 200);
    let data = trial.site.data().with_file_name("fourth");
    trial.judge_with(&serving, &data).assert_clean();
    servers.into_iter().for_each(Server::kill);
    serving.stop();
}
