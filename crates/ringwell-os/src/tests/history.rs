//! Tests that read old groups and snapshots, and tests that drop old history.

use super::*;

#[test]
fn groups_are_read_while_others_are_stored() {
    let data = TempDir::new().unwrap();
    let settings = settings(data.path());
    let mut shard = open(&settings);
    let first = shard.store(5_000);
    let reader = shard.journal.reader();
    let (stop, stopped) = mpsc::channel::<()>();
    let looker = std::thread::spawn(move || {
        let mut reads = 0;
        while stopped.try_recv().is_err() {
            assert_eq!(reader.read(1).unwrap(), first);
            reads += 1;
        }
        reads
    });
    let groups: Vec<_> = (0..100).map(|_| shard.store(20_000)).collect();
    stop.send(()).unwrap();
    assert!(looker.join().unwrap() > 0);
    let reader = shard.journal.reader();
    for group in &groups {
        assert_eq!(reader.read(group.header.n).unwrap(), *group);
    }
    let place: Position = groups[50].records().next().unwrap().unwrap().0;
    assert!(groups[50].record(place).is_ok());
    assert!(matches!(reader.read(102), Err(ReadError::NotYet(102))));
    assert!(matches!(reader.read(0), Err(ReadError::Gone(0))));
}

#[test]
fn groups_of_segments_skipped_by_recovery_are_found() {
    let data = TempDir::new().unwrap();
    let settings = settings(data.path());
    let mut shard = open(&settings);
    let groups: Vec<_> = (0..20).map(|_| shard.store(30_000)).collect();
    shard.snapshot();
    shard.journal.close().unwrap();
    let shard = open(&settings);
    assert_eq!(shard.seen, []);
    for group in groups.iter().rev() {
        assert_eq!(shard.journal.reader().read(group.header.n).unwrap(), *group);
    }
}

#[test]
fn a_rotten_group_is_not_returned() {
    let data = TempDir::new().unwrap();
    let settings = settings(data.path());
    let mut shard = open(&settings);
    shard.store(100);
    let path = settings.shard_directory(0).join("0000000000000001.rpj");
    let mut bytes = fs::read(&path).unwrap();
    bytes[4096 + 100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = shard.journal.reader().read(1).unwrap_err();
    assert!(matches!(error, ReadError::Damaged { n: 1, offset: 4096, .. }), "{error}");
}

#[test]
fn the_newest_two_snapshots_are_kept() {
    let data = TempDir::new().unwrap();
    let settings = Settings { spare_segments: 0, ..settings(data.path()) };
    let mut shard = open(&settings);
    for _ in 0..4 {
        shard.store(10);
        shard.snapshot();
    }
    let file = shard.journal.create_snapshot(77).unwrap();
    assert!(file.publish(5).unwrap_err().to_string().contains("group 5 is not stored yet"));
    let kept = ["00000000000000000004.rps", "00000000000000000005.rps"];
    let segment = "0000000000000001.rpj";
    assert_eq!(names(&settings), [kept[0], kept[1], segment]);
    // The next start removes an unfinished snapshot that a killed process has left.
    fs::write(settings.shard_directory(0).join("00000000000000000077.tmp"), "x").unwrap();
    shard.journal.close().unwrap();
    let shard = open(&settings);
    assert_eq!(shard.seen, []);
    assert_eq!(names(&settings), [kept[0], kept[1], segment, "0000000000000002.rpj"]);
}

#[test]
fn old_history_is_dropped_when_no_snapshot_needs_it_and_its_files_are_reused() {
    let data = TempDir::new().unwrap();
    let settings = Settings { history_bytes: 300 << 10, ..settings(data.path()) };
    let mut shard = open(&settings);
    let mut first_kept = 1;
    let mut last = None;
    for round in 0..60 {
        last = Some(shard.store(30_000));
        if round % 5 != 0 {
            continue;
        }
        shard.snapshot();
        while let Some(old) = shard.journal.expired(shard.writer.last_at(), CLOCKS) {
            assert_eq!(old.first_n, first_kept);
            for n in old.first_n..old.next_n {
                assert_eq!(shard.journal.reader().read(n).unwrap().header.n, n);
            }
            shard.journal.drop_segment(old).unwrap().put_away().unwrap();
            assert!(shard.journal.drop_segment(old).is_none());
            let gone = shard.journal.reader().read(old.first_n);
            assert!(matches!(gone, Err(ReadError::Gone(_))));
            first_kept = old.next_n;
        }
    }
    assert!(first_kept > 20);
    assert!(shard.journal.stats().segment_bytes < 600 << 10);
    assert!(names(&settings).len() < 10);
    let settings = shard.kill(&settings, &data.path().join("killed"));

    let shard = open(&settings);
    assert_eq!(shard.verdict, Verdict::Clean);
    assert_eq!(shard.seen.last(), last.as_ref());
}

#[test]
fn no_file_that_a_snapshot_needs_is_dropped() {
    let data = TempDir::new().unwrap();
    let age = Some(Millis(3));
    let settings = Settings { history_age: age, ..settings(data.path()) };
    let mut shard = open(&settings);
    let expired = |shard: &Shard| shard.journal.expired(Millis(1_000), CLOCKS);
    (0..8).for_each(|_| drop(shard.store(60_000)));
    assert_eq!(expired(&shard), None);
    shard.snapshot();
    assert_eq!(expired(&shard).map(|old| old.first_n), Some(1));
    // The history is not dropped, because it is not old enough yet.
    assert_eq!(shard.journal.expired(Millis(4), CLOCKS), None);
}
