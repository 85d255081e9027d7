//! The disk space that the history uses, and the duration of look-ups in a long history.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::json;

use super::history::now_ms;
use super::*;

const MIB: u64 = 1 << 20;

/// Returns the disk space used by all files below `path`, in bytes.
fn on_disk(path: &Path) -> u64 {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let bytes = |path: std::path::PathBuf| match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_dir() => on_disk(&path),
        Ok(meta) => meta.blocks() * 512,
        // The file was just removed.
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

/// Returns the number of bytes that the process has written to storage.
fn written(server: &Server) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", server.pid())).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
    line.parse().unwrap()
}

/// Sends a batch with `rows` rows for `pool`, each with these parameters.
fn many(client: &mut Client, pool: &Pool, rows: usize, parameters: &str) -> Vec<batch::Row> {
    let row = json!({"api_suffix": pool.suffix(parameters), "request_id": "r"});
    let body = json!({"requests": vec![row; rows]}).to_string();
    batch::rows(&client.post(BULK, &[], &body).unwrap())
}

/// The disk space used in addition to the configured history: five segments that wait to be reused,
/// two snapshots of a few kilobytes each, and directories.
const BESIDE: u64 = 5 * MIB + 256 * 1024;

/// Writes a hundred times as much history as configured, as fast as possible.
#[test]
fn the_disk_holds_no_more_history_than_configured_and_an_idle_server_writes_nothing() {
    let configured = "shards = 1\n[journal]\nsegment_bytes = \"1MiB\"\nhistory_bytes = \"4MiB\"\n\
                    spare_segments = 1\nsnapshot_every_bytes = \"1MiB\"";
    let site = Site::new(pools(1, 200, Duration::from_millis(1)), configured);
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let parameters = format!("utm={}", "x".repeat(1_000));
    let journal = site.data().join("journal");
    let (before, start) = (written(&server), Instant::now());
    // The maximum number of bytes on the disk, the maximum number of bytes written in a second, and
    // the beginning of the second that is being measured.
    let (mut most, mut fastest, mut second) = (0, 0, (start, before));
    while written(&server) - before < 400 * MIB {
        many(&mut client, &site.pools[0], 100, &parameters);
        most = most.max(on_disk(&journal));
        if second.0.elapsed() >= Duration::from_secs(1) {
            let now = written(&server);
            fastest = fastest.max(now - second.1);
            second = (Instant::now(), now);
        }
    }
    let took = start.elapsed();
    let until = Instant::now() + Duration::from_secs(20);
    while on_disk(&journal) > 4 * MIB + BESIDE {
        assert!(Instant::now() < until, "{} bytes", on_disk(&journal));
        thread::sleep(Duration::from_millis(50));
    }
    println!("400 MiB in {took:?}, at most {fastest} bytes in a second: {most} bytes on the disk");
    println!("afterwards: {} bytes", on_disk(&journal));
    // Once per second, the server drops the surplus segments that neither of the two kept snapshots
    // needs. The test's limit is twice as high as necessary, to allow for a busy machine.
    assert!(most < 4 * MIB + BESIDE + 4 * fastest, "{most} bytes");
    server.stop();
    let server = Server::start(site.serve(&[]));
    // Startup began a new segment, so the oldest segment is dropped as soon as neither of the two
    // kept snapshots needs it.
    thread::sleep(Duration::from_secs(6));
    let (begun, held) = (written(&server), on_disk(&journal));
    thread::sleep(Duration::from_secs(22));
    let idle = written(&server) - begun;
    println!("written in 22 s without a request: {idle} bytes");
    // An idle server writes the current time to the journal at increasing intervals, one block each
    // time. With a fixed interval of five seconds, it would write four blocks in 22 s.
    assert!(idle <= 2 * 4096, "{idle} bytes");
    assert_eq!(on_disk(&journal), held);
    server.stop();
}

#[test]
fn a_number_with_more_than_100_000_keep_alives_is_looked_up_in_bounded_time() {
    let site = Site::new(pools(1, 1, Duration::from_secs(2)), "shards = 1");
    let pool = site.pools[0].clone();
    let mut server = Server::start(site.serve(&[]));
    let mut client = server.client();
    assert_eq!(batch::one(&mut client, &pool, "before").number, pool.first);
    let before_at = now_ms();
    thread::sleep(Duration::from_millis(2_100));
    let mut kept_at = 0;
    for round in 0..230 {
        let rows = many(&mut client, &pool, 500, "ringwell_visitor=v&id=kept");
        assert!(rows.iter().all(|row| row.number == pool.first), "{rows:?}");
        kept_at = if round == 0 { now_ms() } else { kept_at };
    }
    // The allocation that the newest keep-alive extended is in memory at first. After a restart,
    // the process must find it in the journal.
    for restarted in [false, true] {
        if restarted {
            server.stop();
            server = Server::start(site.serve(&[]));
            client = server.client();
            let rows = many(&mut client, &pool, 2, "ringwell_visitor=v&id=kept");
            assert_eq!(rows[0].number, pool.first);
        }
        for (at, id) in [(now_ms(), "kept"), (kept_at, "kept"), (before_at, "before")] {
            let begun = Instant::now();
            let past = batch::attribution(&mut client, pool.first, at).unwrap();
            let took = begun.elapsed();
            println!("looked up {id}, restarted {restarted}: {took:?}");
            assert_eq!(past["parameters"]["id"], id, "{past}");
            assert!(took < Duration::from_secs(3), "{took:?}");
        }
    }
    server.stop();
}
