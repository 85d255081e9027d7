//! Tests durability: restarts, a full disk, and dropped history.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use super::*;

fn numbers_from(first: u64, count: u64) -> Vec<String> {
    (first..first + count).map(|number| number.to_string()).collect()
}

#[test]
fn answered_allocations_are_known_after_the_engine_was_closed_or_killed() {
    for durability in ["disk", "os"] {
        let data = tempfile::tempdir().unwrap();
        let options = options(data.path(), durability, 9);
        let engine = Opened::new(&options);
        assert_eq!(engine.numbers(2), numbers_from(8_885_550_101, 2));
        drop(engine);
        let ended = Opened::new(&options);
        assert_eq!(ended.numbers(2), numbers_from(8_885_550_103, 2));
        // Simulates killing the process: nothing is written afterwards.
        let (engine, _) = slots::take(ended.0).unwrap();
        engine.abandon();
        assert_eq!(Opened::new(&options).numbers(2), numbers_from(8_885_550_105, 2));
    }
}

#[test]
fn open_data_is_refused_to_another_engine() {
    let data = tempfile::tempdir().unwrap();
    let options = options(data.path(), "os", 9);
    let engine = Opened::new(&options);
    let (status, handle, text) = open(options.as_bytes());
    assert_eq!((status, handle), (NOT_OPENED, 0));
    assert!(text.contains(&format!("in use by process {}", std::process::id())), "{text}");
    drop(engine);
    Opened::new(&options);
}

#[test]
fn an_engine_in_memory_locks_and_marks_data_that_is_there() {
    let data = tempfile::tempdir().unwrap();
    let [on_disk, memory] = ["os", "memory"].map(|it| options(data.path(), it, 9));
    let engine = Opened::new(&on_disk);
    engine.numbers(1);
    let (status, _, text) = open(memory.as_bytes());
    assert_eq!(status, NOT_OPENED);
    assert!(text.contains("in use by process"), "{text}");
    drop(engine);
    drop(Opened::new(&memory));
    assert!(data.path().join("RESTORED").exists());
    // All pools are held.
    assert_eq!(Opened::new(&on_disk).numbers(1), ["over"]);
    let missing = data.path().join("missing");
    drop(Opened::new(&options(&missing, "memory", 9)));
    assert!(!missing.exists());
}

#[test]
fn data_of_a_cluster_s_node_is_refused() {
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("cluster-map.json"), r#"{"version":1,"buckets":[0]}"#).unwrap();
    let (status, _, text) = open(options(data.path(), "os", 9).as_bytes());
    assert_eq!(status, NOT_OPENED);
    assert!(text.contains("belongs to a node of a cluster"), "{text}");
}

#[test]
fn a_damaged_journal_is_refused_and_not_changed() {
    let data = tempfile::tempdir().unwrap();
    let options = options(data.path(), "os", 99);
    let engine = Opened::new(&options);
    for _ in 0..3 {
        engine.numbers(2);
    }
    drop(engine);
    let journal = data.path().join("journal/0");
    for entry in fs::read_dir(&journal).unwrap() {
        let path = entry.unwrap().path();
        match path.extension().and_then(|name| name.to_str()) {
            Some("rps") => fs::remove_file(path).unwrap(),
            Some("rpj") => flip(&path, 4096 + 60),
            _ => {}
        }
    }
    let (status, _, text) = open(options.as_bytes());
    assert_eq!(status, NOT_OPENED);
    assert!(text.contains("the journal of shard 0"), "{text}");
}

