//! Measures the cost of journals on three nats-servers, relative to journals on the local disk. One
//! run measures both on the same machine.
//!
//! Ignored by default, because it needs the machine to itself. Run it with
//! `cargo xtask engine --bars`.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringwell_driver::store::{LogNotes, Logs, SharedLog};
use ringwell_nats::NatsLogs;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::servers::{Layout, Nats, NatsClient};
use crate::support::batch::{self, Ask, BULK};
use crate::support::server::{Server, signal};
use crate::support::site::{Pool, Site};
use crate::trial::wait_until;

/// The length of a message in a stream, and of a block that is written to a file and flushed.
const BYTES: usize = 16 << 10;

/// The length of the file whose blocks are overwritten in a loop.
const FILE_BYTES: u64 = 1 << 20;

/// The number of rounds. Measurements are interleaved, because the speed of this machine's disk
/// varies.
const ROUNDS: u32 = 3;

/// The duration of one measurement in a round.
const LENGTH: Duration = Duration::from_secs(4);

const CONNECTIONS: usize = 16;
const ROWS: u64 = 40;

/// The rate, in batches per second, at which latencies are measured.
const RATE: u64 = 1_000;

/// The latencies of one kind of operation.
#[derive(Debug, Default)]
struct Latencies(Vec<Duration>);

impl Latencies {
    fn percentile(&mut self, percent: usize) -> Duration {
        self.0.sort_unstable();
        self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)]
    }
}

