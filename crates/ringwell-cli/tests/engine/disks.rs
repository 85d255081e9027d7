//! Disks of the servers: without power, slow, full, and with flipped bits; and streams that are
//! full.

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
use crate::support::server::Server;
use crate::trial::{Trial, wait_until};

const STREAM: &str = "RINGWELL_0";

/// One disk for each of three servers, mounted below `folder`.
fn images(folder: &Path) -> Option<Vec<Image>> {
    (0..3).map(|index| Image::mount_new(&folder.join(format!("disk{index}")))).collect()
}

fn places(images: &[Image]) -> Vec<PathBuf> {
    images.iter().map(|image| image.at.clone()).collect()
}

/// All machines lose power at once; the node loses its disk, too. Returns whether the checker or
/// the restarted node found that something was lost.
fn power_cut(setting: &str) -> Option<bool> {
    let folder = TempDir::new().unwrap();
    let images = images(folder.path())?;
    // A node would refuse servers that do not flush, so it is shown these settings.
    let shown = Nats::start(1)?;
    let stores = places(&images);
    let mut nats = Nats::start_in(&Layout { setting, stores: &stores, ..Layout::default() })?;
    let monitor =
        shown.settings().lines().find(|line| line.contains("monitor")).unwrap().to_owned();
    let settings = nats.settings();
    let settings =
        settings.lines().map(|line| if line.contains("monitor") { &monitor } else { line });
    let mut trial = Trial::new(&(settings.collect::<Vec<_>>().join("\n") + "\n"));
    let server = trial.start();
    trial.fault("three disks in files on one disk: some groups take longer than 250 ms");
    trial.load(&server);
    trial.wait_for_answers(200);
    trial.fault("power cut of all servers; the node's disk is lost");
    images.iter().for_each(Image::cut_power);
    server.kill();
    nats.kill_all();
    fs::remove_dir_all(trial.site.data()).unwrap();
    images.iter().for_each(Image::mount_again);
    (0..3).for_each(|index| nats.restart(index));
    let server = match Server::try_start(trial.serve()) {
        Ok(server) => server,
        Err(refused) => {
            println!("the start is refused: {}", refused.log);
            return Some(true);
        }
    };
    trial.wait_for_numbers(&server);
    let verdict = trial.judge(&server);
    server.stop();
    // Dropped before their mount points are removed.
    drop(nats);
    drop(images);
    println!("violations: {}", verdict.0["violations"]);
    // Overflow while the disks are slow is excused by the first fault.
    Some(verdict.0["violations"].as_object().is_none_or(|broken| !broken.is_empty()))
}

#[test]
fn answered_allocations_survive_a_power_cut_of_all_servers() {
    assert_ne!(power_cut("sync_interval: always"), Some(true));
}

/// Shows that the test above can fail.
#[test]
fn servers_that_flush_later_lose_answered_allocations_in_a_power_cut() {
    assert_ne!(power_cut("sync_interval: \"2m\""), Some(false));
}

/// A limit on the writes of one process to one disk.
struct Throttle(PathBuf);

impl Throttle {
    /// From now on the process makes this many writes a second at most; `None` if that is not
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
    server.says("asking another one to lead");
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

/// Flips a bit in each of several places of the files of a stream's messages.
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
        // No server has the messages: refused, and nothing was skipped.
        Err(refused) => {
            println!("refused: {}", refused.log);
            assert!(refused.log.contains("of the log of shard"), "{}", refused.log);
            return;
        }
    };
    trial.wait_for_numbers(&server);
    // A look-up asks another server for a message that the leader has lost.
    trial.judge(&server).assert_clean();
    server.stop();
}
