//! Tests nats-servers whose disks lose power, are slow or full, or have flipped bits. Also tests
//! full streams.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::readiness;
use crate::servers::{Layout, Nats};
use crate::support::disk::Disk;
use crate::support::image::Image;
use crate::support::server::{Server, signal};
use crate::trial::{Trial, wait_until};

const STREAM: &str = "RINGWELL_0";

/// Mounts three disks below `folder`, one for each nats-server.
fn images(folder: &Path) -> Option<Vec<Image>> {
    (0..3).map(|index| Image::mount_new(&folder.join(format!("disk{index}")))).collect()
}

fn places(images: &[Image]) -> Vec<PathBuf> {
    images.iter().map(|image| image.at.clone()).collect()
}

/// Servers whose stores are on disks that can lose power, and a trial whose journals are on these
/// servers.
struct Powered {
    trial: Trial,
    // The order of fields matters: servers are dropped before their disks, and disks before
    // `folder`, which contains the mount points.
    nats: Nats,
    images: Vec<Image>,
    _shown: Nats,
    _folder: TempDir,
}

impl Powered {
    fn start(setting: &str) -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let images = images(folder.path())?;
        // A node reads the nats-servers' settings from their monitoring addresses. It refuses
        // nats-servers that do not flush each message, but some tests use such nats-servers. The
        // node therefore gets only the monitoring address of this additional nats-server, which
        // flushes each message.
        let shown = Nats::start(1)?;
        let stores = places(&images);
        let nats = Nats::start_in(&Layout { setting, stores: &stores, ..Layout::default() })?;
        let monitor =
            shown.settings().lines().find(|line| line.contains("monitor")).unwrap().to_owned();
        let settings = nats.settings();
        let settings =
            settings.lines().map(|line| if line.contains("monitor") { &monitor } else { line });
        let mut trial = Trial::new(&(settings.collect::<Vec<_>>().join("\n") + "\n"));
        trial.fault("three disks in files on one disk: some groups take longer than 250 ms");
        Some(Self { trial, nats, images, _shown: shown, _folder: folder })
    }

    /// Starts a node without data. Returns whether the node or the checker detected a loss.
    fn has_lost(&mut self) -> bool {
        let _ = fs::remove_dir_all(self.trial.site.data());
        // nats-servers that have lost their state may never answer again, and the node waits a
        // minute for an answer.
        let server = match Server::try_start_within(self.trial.serve(), Duration::from_secs(150)) {
            Ok(server) => server,
            Err(refused) => {
                println!("the start is refused: {}", refused.log);
                return true;
            }
        };
        self.trial.wait_for_numbers(&server);
        let verdict = self.trial.judge(&server);
        server.stop();
        println!("violations: {}", verdict.0["violations"]);
        // Overflow while the disks are slow is no violation, because a fault was recorded first.
        verdict.0["violations"].as_object().is_none_or(|broken| !broken.is_empty())
    }
}

/// Cuts the power to all machines at once. The node also loses its disk.
fn power_cut(setting: &str) -> Option<bool> {
    let mut all = Powered::start(setting)?;
    let server = all.trial.start();
    all.trial.load(&server);
    all.trial.wait_for_answers(200);
    all.trial.fault("power cut of all servers; the node's disk is lost");
    all.images.iter().for_each(Image::cut_power);
    server.kill();
    all.nats.kill_all();
    all.images.iter().for_each(Image::mount_again);
    (0..3).for_each(|index| all.nats.restart(index));
    Some(all.has_lost())
}

#[test]
fn answered_allocations_survive_a_power_cut_of_all_servers() {
    assert_ne!(power_cut("sync_interval: always"), Some(true));
}

/// Shows that the test above would detect a loss.
#[test]
fn servers_that_flush_later_lose_answered_allocations_in_a_power_cut() {
    assert_ne!(power_cut("sync_interval: \"2m\""), Some(false));
}