/// Flips the lowest bit of the byte at offset `at` of a file. The caller passes an offset in the
/// first of several frames.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Options for a small journal: segments of 1 MiB, 4 MiB of history, and a snapshot per MiB.
/// Numbers of pool 2 become free immediately.
fn small(data: &Path, numbers: u64) -> String {
    let file = data.join("ringwell.toml");
    let last = 8_885_000_000 + numbers - 1;
    let text = format!(
        "data = {data:?}\ndurability = \"os\"\n\
         journal.segment_bytes = \"1MiB\"\njournal.snapshot_every_bytes = \"1MiB\"\n\
         journal.history_bytes = \"4MiB\"\n\
         [[ring_pool]]\nid = 1\nring_pool_key = \"{KEY}\"\nlifetime = \"30m\"\n\
         numbers = [\"8885000000-{last}\"]\noverflow_number = \"8885999999\"\n\
         [[ring_pool]]\nid = 2\nring_pool_key = \"{KEY}\"\nlifetime = \"1ms\"\n\
         numbers = [\"8886000000-8886000999\"]\noverflow_number = \"8886999999\"\n"
    );
    fs::write(&file, text).unwrap();
    format!(r#"{{"config":{file:?}}}"#)
}

#[test]
fn old_history_is_removed_in_pieces_between_batches_and_no_lockout_with_it() {
    let data = tempfile::tempdir().unwrap();
    let options = small(data.path(), 100);
    let engine = Opened::new(&options);
    assert_eq!(engine.numbers(5), numbers_from(8_885_000_000, 5));
    let of = |rows| batch(rows).replace("\"1/", "\"2/").replace("autos", &"a".repeat(200));
    let (many, one) = (of(40), of(1));
    let begun = Instant::now();
    let first = data.path().join("journal/0/0000000000000001.rpj");
    assert!(first.exists());
    while first.exists() || engine.status()["segment_bytes"].as_u64() > Some(8 << 20) {
        assert!(begun.elapsed() < Duration::from_mins(1), "{}", engine.status());
        if first.exists() {
            assert_eq!(engine.bulk(&many).0, OK);
        } else {
            // Pauses between calls. Without this pause, the caller would write more between two
            // maintenance rounds than the limit checked above allows.
            thread::sleep(Duration::from_millis(1));
            assert_eq!(engine.bulk(&one).0, OK);
        }
    }
    assert_eq!((&engine.status()["trouble"], engine.numbers(1).len()), (&().into(), 1));
    let (engine, _) = slots::take(engine.0).unwrap();
    engine.abandon();
    let engine = Opened::new(&options);
    assert_eq!(engine.numbers(1), numbers_from(8_885_000_006, 1));
}

#[test]
fn in_memory_old_groups_are_removed_and_lockouts_stay() {
    let options = options(Path::new(""), "memory", 20_000);
    // The deadline is long, because the machine that runs the tests may be busy.
    let engine = Opened::new(&options.replacen('{', "{\"deadline_ms\":60000,", 1));
    assert_eq!(engine.numbers(5), numbers_from(8_885_550_101, 5));
    // Requests more numbers than the engine can keep records of in memory. Each batch has the
    // maximum length.
    let body = batch(30).replace("autos", &"a".repeat(8_000));
    for round in 0..600 {
        let text = bulk(engine.0, &body, Some(&round.to_string()), 0).1;
        assert_eq!(numbers_of(&text), numbers_from(8_885_550_106 + 30 * round, 30));
    }
    assert!(engine.status()["carried"].as_u64() > Some(30), "{}", engine.status());
    assert_eq!((engine.snapshot().0, engine.flush().0), (OK, OK));
    let again = bulk(engine.0, &body, Some("0"), 0).1;
    assert_eq!(numbers_of(&again), numbers_from(8_885_550_106, 30));
    assert_eq!(engine.numbers(1), numbers_from(8_885_568_106, 1));
}

#[test]
fn after_a_failed_write_that_a_cache_may_have_lost_all_pools_are_held() {
    let data = tempfile::tempdir().unwrap();
    let options = small(data.path(), 100);
    let engine = Opened::new(&options);
    // Makes the creation of the next segment fail, because a directory with the segment's file name
    // exists.
    let obstacle = data.path().join("journal/0/0000000000000002.rpj");
    fs::create_dir(&obstacle).unwrap();
    let body = batch(40).replace("\"1/", "\"2/").replace("autos", &"a".repeat(200));
    let begun = Instant::now();
    while engine.status()["journal"] == "writing" {
        assert!(begun.elapsed() < Duration::from_mins(1), "{}", engine.status());
        assert_eq!(engine.bulk(&body).0, OK);
    }
    assert_eq!(engine.status()["journal"], "failed", "{}", engine.status());
    drop(engine);
    fs::remove_dir(&obstacle).unwrap();
    let engine = Opened::new(&options);
    assert_eq!(engine.numbers(2), ["over", "over"], "{}", engine.status());
}

#[test]
fn a_restored_directory_gets_a_new_name_and_the_gap_is_recorded() {
    let data = tempfile::tempdir().unwrap();
    let options = options(data.path(), "disk", 9);
    assert_eq!(Opened::new(&options).numbers(1), numbers_from(8_885_550_101, 1));
    let name = || {
        let text = fs::read(data.path().join("identity.json")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&text).unwrap()["id"].clone()
    };
    let before = name();
    assert_eq!(Opened::new(&options).numbers(1), numbers_from(8_885_550_102, 1));
    assert_eq!(name(), before);
    assert!(!data.path().join("gaps.json").exists());
    fs::write(data.path().join("RESTORED"), "").unwrap();
    assert_eq!(Opened::new(&options).numbers(1), ["over"]);
    assert_ne!(name(), before);
    assert!(data.path().join("gaps.json").exists());
    assert!(!data.path().join("RESTORED").exists());
}

/// A small file system. Available only if the test is permitted to mount a file system.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(at: &'a Path, size: &str) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", size, "ringwell-test"]).arg(at);
        mount.output().is_ok_and(|done| done.status.success()).then_some(Self(at))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

#[test]
fn on_a_full_disk_rows_overflow_and_succeed_again_once_there_is_room() {
    let data = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(data.path(), "size=6m") else {
        return eprintln!("no right to mount: passed over");
    };
    let options = small(disk.0, 30_000);
    let engine = Opened::new(&options);
    let ballast = disk.0.join("ballast");
    let _ = fs::write(&ballast, vec![1; 8 << 20]);
    let mut given = Vec::new();
    let full = loop {
        let numbers = engine.numbers(50);
        if numbers.contains(&"over".to_owned()) {
            break numbers;
        }
        given.extend(numbers);
    };
    assert_eq!(full, vec!["over"; 50]);
    assert_eq!(engine.status()["journal"], "full");
    let (status, text) = engine.flush();
    assert_eq!(status, NOT_STORED);
    assert!(text.contains("No space left"), "{text}");
    fs::remove_file(&ballast).unwrap();
    assert_eq!(engine.flush(), (OK, String::new()));
    assert_eq!(engine.status()["journal"], "writing");
    let next = engine.numbers(50);
    assert!(!next.contains(&"over".to_owned()) && next.iter().all(|n| !given.contains(n)));
    drop(engine);
    // The reopened engine has recovered the allocations made before and after the disk was full, so
    // it hands out another number.
    let engine = Opened::new(&options);
    let later = engine.numbers(1);
    assert!(!given.contains(&later[0]) && !next.contains(&later[0]), "{later:?}");
}