/// Prints a figure, its reference, their ratio, and the limit for the ratio.
fn print_ratio(what: &str, figure: f64, reference: f64, bar: &str) -> f64 {
    let ratio = figure / reference;
    println!("{what}: {figure:.2} against {reference:.2}, ratio {ratio:.2}, bar {bar}");
    ratio
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Creates the file that [`flushes`] overwrites.
fn file_to_flush(path: &Path) -> File {
    let file = File::create(path).unwrap();
    file.write_all_at(&vec![1; usize::try_from(FILE_BYTES).unwrap()], 0).unwrap();
    file.sync_all().unwrap();
    file
}

/// Overwrites and flushes blocks of a file that already has its final length.
fn flushes(file: &File, latencies: &mut Latencies) {
    let (block, until) = (vec![7; BYTES], Instant::now() + LENGTH);
    for at in (0..FILE_BYTES).step_by(BYTES).cycle() {
        let begun = Instant::now();
        file.write_all_at(&block, at).unwrap();
        file.sync_data().unwrap();
        latencies.0.push(begun.elapsed());
        if Instant::now() > until {
            return;
        }
    }
}

/// A stream to which two clients append alternately through the same server: a client without
/// Ringwell's code, and Ringwell's adaptor.
struct Appends {
    bare: NatsClient,
    ours: Arc<dyn SharedLog>,
    runtime: Runtime,
    /// The number of the next message.
    n: u64,
    _logs: NatsLogs,
}

impl Appends {
    fn new(nats: &Nats) -> Self {
        let logs = NatsLogs::connect(&nats.replicated("BARE")).unwrap();
        let ours = logs.log(0, "", &LogNotes::default()).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Self { bare: nats.client(), ours, runtime, n: 1, _logs: logs }
    }

    /// Measures one round. Only one message is in flight at any time.
    fn measure(&mut self, bare: &mut Latencies, ours: &mut Latencies) {
        let (body, until) = (vec![b'x'; BYTES], Instant::now() + 2 * LENGTH);
        while Instant::now() < until {
            let begun = Instant::now();
            let answer = self.bare.append("BARE_0", self.n, &body);
            bare.0.push(begun.elapsed());
            assert!(answer.contains("\"seq\""), "{answer}");
            let (begun, message) = (Instant::now(), Bytes::from(body.clone()));
            let appended = self.runtime.block_on(self.ours.append(self.n + 1, message));
            ours.0.push(begun.elapsed());
            appended.unwrap();
            self.n += 2;
        }
    }
}

fn site(more: &str) -> Site {
    // Numbers become free after a second, so that the pools never run out.
    let pools = (1..=20).map(|id| Pool::new(id, 50_000, Duration::from_secs(1)));
    let plain = "shards = 1\njournal.snapshot_every_bytes = \"4GiB\"\n";
    Site::new(pools.collect(), &format!("{plain}{more}"))
}

fn start(site: &Site) -> Server {
    Server::start(site.serve(&["--listen", "127.0.0.1:0"]))
}

fn body(site: &Site) -> String {
    let ask = |at: u64| Ask { pool: at % 20 + 1, id: format!("{at:064}") };
    let asks: Vec<Ask> = (0..ROWS).map(ask).collect();
    batch::body(&asks, &site.pools)
}

/// Sends batches over all connections. Each connection sends the next batch after the previous
/// answer. Returns batches per second, and adds the count of handed-out numbers to `numbers`.
fn closed_loop(site: &Site, server: &Server, numbers: &AtomicU64) -> f64 {
    let (body, is_over, batches) = (body(site), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut client = server.client();
                while !is_over.load(Ordering::Relaxed) {
                    let answer = client.post(BULK, &[], &body).unwrap();
                    numbers.fetch_add(given(&answer.body), Ordering::Relaxed);
                    batches.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(LENGTH);
        is_over.store(true, Ordering::Relaxed);
    });
    count(batches.into_inner()) / LENGTH.as_secs_f64()
}

/// Counts the rows without an overflow number.
fn given(answer: &str) -> u64 {
    let rows = [r#""promo_number""#, r#""overflow":true"#].map(|text| answer.matches(text).count());
    u64::try_from(rows[0].saturating_sub(rows[1])).unwrap()
}

fn count(of: u64) -> f64 {
    f64::from(u32::try_from(of).unwrap())
}

/// Sends batches at a fixed rate, and measures latencies from the scheduled times.
fn open_loop(site: &Site, server: &Server, latencies: &mut Latencies, numbers: &AtomicU64) {
    let (body, begun) = (body(site), Instant::now());
    let apart =
        Duration::from_secs(1) * u32::try_from(CONNECTIONS).unwrap() / u32::try_from(RATE).unwrap();
    let of_one = |index: usize| {
        let (mut client, mut found) = (server.client(), Vec::new());
        let mut due = begun + apart * u32::try_from(index).unwrap() / 16;
        while due < begun + LENGTH {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let answer = client.post(BULK, &[], &body).unwrap();
            found.push(due.elapsed());
            numbers.fetch_add(given(&answer.body), Ordering::Relaxed);
            due += apart;
        }
        found
    };
    thread::scope(|scope| {
        let of_one = &of_one;
        let threads: Vec<_> =
            (0..CONNECTIONS).map(|index| scope.spawn(move || of_one(index))).collect();
        for thread in threads {
            latencies.0.extend(thread.join().unwrap());
        }
    });
}

/// Returns the time that a machine without data needs to read the log, as reported by the server.
fn replay(site: &Site) -> Duration {
    fs::remove_dir_all(site.data()).unwrap();
    let server = start(site);
    let log = server.log();
    let line = log.lines().find(|line| line.contains("took over the shard")).unwrap();
    println!("{line}");
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let took = line["took_ms"].as_u64().or_else(|| line["fields"]["took_ms"].as_u64()).unwrap();
    server.kill();
    Duration::from_millis(took)
}

#[test]
#[ignore = "measures the machine, and needs it alone: `cargo xtask engine --bars`"]
fn journals_on_servers_cost_little_more_than_the_disk() {
    let Some(nats) = Nats::start(3) else { return };
    let mut appends = Appends::new(&nats);
    let on_disk = site("durability = \"disk\"\n");
    let on_servers = site(&nats.settings().replace("512MiB", "1GiB"));
    let [disk, servers] = [&on_disk, &on_servers].map(start);
    let file = file_to_flush(&on_disk.data().with_file_name("flushes"));
    let [mut flushed, mut bare, mut ours, mut disk_times, mut server_times] =
        [(); 5].map(|()| Latencies::default());
    let [mut on_disk_rate, mut on_servers_rate] = [0.0, 0.0];
    let [numbers, ignored] = [(); 2].map(|()| AtomicU64::new(0));
    for _ in 0..ROUNDS {
        flushes(&file, &mut flushed);
        appends.measure(&mut bare, &mut ours);
        open_loop(&on_disk, &disk, &mut disk_times, &ignored);
        open_loop(&on_servers, &servers, &mut server_times, &numbers);
        on_disk_rate += closed_loop(&on_disk, &disk, &ignored) / f64::from(ROUNDS);
        on_servers_rate += closed_loop(&on_servers, &servers, &numbers) / f64::from(ROUNDS);
    }
    servers.kill();
    let [took, numbers] = [replay(&on_servers).as_secs_f64(), count(numbers.into_inner())];
    println!("{ROUNDS} rounds of {LENGTH:?}, interleaved; {CONNECTIONS} connections, {ROWS} rows");
    for (percent, bar) in [(50, "at most 2"), (99, "at most 4")] {
        let [ours, bare, flush] =
            [&mut ours, &mut bare, &mut flushed].map(|it| ms(it.percentile(percent)));
        print_ratio(&format!("append of 16 KiB, p{percent} ms"), ours, flush, bar);
        print_ratio(&format!("append beside a bare client, p{percent} ms"), ours, bare, "none");
    }
    print_ratio("batches a second", on_servers_rate, on_disk_rate, "at least 0.25");
    for percent in [50, 99] {
        let [servers, disk] =
            [&mut server_times, &mut disk_times].map(|it| ms(it.percentile(percent)));
        let bar = if percent == 99 { "at most 4" } else { "none" };
        print_ratio(&format!("{RATE} batches/s, p{percent} ms"), servers, disk, bar);
    }
    print_ratio("records replayed a second, millions", numbers / took / 1e6, 1.0, "at least 1");
    disk.stop();
}

/// A file system on which each flush takes the same time (`bench/slow-disk`). Unmounted when
/// dropped.
struct SlowDisk {
    program: Child,
    at: PathBuf,
    _folder: TempDir,
}

impl SlowDisk {
    fn mount(program: &Path, flush: Duration) -> Self {
        let folder = TempDir::new_in("/dev/shm").unwrap();
        let [stored, at] = ["stored", "at"].map(|name| folder.path().join(name));
        fs::create_dir(&stored).unwrap();
        fs::create_dir(&at).unwrap();
        let mut command = Command::new(program);
        let program = command.args([&stored, &at]).arg(format!("{flush:?}")).spawn().unwrap();
        let device = |of: &Path| fs::metadata(of).unwrap().dev();
        wait_until("the disk is not mounted", || device(&at) != device(folder.path()));
        Self { program, at, _folder: folder }
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        signal(self.program.id(), "TERM");
        self.program.wait().unwrap();
    }
}

#[test]
#[ignore = "measures the machine, and needs it alone: `cargo xtask engine --bars`"]
fn an_append_takes_two_flushes_if_each_server_has_its_own_disk() {
    let Some(program) = std::env::var_os("RINGWELL_SLOW_DISK").map(PathBuf::from) else {
        println!("SKIPPED: RINGWELL_SLOW_DISK does not name the program of bench/slow-disk");
        return;
    };
    for flush in [10, 20].map(Duration::from_millis) {
        let disks = [(); 3].map(|()| SlowDisk::mount(&program, flush));
        let stores = [0, 1, 2].map(|index: usize| disks[index].at.clone());
        let layout = Layout { stores: &stores, ..Layout::default() };
        let Some(nats) = Nats::start_in(&layout) else { return };
        let [mut flushed, mut bare, mut ours] = [(); 3].map(|()| Latencies::default());
        flushes(&file_to_flush(&stores[0].join("flushes")), &mut flushed);
        Appends::new(&nats).measure(&mut bare, &mut ours);
        for (percent, bar) in [(50, "at most 2"), (99, "at most 4")] {
            let [ours, flush] = [&mut ours, &mut flushed].map(|it| ms(it.percentile(percent)));
            print_ratio(&format!("append of 16 KiB, disks apart, p{percent} ms"), ours, flush, bar);
        }
    }
}