/// Pauses one follower, so that each group is only on the leader and on the other follower. The
/// other follower then loses power, and the leader is lost. The two followers together must still
/// have all groups.
fn power_cut_of_the_only_follower(setting: &str) -> Option<bool> {
    let mut all = Powered::start(setting)?;
    let server = all.trial.start();
    all.trial.load(&server);
    all.trial.wait_for_answers(60);
    let leader = all.nats.leader(STREAM);
    let [paused, cut] = [1, 2].map(|next| (leader + next) % 3);
    all.trial.fault("a follower is paused");
    signal(all.nats.pid(paused), "STOP");
    all.trial.wait_for_numbers(&server);
    all.trial.wait_for_answers(200);
    let is_led = all.nats.leader(STREAM) == leader;
    all.trial.fault("the other follower loses power, the leader and the node their machines");
    all.images[cut].cut_power();
    server.kill();
    all.nats.kill(cut);
    all.nats.kill(leader);
    signal(all.nats.pid(paused), "CONT");
    all.images[cut].mount_again();
    all.nats.restart(cut);
    let has_lost = all.has_lost();
    is_led.then_some(has_lost)
}

#[test]
fn answered_allocations_survive_a_power_cut_of_the_only_follower() {
    assert_ne!(power_cut_of_the_only_follower("sync_interval: always"), Some(true));
}

/// Shows that the test above would detect a loss.
#[test]
fn a_follower_that_flushes_later_loses_answered_allocations_in_a_power_cut() {
    assert_ne!(power_cut_of_the_only_follower("sync_interval: \"2m\""), Some(false));
}

/// A limit on one process's writes to one disk.
struct Throttle(PathBuf);

