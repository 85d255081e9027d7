//! Tests a single server whose data directory was restored from a copy. Its journals lack the
//! allocations that were answered after the copy was made.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::batch;
use support::client::Client;
use support::server::{Server, ringwell};
use support::site::{Pool, Site, TOKEN};

const LONG: Duration = Duration::from_mins(1);

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// Creates a site. Returns the site, a copy of its data, and the number that was handed out after
/// the copy was made.
fn site_with_copy() -> (Site, tempfile::TempDir, u64) {
    let site = Site::new(vec![Pool::new(1, 3, LONG)], "shards = 1");
    let server = Server::start(site.serve(&[]));
    batch::one(&mut server.client(), &site.pools[0], "before");
    server.stop();
    let folder = tempfile::TempDir::new().unwrap();
    copy(site.data(), &folder.path().join("copy"));
    let server = Server::start(site.serve(&[]));
    let row = batch::one(&mut server.client(), &site.pools[0], "since");
    assert!(!row.overflow);
    server.kill();
    std::fs::remove_dir_all(site.data()).unwrap();
    (site, folder, row.number)
}

fn is_overflow(server: &Server, site: &Site) -> bool {
    batch::one(&mut server.client(), &site.pools[0], "after").overflow
}

#[test]
fn a_copy_served_as_restored_hands_out_nothing_for_a_lifetime() {
    let (site, folder, _) = site_with_copy();
    copy(&folder.path().join("copy"), site.data());
    let server = Server::start(site.serve(&["--restored"]));
    assert!(is_overflow(&server, &site));
    assert!(server.log().contains("restored from a copy"), "{}", server.log());
    assert!(server.log().contains("no action is needed"), "{}", server.log());
    server.kill();
    // The hold is now in the journal, so a restart does not begin a new hold.
    let server = Server::start(site.serve(&[]));
    assert!(is_overflow(&server, &site));
    assert!(!server.log().contains("restored from a copy"), "{}", server.log());
}

#[test]
fn the_dashboard_names_held_pools_before_it_calls_them_too_small() {
    let settings = "management.address = \"127.0.0.1:0\"\nmanagement.dashboard = true";
    let site = Site::new(vec![Pool::new(1, 3, LONG)], settings);
    let server = Server::start(site.serve(&["--restored"]));
    server.says("\"message\":\"management\"");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("\"message\":\"management\"")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let mut client = Client::connect(line["address"].as_str().unwrap()).unwrap();
    let answer = client.post("/ui/login", &[], &format!("token={TOKEN}")).unwrap();
    let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let page = client.get("/ui/now.json", &[("cookie", &cookie)]).unwrap().json();
    let first = page["findings"][0]["what"].as_str().unwrap();
    assert!(first.starts_with("Some ring pools are held for another "), "{page:#}");
}

#[test]
fn ringwell_restore_prepares_a_copy_so_that_the_next_start_holds_all_pools() {
    let (site, folder, _) = site_with_copy();
    let (data, copy) = (site.data().to_str().unwrap(), folder.path().join("copy"));
    let restore = || ringwell(&["restore", copy.to_str().unwrap(), data]).output().unwrap();
    let done = restore();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8_lossy(&done.stdout);
    let lifetime = humantime::format_duration(LONG);
    assert!(said.contains(&format!("overflow numbers for {lifetime}, the longest")), "{said}");
    let server = Server::start(site.serve(&[]));
    assert!(is_overflow(&server, &site));
    let in_use = String::from_utf8(restore().stderr).unwrap();
    assert!(in_use.contains(&format!("in use by process {}", server.pid())), "{in_use}");
    server.stop();
    let again = restore();
    assert_eq!(again.status.code(), Some(1), "existing files are not replaced");
}

