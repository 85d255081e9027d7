//! A server whose database of ring pools is on a full disk.
//!
//! The tests need permission to mount a small file system. Without it, they print a message and are
//! skipped.

use tempfile::TempDir;

use super::support::batch;
use super::support::disk::Disk;
use super::support::server::Server;
use super::support::site::Pool;
use super::{LONG, Managed, Rig, soon};

/// Mounts a small disk below `folder`. Prints a message and returns `None` if mounting is not
/// permitted.
fn small_disk(folder: &TempDir) -> Option<Disk> {
    let disk = Disk::mount(folder.path(), "4m");
    if disk.is_none() {
        println!("SKIPPED: no right to mount a small file system here");
    }
    disk
}

#[test]
fn a_killed_server_starts_again_while_the_disk_of_its_directory_is_full() {
    restart_on_full_disk(|server, disk| {
        disk.fill();
        server.kill();
    });
}

#[test]
fn a_stopped_server_starts_again_while_the_disk_of_its_directory_is_full() {
    restart_on_full_disk(|server, disk| {
        server.stop();
        disk.fill();
    });
}

fn restart_on_full_disk(end: impl FnOnce(Server, &Disk)) {
    let folder = TempDir::new().unwrap();
    let Some(disk) = small_disk(&folder) else { return };
    let rig = Rig::sqlite_at(disk.at.join("directory.sqlite"));
    let managed = Managed::new(rig, vec![Pool::new(1, 3, LONG)]);
    let server = managed.start();
    let pool = &managed.site.pools[0];
    assert_eq!(batch::one(&mut server.client(), pool, "a").number, pool.first);
    let journal = || managed.runtime.block_on(managed.store.journal("the only node")).unwrap();
    soon("the name of the data directory", || journal().is_some());
    end(server, &disk);

    let server = managed.start();
    let mut client = server.client();
    assert_eq!(batch::one(&mut client, pool, "b").number, pool.first + 1);
    server.says("the disk of the directory's database is full");
    // Waits long enough for all periodic work to be repeated.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(!server.log().contains("cannot be read"), "{}", server.log());
    // Changes are possible as soon as the disk has free space.
    disk.make_room();
    managed.add(1, super::range(pool.first + 500, 1));
    soon("the pool has its new number", || {
        batch::one(&mut client, pool, "c").number == pool.first + 500
    });
    server.stop();
}

#[test]
fn a_first_start_on_a_full_disk_names_the_file_and_the_remedy() {
    let folder = TempDir::new().unwrap();
    let Some(disk) = small_disk(&folder) else { return };
    let at = disk.at.join("directory.sqlite");
    let managed = Managed::new(Rig::sqlite_at(at.clone()), vec![Pool::new(1, 3, LONG)]);
    disk.fill();
    let refused = Server::try_start(managed.site.serve(&[])).unwrap_err();
    let said = &refused.log;
    assert!(said.contains(&*at.to_string_lossy()) && said.contains("free"), "{said}");
}