impl Throttle {
    /// Limits the process to this many writes per second from now on. Returns `None` if this is not
    /// possible.
    fn new(pid: u32, disk: &Path, writes: u32) -> Option<Self> {
        let device = Command::new("findmnt").args(["-no", "MAJ:MIN"]).arg(disk).output().ok()?;
        let device = String::from_utf8(device.stdout).ok()?;
        let group = PathBuf::from(format!("/sys/fs/cgroup/blkio/rwt{pid}"));
        let limited = fs::create_dir(&group).is_ok()
            && fs::write(
                group.join("blkio.throttle.write_iops_device"),
                format!("{} {writes}", device.trim()),
            )
            .is_ok()
            && fs::write(group.join("cgroup.procs"), pid.to_string()).is_ok();
        if !limited {
            println!("SKIPPED: no right to limit a process's writes by blkio here");
        }
        limited.then_some(Self(group))
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let processes = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for pid in processes.lines() {
            let _ = fs::write("/sys/fs/cgroup/blkio/cgroup.procs", pid);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_leader_with_a_slow_disk_is_replaced() {
    let folder = TempDir::new().unwrap();
    let Some(images) = images(folder.path()) else { return };
    let stores = places(&images);
    let layout = Layout { stores: &stores, ..Layout::default() };
    let Some(nats) = Nats::start_in(&layout) else { return };
    let mut trial = Trial::new(&nats.settings());
    let server = trial.start();
    trial.load(&server);
    let slow = nats.leader(STREAM);
    trial.fault("the disk of a stream's leader is slow");
    let Some(throttle) = Throttle::new(nats.pid(slow), &images[slow].at, 8) else { return };
    let begun = Instant::now();
    server.says("asking another server to lead");
    println!("asked after {:?}", begun.elapsed());
    wait_until("the slow server still leads", || nats.leader(STREAM) != slow);
    trial.wait_for_numbers(&server);
    println!("numbers {:?} after the disk became slow", begun.elapsed());
    drop(throttle);
    trial.wait_for_answers(30);
    trial.judge(&server).assert_clean();
    server.stop();
    drop(nats);
}

#[test]
fn a_full_disk_of_a_leader_stops_nobody_for_long() {
    let folder = TempDir::new().unwrap();
    let Some(disk) = Disk::mount(folder.path(), "64m") else { return };
    let own = ["1", "2"].map(|name| folder.path().join(name));
    let stores = [std::slice::from_ref(&disk.at), &own[..]].concat();
    let layout = Layout { stores: &stores, ..Layout::default() };
    let Some(mut nats) = Nats::start_in(&layout) else { return };
    let mut trial = Trial::new(&nats.settings());
    let server = trial.start();
    trial.load(&server);
    trial.fault("another server is asked to lead the stream");
    wait_until("another server leads", || {
        let leads = nats.leader(STREAM) == 0;
        if !leads {
            nats.step_down(STREAM);
            thread::sleep(Duration::from_secs(1));
        }
        leads
    });
    trial.fault("the disk of a stream's leader is full");
    disk.fill();
    let begun = Instant::now();
    thread::sleep(Duration::from_secs(5));
    trial.wait_for_numbers(&server);
    println!("numbers {:?} after the disk was full", begun.elapsed());
    trial.wait_for_answers(30);
    trial.fault("the disk has room, and its server is started again");
    disk.make_room();
    nats.kill(0);
    nats.restart(0);
    trial.wait_for_numbers(&server);
    trial.judge(&server).assert_clean();
    server.stop();
    drop(nats);
}

#[test]
fn a_full_stream_gives_overflow_until_it_has_room() {
    let Some(nats) = Nats::start(3) else { return };
    let mut trial = Trial::new(&nats.settings());
    let server = trial.start();
    trial.load(&server);
    trial.fault("a stream is full");
    let (_, bytes) = nats.first_and_bytes(STREAM);
    nats.change_stream(STREAM, "max_bytes", bytes + 1);
    wait_until("the journal is not full", || {
        let (status, body) = readiness(&server);
        status == 503 && body.contains("full")
    });
    nats.change_stream(STREAM, "max_bytes", 512 << 20);
    let begun = Instant::now();
    trial.wait_for_numbers(&server);
    println!("numbers {:?} after the stream had room", begun.elapsed());
    trial.wait_for_answers(30);
    trial.judge(&server).assert_clean();
    server.stop();
}

/// Flips single bits in the files that contain the stream's messages. Returns the count of flipped
/// bits.
fn rot(store: &Path) -> usize {
    let messages = store.join("jetstream/$G/streams").join(STREAM).join("msgs");
    let files = fs::read_dir(&messages).unwrap().map(|file| file.unwrap().path());
    let blocks = files.filter(|path| path.extension().is_some_and(|it| it == "blk"));
    let mut flipped = 0;
    for block in blocks {
        let mut bytes = fs::read(&block).unwrap();
        for place in (bytes.len() / 8..bytes.len() / 2).step_by(bytes.len() / 16 + 1) {
            bytes[place] ^= 1;
            flipped += 1;
        }
        fs::write(&block, bytes).unwrap();
    }
    flipped
}

#[test]
fn flipped_bits_of_a_leader_are_never_skipped() {
    let Some(mut nats) = Nats::start(3) else { return };
    let mut trial = Trial::new(&nats.settings());
    let server = trial.start();
    trial.load(&server);
    let rotten = nats.leader(STREAM);
    trial.fault("bits flip in the files of a stopped server, which leads afterwards");
    nats.stop(rotten);
    println!("{} bits flipped", rot(nats.store(rotten)));
    nats.restart(rotten);
    let until = Instant::now() + Duration::from_secs(20);
    while nats.leader(STREAM) != rotten && Instant::now() < until {
        nats.step_down(STREAM);
        thread::sleep(Duration::from_secs(1));
    }
    println!("it leads: {}", nats.leader(STREAM) == rotten);
    trial.wait_for_answers(30);
    trial.fault("another machine without data takes over");
    server.kill();
    fs::remove_dir_all(trial.site.data()).unwrap();
    let server = match Server::try_start(trial.serve()) {
        Ok(server) => server,
        // If no nats-server has an intact copy of a message, the node must refuse to start. It must
        // not skip the message.
        Err(refused) => {
            println!("refused: {}", refused.log);
            assert!(refused.log.contains("of the log of shard"), "{}", refused.log);
            return;
        }
    };
    trial.wait_for_numbers(&server);
    // If the leader has lost a message, a look-up reads it from another server.
    trial.judge(&server).assert_clean();
    server.stop();
}