#[test]
fn a_restore_that_was_killed_can_be_run_again() {
    let (site, folder, _) = site_with_copy();
    let (data, copy) = (site.data(), folder.path().join("copy"));
    // A limit on the size of files kills the program while it copies a segment.
    let killed = Command::new("sh")
        .args(["-c", "ulimit -f 64; exec \"$0\" restore \"$1\" \"$2\""])
        .arg(env!("CARGO_BIN_EXE_ringwell"))
        .args([&copy, data])
        .status()
        .unwrap();
    assert_eq!(killed.code(), None, "killed by a signal");
    // The server refuses to use an incomplete copy.
    let interrupted = refused_start(&site, &[]);
    assert!(interrupted.contains("a restore was interrupted"), "{interrupted}");
    assert_eq!(refused_start(&site, &["--durability", "memory"]), interrupted);
    // Simulates a restore that was killed slightly earlier than the one above.
    std::fs::remove_dir_all(data.join(".restoring")).unwrap();
    std::fs::create_dir(data.join(".restoring")).unwrap();
    std::fs::remove_file(data.join("RESTORED")).unwrap();
    assert_eq!(refused_start(&site, &[]), interrupted);
    let restore = ["restore", copy.to_str().unwrap(), data.to_str().unwrap()];
    let again = ringwell(&restore).output().unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let server = Server::start(site.serve(&[]));
    assert!(is_overflow(&server, &site));
}

/// A server that stores nothing cannot hold the pools. In earlier versions, it ignored the flag and
/// handed out numbers at once.
#[test]
fn a_server_in_memory_refuses_the_flag_for_restored_data() {
    let site = Site::new(vec![Pool::new(1, 3, LONG)], "");
    let said = refused_start(&site, &["--durability", "memory", "--restored"]);
    assert!(said.contains("--restored has no effect with durability `memory`"), "{said}");
    assert!(!site.data().exists());
}

