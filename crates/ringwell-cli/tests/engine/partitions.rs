//! Networks that fail. Hosts 0 to 2 run the NATS servers, host 3 runs the owner of the shards, and
//! host 4 runs the owner's standby.

use std::thread;
use std::time::{Duration, Instant};

use crate::net::Net;
use crate::other_on;
use crate::servers::{Layout, Nats};
use crate::support::server::Server;
use crate::trial::{Trial, wait_until};

const OWNER: usize = 3;
const STANDBY: usize = 4;
const SERVERS: [usize; 3] = [0, 1, 2];

/// The duration of a partition. It is longer than the time without heartbeats after which a standby
/// takes over, and longer than an election.
const CUT: Duration = Duration::from_secs(15);

fn servers(net: &Net) -> Option<Nats> {
    Nats::start_in(&Layout { net: Some(net), ..Layout::default() })
}

/// Starts an owner under load, and its waiting standby.
fn owner_and_standby(
    net: &Net,
    nats: &Nats,
) -> (Trial, Server, thread::JoinHandle<(Server, Instant)>) {
    let mut trial = Trial::new(&format!("{}journal.standby = true\n", nats.settings()));
    let owner = Server::start(net.on(OWNER, &trial.serve()));
    trial.load(&owner);
    let command = net.on(STANDBY, &other_on(&trial, "second"));
    let waiting = thread::spawn(|| (Server::start(command), Instant::now()));
    thread::sleep(Duration::from_secs(6));
    assert!(!waiting.is_finished(), "the owner lives");
    (trial, owner, waiting)
}

/// Checks that the standby has taken over. Once the network is restored, the owner must detect that
/// the standby serves, and hand out nothing.
fn taken_over(
    net: &Net,
    mut trial: Trial,
    owner: Server,
    waiting: thread::JoinHandle<(Server, Instant)>,
    cut: Instant,
) {
    trial.wait_for_overflow(&owner);
    let (standby, serving) = waiting.join().unwrap();
    println!("the standby serves {:?} after the cut", serving - cut);
    trial.wait_for_numbers(&standby);
    trial.load(&standby);
    trial.wait_for_overflow(&owner);
    thread::sleep(CUT.saturating_sub(cut.elapsed()));
    net.heal();
    owner.says("another process serves this shard");
    trial.wait_for_overflow(&owner);
    trial.wait_for_answers_of_new(50);
    let data = trial.site.data().with_file_name("second");
    trial.judge_with(&standby, &data).assert_clean();
    owner.kill();
    standby.stop();
}

#[test]
fn an_owner_that_is_cut_off_from_the_servers_is_taken_over() {
    let Some(net) = Net::new(5) else { return };
    let Some(nats) = servers(&net) else { return };
    let (mut trial, owner, waiting) = owner_and_standby(&net, &nats);
    trial.fault("the owner is cut off from the servers");
    let cut = Instant::now();
    net.cut(&[OWNER], &SERVERS);
    taken_over(&net, trial, owner, waiting, cut);
}

#[test]
fn an_owner_with_the_minority_of_the_servers_is_taken_over() {
    let Some(net) = Net::new(5) else { return };
    let Some(nats) = servers(&net) else { return };
    let (mut trial, owner, waiting) = owner_and_standby(&net, &nats);
    let leader = nats.leader("RINGWELL_0");
    let others: Vec<usize> = SERVERS.into_iter().filter(|server| *server != leader).collect();
    trial.fault("the owner and a stream's leader are cut off from the rest");
    let cut = Instant::now();
    net.cut(&[OWNER, leader], &[&others[..], &[STANDBY]].concat());
    taken_over(&net, trial, owner, waiting, cut);
}

#[test]
fn an_owner_that_gets_no_answers_is_fenced_or_goes_on() {
    let Some(net) = Net::new(5) else { return };
    let Some(nats) = servers(&net) else { return };
    let (mut trial, owner, waiting) = owner_and_standby(&net, &nats);
    trial.fault("nothing that the servers send arrives at the owner");
    for server in SERVERS {
        net.cut_one_way(server, OWNER);
    }
    trial.wait_for_overflow(&owner);
    thread::sleep(CUT);
    net.heal();
    // If a site has a standby, a fenced process ends.
    let is_fenced = || owner.log().contains("another process serves this shard");
    wait_until("the owner is neither fenced nor ready", || {
        is_fenced() || owner.client().get("/readyz", &[]).is_ok_and(|ready| ready.status == 200)
    });
    // If the owner's last group was stored before the standby took over, the owner is briefly
    // ready.
    thread::sleep(Duration::from_secs(3));
    if !is_fenced() {
        trial.wait_for_numbers(&owner);
        trial.judge(&owner).assert_clean();
        owner.stop();
        drop(waiting.join().unwrap());
        return;
    }
    let (standby, _) = waiting.join().unwrap();
    trial.wait_for_numbers(&standby);
    trial.load(&standby);
    let data = trial.site.data().with_file_name("second");
    trial.judge_with(&standby, &data).assert_clean();
    owner.kill();
    standby.stop();
}

#[test]
fn the_leader_of_a_stream_may_be_cut_off() {
    let Some(net) = Net::new(5) else { return };
    let Some(nats) = servers(&net) else { return };
    let mut trial = Trial::new(&nats.settings());
    let owner = Server::start(net.on(OWNER, &trial.serve()));
    trial.load(&owner);
    let leader = nats.leader("RINGWELL_0");
    let others: Vec<usize> = SERVERS.into_iter().filter(|server| *server != leader).collect();
    trial.fault("a stream's leader is cut off from the other servers, and not from the owner");
    net.cut(&[leader], &others);
    let cut = Instant::now();
    trial.wait_for_numbers(&owner);
    println!("numbers {:?} after the cut", cut.elapsed());
    thread::sleep(CUT);
    trial.wait_for_answers(30);
    trial.fault("the network is whole again");
    net.heal();
    nats.wait_until_ready();
    trial.wait_for_numbers(&owner);
    trial.wait_for_answers(30);
    trial.judge(&owner).assert_clean();
    owner.stop();
}

/// Ten seconds after a server is cut off, it answers requests for messages with an error at once.
#[test]
fn an_owner_leaves_a_server_that_is_cut_off() {
    let Some(net) = Net::new(5) else { return };
    let Some(nats) = servers(&net) else { return };
    let mut trial = Trial::new(&nats.settings());
    let owner = Server::start(net.on(OWNER, &trial.serve()));
    trial.load(&owner);
    for round in 0..3 {
        let connected = nats.connected();
        let others: Vec<usize> = SERVERS.into_iter().filter(|other| *other != connected).collect();
        trial.fault("the owner's server is cut off from the other servers, but not from the owner");
        net.cut(&[connected], &others);
        let cut = Instant::now();
        trial.wait_for_overflow(&owner);
        trial.wait_for_numbers(&owner);
        println!("round {round}: numbers {:?} after the cut", cut.elapsed());
        net.heal();
        nats.wait_until_ready();
        trial.wait_for_answers_of_new(30);
    }
    trial.judge(&owner).assert_clean();
    owner.stop();
}
