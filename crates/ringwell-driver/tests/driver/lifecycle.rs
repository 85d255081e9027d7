//! The records of a node's startup and shutdown.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use ringwell_config::{Cluster, Config, Durability, demo_pools};
use ringwell_core::Millis;
use ringwell_directory::{BucketHolds, Directory, Owners};
use ringwell_driver::membership::Membership;
use ringwell_driver::node::{Begun, JournalState, Node};
use ringwell_driver::store::{
    Memory, ServedMap, Unkept, is_restored, mark_restored, may_lack_groups, note_unflushed,
    write_whole,
};
use ringwell_driver::{Platform, lifecycle, suspension};
use ringwell_os::OsFiles;

use crate::support::{Virtual, body, bulk, shards};

/// The id of the boot during which the node runs. The data was last used during the previous boot.
const BOOT: u64 = 5;

fn directory(shards: u16) -> Directory {
    Directory::new(1, demo_pools(10, 20, Millis(60_000)).unwrap(), shards).unwrap()
}

fn node(data: &Path, durability: Durability) -> Node {
    let mut config = Config::new(data.into(), 1);
    config.durability = durability;
    let begun = Begun { boot: BOOT, ..Begun::default() };
    Node::new(config, directory(2), &[0, 1], None, (None, begun))
}

/// Returns whether the data is marked as restored, and the reason why it may lack groups.
fn marks(data: &Path) -> (bool, Option<Unkept>) {
    (is_restored(&OsFiles, data), may_lack_groups(&OsFiles, data, BOOT).unwrap())
}

fn marked(data: &Path) {
    mark_restored(&OsFiles, data).unwrap();
    note_unflushed(&OsFiles, data, Durability::Os, BOOT - 1).unwrap();
}

#[test]
fn marks_of_doubtful_data_are_removed_when_all_journals_have_stored_the_holds() {
    let doubtful = (true, Some(Unkept::Boot));
    let (writing, full) = (JournalState::Writing, JournalState::Full);
    for (durability, states, wanted) in [
        (Durability::Disk, [writing, writing], (false, None)),
        (Durability::Os, [writing, writing], (false, None)),
        (Durability::Disk, [writing, full], doubtful),
        (Durability::Disk, [full, writing], doubtful),
        (Durability::Os, [JournalState::Failed, writing], doubtful),
        (Durability::Memory, [writing, writing], doubtful),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        marked(data);
        let node = node(data, durability);
        for (shard, state) in (0..).zip(states) {
            node.set_journal(shard, state);
        }
        lifecycle::unmark(&OsFiles, &node);
        assert_eq!(marks(data), wanted, "{durability:?} {states:?}");
    }
}

#[test]
fn an_orderly_end_leaves_no_doubt_about_groups() {
    for (durability, wanted) in
        [(Durability::Disk, None), (Durability::Os, None), (Durability::Memory, Some(Unkept::Boot))]
    {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        marked(data);
        lifecycle::end(&OsFiles, &node(data, durability));
        assert_eq!(marks(data), (true, wanted), "{durability:?}");
    }
}

#[test]
fn owners_that_were_served_last_count_under_the_same_cluster_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = |shards: &str| {
        format!(
            "version = 3\nsecret = \"a-secret-of-the-tests\"\n[[node]]\nname = \"a\"\n\
             shards = {shards}\nlink = \"127.0.0.1:9000\"\nlisten = [\"127.0.0.1:8080\"]\n"
        )
    };
    let path = folder.path().join("cluster.toml");
    let member = |shards| {
        write_whole(&OsFiles, &path, file(shards).as_bytes()).unwrap();
        Membership::new(Cluster::load(&path).unwrap(), "a").unwrap()
    };
    let (two, three) = (member("[0, 1]"), member("[0, 1, 2]"));
    let place = |member| {
        let placed = lifecycle::place(&OsFiles, folder.path(), directory(2), member).unwrap();
        (placed.0.placement().of_bucket(7), placed.1)
    };
    let by_file = two.cluster().map().owners();
    assert_eq!(place(None), (0, None));
    assert_eq!(place(Some(&two)), (0, Some(by_file.clone())), "nothing was served");
    let mut moved = by_file.clone();
    moved.give(7, 1);
    let serve = |owners: &Owners| {
        let (holds, stale) = (BucketHolds::default(), BTreeSet::new());
        let own = |_| true;
        let map = ServedMap::of(owners.clone(), own, Vec::new(), holds, stale);
        map.write(&OsFiles, folder.path()).unwrap();
    };
    serve(&moved);
    assert_eq!(place(Some(&two)), (1, Some(moved.clone())));
    let mut other = serde_json::to_value(&moved).unwrap();
    other["version"] = 2.into();
    serve(&serde_json::from_value(other).unwrap());
    assert_eq!(place(Some(&two)), (0, Some(by_file.clone())));
    serve(&three.cluster().map().owners());
    assert_eq!(place(Some(&two)), (0, Some(by_file)));
}

/// The store cannot take snapshots, so only flushed records are saved.
#[test]
fn a_shard_without_a_last_snapshot_has_saved_only_what_was_flushed() {
    for (durability, has_rows, wanted) in [
        (Durability::Disk, false, true),
        (Durability::Disk, true, false),
        (Durability::Os, false, false),
        (Durability::Os, true, false),
        (Durability::Memory, true, true),
    ] {
        let platform = Virtual::default();
        let (shard, _queue) = shards(&platform, 1, Millis(60_000), durability).remove(0);
        platform.run(async {
            if has_rows {
                // No task runs that would store these rows' group.
                bulk(&shard, body(&shard, 3), &platform.terms(20)).await;
            }
            let store = Memory::new([1; 16], 1 << 20);
            assert_eq!(lifecycle::save(&shard, &store).await, wanted, "{durability:?} {has_rows}");
            assert_eq!(shard.last_failure().is_some(), durability != Durability::Memory);
        });
    }
}

#[test]
fn a_server_without_other_nodes_has_nothing_to_confirm_after_a_standstill() {
    let platform = Virtual::default();
    let (shard, _queue) = shards(&platform, 1, Millis(60_000), Durability::Disk).remove(0);
    let ended = platform.within(Duration::from_secs(1), suspension::run(Rc::clone(&shard)));
    assert_eq!(platform.run(ended), Some(()));
}

#[test]
fn a_node_reports_the_newest_stored_group_of_each_shard() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), Durability::Disk);
    let before: Vec<u64> = node.stored().collect();
    let shards: Vec<u16> = node.shards().collect();
    assert!(before.iter().all(|group| *group == 0) && before.len() == shards.len());
    for (shard, group) in shards.iter().zip(7..) {
        node.set_stored(*shard, group);
    }
    node.set_stored(99, 1);
    assert!(node.stored().eq(7..7 + u64::try_from(shards.len()).unwrap()));
}