/// Checks that the server refuses to start. Returns the error message.
fn refused_start(site: &Site, flags: &[&str]) -> String {
    let output = site.serve(flags).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

/// Checks that `ringwell restore` fails. Returns the error message.
fn refused(copy: &Path, data: &Path) -> String {
    let output =
        ringwell(&["restore", copy.to_str().unwrap(), data.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_copy_is_not_restored_into_itself() {
    let (_site, folder, _) = site_with_copy();
    let copy = folder.path().join("copy");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&copy, &link).unwrap();
    let before = std::fs::read_dir(&copy).unwrap().count();
    for (copy, data) in
        [(&copy, copy.join("sub")), (&copy, link.join("a/b")), (&link, copy.join("journal/new"))]
    {
        let said = refused(copy, &data);
        assert!(said.contains("is inside the copy"), "{said}");
    }
    assert_eq!(std::fs::read_dir(&copy).unwrap().count(), before);
    let said = refused(&copy, folder.path());
    assert!(said.contains("is not empty"), "{said}");
}

#[test]
fn a_directory_in_use_is_not_restored_from() {
    let site = Site::new(vec![Pool::new(1, 3, LONG)], "shards = 1");
    let server = Server::start(site.serve(&[]));
    let folder = tempfile::TempDir::new().unwrap();
    let new = folder.path().join("new");
    let said = refused(site.data(), &new);
    assert!(said.contains(&format!("in use by process {}", server.pid())), "{said}");
    assert!(!new.exists());
    server.stop();
    let (data, new) = (site.data().to_str().unwrap(), new.to_str().unwrap());
    assert!(ringwell(&["restore", data, new]).status().unwrap().success());
}

#[test]
fn a_damaged_copy_is_not_restored() {
    let site = Site::new(vec![Pool::new(1, 3, LONG)], "shards = 1");
    let server = Server::start(site.serve(&[]));
    batch::one(&mut server.client(), &site.pools[0], "before");
    server.stop();
    let folder = tempfile::TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let config = site.config();
    let taken = ringwell(&["backup", "--config", config.to_str().unwrap(), "--to"])
        .arg(path("backup"))
        .output()
        .unwrap();
    assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
    copy(site.data(), &path("plain"));
    // A backup is checked against the list of its files, but a plain copy has no such list.
    let list = path("backup/journal/0/anything");
    std::fs::write(&list, "x").unwrap();
    let said = refused(&path("backup"), &path("new"));
    assert!(said.contains("files that are not listed in"), "{said}");
    assert!(!path("new").exists());
    std::fs::remove_file(list).unwrap();
    std::fs::write(path("plain/directory.sqlite"), "no database").unwrap();
    let said = refused(&path("plain"), &path("new"));
    assert!(said.contains("directory.sqlite"), "{said}");
    assert!(!path("new").exists());
    let (backup, new) = (path("backup"), path("new"));
    let done = ringwell(&["restore", backup.to_str().unwrap(), new.to_str().unwrap()]).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // If the backup's list were also restored into the data directory, a later copy of the data
    // would no longer match it, and would be refused.
    assert!(!new.join("backup.json").exists());
}

#[test]
fn a_data_directory_whose_journal_was_removed_holds_all_pools() {
    let (site, folder, _) = site_with_copy();
    copy(&folder.path().join("copy"), site.data());
    std::fs::remove_dir_all(site.data().join("journal")).unwrap();
    let server = Server::start(site.serve(&[]));
    assert!(is_overflow(&server, &site));
}

/// Creates a site with eight pools on two shards.
fn site_of_two_shards(lifetime: Duration) -> Site {
    let pools = (1..9).map(|id| Pool::new(id, 3, lifetime)).collect();
    Site::new(pools, "shards = 2")
}

/// Requests a number from each pool, and returns the count of overflow numbers.
fn overflow(server: &Server, site: &Site) -> usize {
    let one = |pool| batch::one(&mut server.client(), pool, "a").overflow;
    site.pools.iter().filter(|pool| one(pool)).count()
}

/// Lists the segments in a shard's directory.
fn segments(journal: &Path) -> Vec<std::path::PathBuf> {
    let paths = std::fs::read_dir(journal).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|kind| kind == "rpj")).collect()
}

/// All pools must be held if the journal directory of shard 0 is missing, is empty (as if a volume
/// were not mounted), or contains only the first snapshot.
#[test]
fn a_data_directory_without_the_journal_of_one_shard_holds_all_pools() {
    for lost in ["directory", "files", "segments"] {
        let site = site_of_two_shards(LONG);
        let server = Server::start(site.serve(&[]));
        assert_eq!(overflow(&server, &site), 0);
        let journal = site.data().join("journal/0");
        if lost == "segments" {
            server.kill();
            for segment in segments(&journal) {
                std::fs::remove_file(segment).unwrap();
            }
        } else {
            server.stop();
            std::fs::remove_dir_all(&journal).unwrap();
        }
        if lost == "files" {
            std::fs::create_dir(&journal).unwrap();
        }
        let data = site.data().to_str().unwrap();
        for words in [&["journal", "verify", data][..], &["doctor", "--data", data]] {
            let done = ringwell(words).output().unwrap();
            let said = String::from_utf8_lossy(&done.stdout);
            assert_eq!(done.status.code(), Some(1), "{said}");
            assert!(said.contains("the journal that shard 0 wrote last is missing"), "{said}");
        }
        let server = Server::start(site.serve(&[]));
        assert_eq!(overflow(&server, &site), site.pools.len(), "{lost}");
        assert!(server.log().contains("a different journal of this shard"), "{}", server.log());
        server.kill();
        // The hold was stored in the journal, so a restart does not begin a new hold.
        let server = Server::start(site.serve(&[]));
        assert_eq!(overflow(&server, &site), site.pools.len());
        assert!(!server.log().contains("a different journal of this shard"), "{}", server.log());
    }
}

/// If a server has fewer shards than before, it keeps the removed shards' journals, because they
/// contain history. If one of these journals is lost, all pools must be held once.
#[test]
fn a_lost_journal_of_a_former_shard_holds_all_pools_once() {
    let lifetime = Duration::from_secs(2);
    let site = site_of_two_shards(lifetime);
    Server::start(site.serve(&[])).stop();
    Server::start(site.serve(&["--shards", "1"])).stop();
    std::fs::remove_dir_all(site.data().join("journal/1")).unwrap();
    let server = Server::start(site.serve(&["--shards", "1"]));
    assert!(server.log().contains("a different journal of this shard"), "{}", server.log());
    let until = std::time::Instant::now() + 15 * lifetime;
    while overflow(&server, &site) > 0 {
        assert!(std::time::Instant::now() < until, "held for too long");
        std::thread::sleep(lifetime / 20);
    }
    server.stop();
    let server = Server::start(site.serve(&["--shards", "1"]));
    assert!(!server.log().contains("a different journal of this shard"), "{}", server.log());
    assert_eq!(overflow(&server, &site), 0);
}

/// While the server had one shard, shard 0 owned all numbers. For the numbers that shard 1 owned
/// later, the journal of shard 0 contains only the visitors from that time.
#[test]
fn of_a_missing_journal_no_earlier_visitor_is_named() {
    let lifetime = Duration::from_secs(1);
    let pools = (1..9).map(|id| Pool::new(id, 1, lifetime)).collect();
    let site = Site::new(pools, "shards = 2");
    let mut seen = Vec::new();
    for shards in ["1", "2"] {
        let server = Server::start(site.serve(&["--shards", shards]));
        let mut client = server.client();
        seen = site.pools.iter().map(|pool| batch::one(&mut client, pool, shards).number).collect();
        std::thread::sleep(2 * lifetime);
        server.stop();
    }
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let outcomes = |server: &Server| -> Vec<String> {
        let look_up = |number: &u64| {
            let at = u64::try_from(now).unwrap() - 300;
            let found = batch::attribution(&mut server.client(), *number, at).unwrap();
            found["outcome"].as_str().unwrap().to_owned()
        };
        seen.iter().map(look_up).collect()
    };
    std::fs::remove_dir_all(site.data().join("journal/1")).unwrap();
    let copy = site.config().with_file_name("copy");
    let mut backup = ringwell(&["backup", "--data", site.data().to_str().unwrap(), "--to"]);
    let refused = backup.arg(&copy).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success()
            && said.contains("the journal that shard 1 wrote last is missing"),
        "{said}"
    );
    let server = Server::start(site.serve(&[]));
    assert!(server.log().contains("a different journal of this shard"), "{}", server.log());
    assert_eq!(outcomes(&server), vec!["not_kept"; seen.len()]);
}

