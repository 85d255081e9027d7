//! Operators and programs violate `docs/guides/journals-on-nats.md`: they purge or edit streams,
//! revoke credentials, and start servers again without their stores.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::losses::{ask, ask_all, on_machine, site};
use crate::servers::Nats;
use crate::support::server::Server;
use crate::trial::{Trial, wait_until};
use crate::{KEY, SEED, doctor};

const STREAMS: [&str; 2] = ["RINGWELL_0", "RINGWELL_1"];

#[test]
fn after_streams_are_purged_a_machine_without_data_holds_all_pools() {
    let Some(nats) = Nats::start(1) else { return };
    let (site, mut given) = (site(&nats), BTreeSet::new());
    let first = on_machine(&site, "first");
    ask_all(&site, &first, &mut given);
    for stream in STREAMS {
        nats.publish(&format!("$JS.API.STREAM.PURGE.{stream}"), "");
    }
    wait_until("a stream is not purged", || STREAMS.iter().all(|it| nats.messages(it) == 0));
    // The owner continues, because it has its lockouts in memory.
    ask_all(&site, &first, &mut given);
    first.kill();
    let second = on_machine(&site, "second");
    for _ in 0..5 {
        assert_eq!(ask(&site, &second, &mut given), 0, "all pools are held");
    }
    second.kill();
}

#[test]
fn if_all_servers_lose_their_stores_the_next_start_holds_all_pools() {
    let Some(mut nats) = Nats::start(3) else { return };
    let (site, mut given) = (site(&nats), BTreeSet::new());
    let first = on_machine(&site, "first");
    ask_all(&site, &first, &mut given);
    nats.kill_all();
    for index in 0..3 {
        fs::remove_dir_all(nats.store(index)).unwrap();
    }
    (0..3).for_each(|index| nats.restart(index));
    wait_until("it hands out numbers", || ask(&site, &first, &mut given) == 0);
    first.kill();
    let again = on_machine(&site, "first");
    for _ in 0..5 {
        assert_eq!(ask(&site, &again, &mut given), 0, "all pools are held");
    }
    again.kill();
}

#[test]
fn servers_may_lose_their_stores_one_after_the_other() {
    let Some(mut nats) = Nats::start(3) else { return };
    let mut trial = Trial::new(&nats.settings());
    let server = trial.start();
    trial.load(&server);
    for index in 0..3 {
        trial.fault("a server is started again without its store");
        nats.kill(index);
        fs::remove_dir_all(nats.store(index)).unwrap();
        nats.restart(index);
        trial.wait_for_numbers(&server);
        trial.wait_for_answers(30);
        wait_until("not all servers are in step", || nats.are_in_step(&STREAMS));
    }
    trial.judge(&server).assert_clean();
    server.stop();
}

#[test]
fn credentials_may_be_revoked_and_restored() {
    let user = format!("{{ nkey: {KEY} }}");
    let guard = format!("authorization {{ users: [ {user} ] }}\n");
    let Some(nats) = Nats::start_guarded(1, &guard) else { return };
    let folder = TempDir::new().unwrap();
    let seed = folder.path().join("seed");
    fs::write(&seed, SEED).unwrap();
    let mut trial = Trial::new(&format!("{}journal.credentials = {seed:?}\n", nats.settings()));
    let server = trial.start();
    trial.load(&server);
    trial.fault("the credentials are revoked");
    let other = "{ user: another, password: secret }";
    nats.reconfigure(|text| text.replace(&user, other));
    trial.wait_for_overflow(&server);
    thread::sleep(Duration::from_secs(3));
    nats.reconfigure(|text| text.replace(other, &user));
    trial.wait_for_numbers(&server);
    trial.wait_for_answers(30);
    trial.judge(&server).assert_clean();
    server.stop();
}

#[test]
fn a_stream_whose_messages_expire_is_refused_at_the_next_start() {
    let Some(nats) = Nats::start(1) else { return };
    let trial = Trial::new(&nats.settings());
    trial.start().stop();
    nats.change_stream(STREAMS[0], "max_age", 3_600_000_000_000_u64);
    let refused = Server::try_start(trial.serve()).unwrap_err();
    assert!(refused.log.contains("max_age"), "{}", refused.log);
}

/// Makes streams unusable in several ways: the streams lose messages, contain copies of messages,
/// or are sealed and accept no more messages. Sealing is tested last, because it cannot be undone.
#[test]
fn the_doctor_and_the_start_refuse_streams_that_do_not_keep_each_group() {
    let Some(nats) = Nats::start(1) else { return };
    let trial = Trial::new(&nats.settings());
    trial.start().stop();
    let republish = json!({ "src": "ringwell_0.>", "dest": "copy.>" });
    for (setting, bad, good) in [
        ("republish", republish, Value::Null),
        ("max_msgs_per_subject", json!(1), json!(-1)),
        ("sealed", json!(true), json!(true)),
    ] {
        nats.change_stream(STREAMS[0], setting, bad);
        let named = format!("RINGWELL_0 has {setting} = ");
        wait_until("the doctor does not see it", || doctor(&trial).contains(&named));
        let refused = Server::try_start(trial.serve()).unwrap_err();
        assert!(refused.log.contains(setting), "{}", refused.log);
        nats.change_stream(STREAMS[0], setting, good);
    }
}
