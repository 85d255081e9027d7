//! Damage in the part of the history that is not read at startup, because the snapshot covers it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use super::*;

/// Changes a byte in the journal, within the parameters of the allocation with this id.
fn damage(site: &Site, id: &str) {
    let journal = site.data().join("journal/0");
    let needle = format!("id={id}");
    for entry in fs::read_dir(journal).unwrap() {
        let path = entry.unwrap().path();
        let mut file = File::options().read(true).write(true).open(&path).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        let is_segment = path.extension().is_some_and(|it| it == "rpj");
        let found = bytes.windows(needle.len()).position(|window| window == needle.as_bytes());
        if let Some(at) = found.filter(|_| is_segment) {
            file.seek(SeekFrom::Start(at as u64)).unwrap();
            file.write_all(b"x").unwrap();
            return;
        }
    }
    panic!("no segment has {needle}");
}

/// Returns the wall-clock time, in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

fn json(client: &mut Client, path: &str) -> Value {
    client.get(path, &[]).unwrap().json()
}

#[test]
fn damage_behind_the_snapshot_is_found_after_the_start_and_said_everywhere() {
    let site = Site::new(pools(1, 2, Duration::from_millis(500)), "shards = 1");
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let pool = &site.pools[0];
    let damaged_at = now_ms();
    assert_eq!(batch::one(&mut client, pool, "damaged").number, pool.first);
    assert_eq!(batch::one(&mut client, pool, "whole").number, pool.first + 1);
    thread::sleep(Duration::from_millis(700));
    server.stop();
    // Startup reads the newest segment. This startup begins a new segment, so that the segment to
    // damage is no longer the newest.
    let server = Server::start(site.serve(&[]));
    assert_eq!(batch::one(&mut server.client(), pool, "next").number, pool.first);
    server.stop();
    damage(&site, "damaged");

    let server = Server::start(site.serve(&[]));
    assert!(server.log().contains(r#""groups":0,"verdict":"clean""#), "{}", server.log());
    server.says("history is damaged");
    let mut client = server.client();
    let ready = client.get("/readyz", &[]).unwrap();
    assert_eq!((ready.status, &ready.json()["histories"][0]), (200, &"damaged".into()));
    let metrics = client.get("/metrics", &[]).unwrap().body;
    assert!(metrics.contains("ringwell_journal_history{shard=\"0\"} 2"), "{metrics}");
    // A look-up for the time of the damaged allocation returns no visitor, but look-ups for other
    // times succeed.
    let past = batch::attribution(&mut client, pool.first, damaged_at + 300).unwrap();
    assert_eq!(past["outcome"], "damaged", "{past}");
    assert_eq!(holder(&mut client, pool.first), "next");
    // The server still hands out numbers.
    assert_eq!(batch::one(&mut client, pool, "more").number, pool.first + 1);
    assert_eq!(holder(&mut client, pool.first + 1), "more");
    server.stop();
}

#[test]
fn a_complete_history_is_reported_as_complete() {
    let site = Site::new(pools(1, 2, LONG), "shards = 1");
    let server = Server::start(site.serve(&[]));
    batch::one(&mut server.client(), &site.pools[0], "a");
    server.stop();
    let server = Server::start(site.serve(&[]));
    let until = Instant::now() + Duration::from_secs(20);
    while json(&mut server.client(), "/readyz")["histories"][0] != "whole" {
        assert!(Instant::now() < until, "{}", json(&mut server.client(), "/readyz"));
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!server.log().contains("history is damaged"), "{}", server.log());
    server.stop();
}