/// If a shard's journal is missing for a while and then returns, all pools must be held again,
/// because it lacks the allocations that were answered in the meantime.
#[test]
fn a_journal_that_is_brought_back_later_holds_all_pools_again() {
    let lifetime = Duration::from_secs(5);
    let site = site_of_two_shards(lifetime);
    Server::start(site.serve(&[])).stop();
    let (journal, away) = (site.data().join("journal/0"), site.data().join("away"));
    std::fs::rename(&journal, &away).unwrap();
    let server = Server::start(site.serve(&[]));
    let until = std::time::Instant::now() + 6 * lifetime;
    while overflow(&server, &site) > 0 {
        assert!(std::time::Instant::now() < until, "held for too long");
        std::thread::sleep(lifetime / 20);
    }
    server.kill();
    std::fs::remove_dir_all(&journal).unwrap();
    std::fs::rename(&away, &journal).unwrap();
    let server = Server::start(site.serve(&[]));
    assert_eq!(overflow(&server, &site), site.pools.len());
    assert!(server.log().contains("a different journal of this shard"), "{}", server.log());
}

/// All pools must be held with the copy of a journal and again with the original, because each
/// lacks the allocations that were answered while the other was in use.
#[test]
fn an_older_copy_of_a_journal_and_then_the_original_hold_all_pools() {
    let lifetime = Duration::from_secs(5);
    let site = site_of_two_shards(lifetime);
    Server::start(site.serve(&[])).stop();
    let [journal, copy, away] = ["journal/0", "copy", "away"].map(|name| site.data().join(name));
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(&journal).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let server = Server::start(site.serve(&[]));
    assert_eq!(overflow(&server, &site), 0);
    server.kill();
    for (from, to) in [(&journal, &away), (&copy, &journal), (&journal, &copy), (&away, &journal)] {
        std::fs::rename(from, to).unwrap();
        if to != &journal {
            continue;
        }
        let server = Server::start(site.serve(&[]));
        assert_eq!(overflow(&server, &site), site.pools.len());
        assert!(server.log().contains("a different journal of this shard"), "{}", server.log());
        server.stop();
    }
}

