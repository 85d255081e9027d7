//! Tests startups with a cluster node's data but without its cluster file, startups in memory
//! beside journals, and journals that a data directory did not write.

use std::collections::BTreeSet;

use ringwell_config::Durability;
use ringwell_core::Millis;
use ringwell_directory::{BucketHolds, Directory, Owners, Placement};
use ringwell_driver::open::{self, Copied, StartError};
use ringwell_driver::store::{Gaps, LastOwner, ServedMap, Settings, is_restored, unmark_restored};
use ringwell_os::OsFiles;

use super::clocks::dating;
use super::open::{
    Data, LIFETIME, NOTHING, START, copy_files, directory, hand_out, map, now, reading,
};

/// Hands out numbers of two shards from `data`.
fn serve(data: &Data, shards: u16) {
    let directory = directory(shards, LIFETIME);
    let mut begun = data.start(&directory, Millis::ZERO);
    let at = now(&begun, Millis::ZERO);
    hand_out(&mut begun, &directory, at, 1);
}

#[test]
fn data_of_a_cluster_s_node_is_refused_without_the_cluster_file() {
    for durability in [Durability::Disk, Durability::Os, Durability::Memory] {
        let data = Data::new(durability);
        let one = directory(1, LIFETIME);
        let start = |member| data.start_as(&one, reading(Millis::ZERO), member).map(drop);
        start(Some((&[0], 1))).unwrap();
        // Nothing was served yet.
        start(None).unwrap();
        std::fs::create_dir_all(&data.settings.data).unwrap();
        map(1, 0..512, BucketHolds::default()).write(&OsFiles, &data.settings.data).unwrap();
        let refused = start(None).unwrap_err();
        assert!(matches!(refused, StartError::OfCluster(_)), "{refused:?}");
        let file = data.settings.data.join("cluster-map.json");
        let text = refused.to_string();
        for words in [file.to_str().unwrap(), "--cluster", "--node"] {
            assert!(text.contains(words), "{text}");
        }
        start(Some((&[0], 1))).unwrap();
    }
}

#[test]
fn a_start_in_memory_marks_the_journals_that_are_there() {
    let mut data = Data::new(Durability::Memory);
    let two = directory(2, LIFETIME);
    drop(data.start(&two, Millis::ZERO));
    assert!(!data.settings.data.exists(), "nothing is created");
    data.settings.durability = Durability::Disk;
    serve(&data, 2);
    data.settings.durability = Durability::Memory;
    let begun = data.start(&two, Millis(10));
    assert_eq!(begun.copied, None);
    assert!(is_restored(&OsFiles, &data.settings.data));
    data.settings.durability = Durability::Disk;
    let begun = data.start(&two, Millis(20));
    assert_eq!(begun.copied, Some(Copied::Restored));
    assert!(begun.facts.gaps.contain(START + Millis(10), dating(&begun)));
    unmark_restored(&OsFiles, &data.settings.data).unwrap();
    drop(begun);
    assert_eq!(data.start(&two, Millis(30)).copied, None);
}

/// Copies of a shared log may lack answers: another machine may have served the shards since, and
/// its answers are only in the log.
#[test]
pub(crate) fn copies_of_a_shared_log_may_lack_answers_if_they_are_used_without_it() {
    let data = Data::new(Durability::Disk);
    let one = directory(1, LIFETIME);
    serve(&data, 1);
    let owner = LastOwner { recorded: NOTHING, epochs: Vec::new(), reached: Vec::new() };
    let begun = data.start_after(&one, reading(Millis(10)), None, Some(&owner)).unwrap();
    assert_eq!(begun.copied, None);
    drop(begun);
    // Until the hold is stored, each startup treats the data as doubtful.
    for (since, copied) in [(20, Copied::OfLog), (30, Copied::Restored)] {
        let begun = data.start(&one, Millis(since));
        assert_eq!(begun.copied, Some(copied));
        assert!(begun.facts.gaps.contain(START + Millis(20), dating(&begun)));
        let now = now(&begun, Millis(since));
        let held = begun.shards[0].engine.shard().held_until(0);
        assert!(held >= now + LIFETIME, "{held:?}");
    }
    unmark_restored(&OsFiles, &data.settings.data).unwrap();
    assert_eq!(data.start(&one, Millis(40)).copied, None);
}

#[test]
fn a_start_in_memory_is_refused_if_the_journals_cannot_be_marked() {
    let mut data = Data::new(Durability::Disk);
    serve(&data, 1);
    // A link to a missing directory: the file does not exist, and cannot be created.
    let mark = data.settings.data.join("RESTORED");
    std::os::unix::fs::symlink("missing/file", mark).unwrap();
    data.settings.durability = Durability::Memory;
    let one = directory(1, LIFETIME);
    let refused = data.start_as(&one, reading(Millis::ZERO), None).map(drop).unwrap_err();
    assert!(refused.to_string().contains("must mark the journals"), "{refused}");
}

#[test]
fn journals_of_other_installations_are_noticed_but_not_those_of_former_shards() {
    let (ours, other) = (Data::new(Durability::Disk), Data::new(Durability::Disk));
    let unnamed = |data: &Data| open::unnamed_journals(&OsFiles, &data.settings.data).unwrap();
    assert!(unnamed(&ours).is_empty());
    serve(&ours, 2);
    serve(&other, 3);
    let journal = |settings: &Settings| settings.shard_directory(2);
    copy_files(&journal(&other.settings), &journal(&ours.settings));
    assert_eq!((unnamed(&ours), unnamed(&other)), (vec![2], vec![]));
    for data in [&ours, &other] {
        drop(data.start(&directory(2, LIFETIME), Millis(10)));
        assert!(unnamed(data).is_empty(), "it is named now");
    }
}

/// If a bucket's last owner is gone together with its journal, look-ups for that time must not
/// answer that no visitor had a number.
#[test]
fn the_history_of_shards_that_are_gone_is_missing() {
    let owners = Owners::at_first(1, &Placement::even(2).unwrap());
    let own: BTreeSet<u16> = (0..1024).filter(|b| owners.get(*b).unwrap().shard == 0).collect();
    let served = ServedMap { owners: Some(owners), ..map(1, own.clone(), BucketHolds::default()) };
    let others: Vec<u16> = (0..1024).filter(|bucket| !own.contains(bucket)).collect();
    for (shards, own_shards) in [(1, &[0][..]), (2, &[0, 1])] {
        let data = Data::new(Durability::Disk);
        serve(&data, 1);
        served.write(&OsFiles, &data.settings.data).unwrap();
        let directory = directory(shards, LIFETIME);
        let member = Some((own_shards, 2));
        let begun = data.start_as(&directory, reading(Millis(10)), member).unwrap();
        // Every number may have been in a pool of the shard that is gone.
        for buckets in [others.as_slice(), &[0]] {
            let gaps = Gaps::from(begun.facts.gaps.of(buckets, dating(&begun)));
            assert!(gaps.contain(START, dating(&begun)), "{shards} shards, {buckets:?}");
        }
        assert_eq!(Gaps::read(&OsFiles, &data.settings.data).unwrap(), begun.facts.gaps);
    }
}

#[test]
fn placements_on_different_shards_have_different_names() {
    let [two, three] = [2, 3].map(|shards| directory(shards, LIFETIME));
    let name = |list: &Directory| open::placement_name(list.placement());
    assert_eq!(name(&two), name(&directory(2, Millis(1_000))));
    assert_ne!(name(&two), name(&three));
}