#[test]
fn a_boot_without_an_orderly_stop_holds_all_pools_with_durability_os() {
    let settings = "shards = 1\ndurability = \"os\"";
    let site = Site::new(vec![Pool::new(1, 9, LONG)], settings);
    let record = site.data().join("unflushed.json");
    // As long as the machine is not rebooted, killing the process loses no data.
    for _ in 0..2 {
        let server = Server::start(site.serve(&[]));
        assert!(!is_overflow(&server, &site));
        server.kill();
    }
    let boots =
        |server: &Server| server.log().matches("rebooted without an orderly shutdown").count();
    std::fs::write(&record, r#"{"boot":1}"#).unwrap();
    let server = Server::start(site.serve(&[]));
    assert!(is_overflow(&server, &site));
    assert_eq!(boots(&server), 1, "{}", server.log());
    server.kill();
    // The hold is now in the journal, so a restart does not begin a new hold.
    let server = Server::start(site.serve(&[]));
    assert!(is_overflow(&server, &site));
    assert_eq!(boots(&server), 0, "{}", server.log());
    server.stop();
    assert!(!record.exists(), "an orderly stop flushes everything");
}

/// Removes a group from the newest segment, but not the groups after it, as a power cut may do.
fn lose_a_group(site: &Site) {
    let files = std::fs::read_dir(site.data().join("journal/0")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let newest = paths.filter(|path| path.extension().is_some_and(|it| it == "rpj")).max().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    let mut written: Vec<&mut [u8]> = bytes.chunks_exact_mut(4096).collect();
    written.retain(|block| block.iter().any(|byte| *byte != 0));
    let place = written.len() - 3;
    written[place].fill(0);
    std::fs::write(&newest, bytes).unwrap();
}

#[test]
fn with_durability_os_a_start_after_a_power_cut_survives_the_loss_of_any_group() {
    let site = Site::new(vec![Pool::new(1, 9, LONG)], "shards = 1\ndurability = \"os\"");
    let server = Server::start(site.serve(&[]));
    for visitor in 0..6 {
        let name = visitor.to_string();
        assert!(!batch::one(&mut server.client(), &site.pools[0], &name).overflow);
    }
    server.kill();
    lose_a_group(&site);
    // The machine was not rebooted, so the missing group counts as damage.
    let refused = Server::try_start(site.serve(&[])).unwrap_err().log;
    assert!(refused.contains("must not be cut"), "{refused}");
    std::fs::write(site.data().join("unflushed.json"), r#"{"boot":1}"#).unwrap();
    let cuts = |server: &Server| server.log().matches("the journal is cut before group").count();
    let server = Server::start(site.serve(&[]));
    assert!(is_overflow(&server, &site));
    assert_eq!(cuts(&server), 1, "{}", server.log());
    server.kill();
    let server = Server::start(site.serve(&[]));
    assert!(is_overflow(&server, &site));
    assert_eq!(cuts(&server), 0, "{}", server.log());
}

/// A function that changes `unflushed.json`, which a killed process leaves behind.
type Change = fn(&mut serde_json::Value);

#[test]
fn the_reason_of_a_hold_is_the_boot_the_mount_or_the_failed_write() {
    let held = |change: Change| {
        let settings = "shards = 1\ndurability = \"os\"";
        let site = Site::new(vec![Pool::new(1, 9, LONG)], settings);
        Server::start(site.serve(&[])).kill();
        let record = site.data().join("unflushed.json");
        let mut fields = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
        change(&mut fields);
        std::fs::write(&record, fields.to_string()).unwrap();
        let server = Server::start(site.serve(&[]));
        let is_held = is_overflow(&server, &site);
        (is_held, server.log())
    };
    let changes: [(Change, &str); 3] = [
        (|fields| fields["boot"] = 1.into(), "the machine was rebooted"),
        (|fields| fields["mount"] = 1.into(), "was remounted"),
        (|fields| *fields = serde_json::json!({"boot": 0}), "a write or a flush failed"),
    ];
    for (change, reason) in changes {
        let (is_held, log) = held(change);
        let said = changes.iter().map(|(_, reason)| *reason).filter(|it| log.contains(*it));
        assert_eq!((is_held, said.collect::<Vec<_>>()), (true, vec![reason]), "{log}");
    }
    // Earlier versions wrote `unflushed.json` in this form.
    let (is_held, log) = held(|fields| *fields = serde_json::json!({"boot": fields["boot"]}));
    assert!(!is_held, "{log}");
}

/// The copied data contains nothing about the pool that is added after the restore. That pool has
/// the longest lifetime of all, and must be held for that long.
#[test]
fn a_pool_that_appears_after_a_restored_start_is_held_for_its_own_lifetime() {
    let short = Duration::from_millis(300);
    let mut site = Site::new(vec![Pool::new(1, 3, short)], "shards = 1");
    Server::start(site.serve(&[])).stop();
    let server = Server::start(site.serve(&["--restored"]));
    std::thread::sleep(4 * short);
    site.write(vec![Pool::new(1, 3, short), Pool::new(2, 3, LONG)]);
    server.reload();
    let is_overflow =
        |pool: &Pool| batch::one(&mut server.client(), pool, "after the reload").overflow;
    assert!(!is_overflow(&site.pools[0]));
    assert!(is_overflow(&site.pools[1]));
}

/// An allocation that was lost with the journal may have been guaranteed for a longer lifetime than
/// the pool has now. The lifetime is shortened once by a reload and once while the server is
/// stopped.
#[test]
fn a_hold_for_lost_answers_outlasts_lifetimes_from_before_they_were_shortened() {
    let short = Duration::from_millis(300);
    for is_reloaded in [true, false] {
        let mut site = Site::new(vec![Pool::new(1, 3, LONG)], "shards = 1");
        let server = Server::start(site.serve(&[]));
        assert!(!is_overflow(&server, &site));
        site.write(vec![Pool::new(1, 3, short)]);
        if is_reloaded {
            server.reload();
        }
        server.kill();
        std::fs::remove_dir_all(site.data().join("journal")).unwrap();
        let server = Server::start(site.serve(&[]));
        std::thread::sleep(4 * short);
        assert!(is_overflow(&server, &site), "{is_reloaded}");
    }
}

/// All lockouts from before the copy was made have ended. Attribution is uncertain for calls between
/// the copy and the restart, and from just before the copy.
#[test]
fn a_call_during_the_missing_part_of_a_copy_is_not_attributed_to_an_earlier_visitor() {
    let short = Duration::from_millis(300);
    let site = Site::new(vec![Pool::new(1, 1, short), Pool::new(2, 1, short)], "shards = 2");
    let server = Server::start(site.serve(&[]));
    let before = batch::one(&mut server.client(), &site.pools[0], "before");
    let began = now_ms() + 1;
    std::thread::sleep(2 * short);
    server.stop();
    let folder = tempfile::TempDir::new().unwrap();
    copy(site.data(), &folder.path().join("copy"));
    let server = Server::start(site.serve(&[]));
    let lost = [0, 1].map(|pool| batch::one(&mut server.client(), &site.pools[pool], "lost"));
    let at = now_ms();
    assert_eq!(lost[0].number, before.number);
    server.kill();
    std::fs::remove_dir_all(site.data()).unwrap();
    copy(&folder.path().join("copy"), site.data());
    for arguments in [&["--restored"][..], &[]] {
        let server = Server::start(site.serve(arguments));
        let outcome = |number, at| {
            let answer = batch::attribution(&mut server.client(), number, at).unwrap();
            answer["outcome"].as_str().unwrap().to_owned()
        };
        for number in lost.each_ref().map(|row| row.number) {
            assert_eq!(outcome(number, at), "not_kept", "{arguments:?}");
            assert_eq!(outcome(number, now_ms()), "not_kept", "{arguments:?}");
        }
        // This allocation is so recent that it may have been undone in the missing part.
        assert_eq!(outcome(before.number, began), "not_kept", "{arguments:?}");
        server.stop();
    }
    // Numbers that are handed out from now on can be attributed again.
    let server = Server::start(site.serve(&[]));
    std::thread::sleep(2 * short);
    let after = batch::one(&mut server.client(), &site.pools[0], "after");
    assert!(!after.overflow);
    let answer = batch::attribution(&mut server.client(), after.number, now_ms()).unwrap();
    assert_eq!(answer["outcome"], "allocated", "{answer}");
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}
