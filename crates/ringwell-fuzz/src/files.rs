//! The files that an operator writes: the configuration, the list of pools and the cluster file.

use std::cell::RefCell;
use std::path::PathBuf;

use ringwell_config::{Cluster, ClusterMap, Config, Overrides, load};
use ringwell_core::NumberRange;
use ringwell_directory::{Directory, Fault};
use tempfile::TempDir;

thread_local! {
    /// Each thread uses one folder for all its inputs, because creating a folder takes longer than
    /// reading a file.
    static FOLDER: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// Writes a file into the thread's own folder and returns its path.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    FOLDER.with_borrow_mut(|folder| {
        let folder = folder.get_or_insert_with(|| TempDir::new().unwrap());
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    })
}

fn load_config(path: &std::path::Path) -> Result<(Config, Directory), Vec<Fault>> {
    load(path, |_| None, Overrides::default(), 2)
}

/// Checks any configuration: either it is refused and the positions of its faults are reported, or
/// its pools are consistent.
pub fn config(text: &[u8]) {
    let path = file("ringwell.toml", text);
    match load_config(&path) {
        Ok((_, directory)) => check_directory(&directory),
        Err(faults) => check_faults(&faults, text),
    }
}

/// The pools of a list; `None` if the list is refused.
pub(crate) fn read_list(text: &[u8]) -> Option<Directory> {
    let config = file("csv.toml", b"data = \"data\"\nring_pools = \"pools.csv\"\n");
    file("pools.csv", text);
    load_config(&config).ok().map(|(_, directory)| directory)
}

/// Checks any list of pools: if it is accepted, it can be written to a file and read back
/// unchanged.
pub fn pools_csv(text: &[u8]) {
    let config = file("csv.toml", b"data = \"data\"\nring_pools = \"pools.csv\"\n");
    file("pools.csv", text);
    let directory = match load_config(&config) {
        Ok((_, directory)) => directory,
        Err(faults) => return check_faults(&faults, text),
    };
    check_directory(&directory);
    file("pools.csv", written_out(&directory).as_bytes());
    let (_, again) = load_config(&config).unwrap();
    assert!(again.pools().eq(directory.pools()));
}

/// Checks any cluster file: reading it with or without the secret gives the same map, and no output
/// contains the secret.
pub fn cluster(text: &[u8]) {
    let path = file("cluster.toml", text);
    let map = ClusterMap::load(&path);
    let cluster = match Cluster::load(&path) {
        Ok(cluster) => cluster,
        Err(faults) => return check_faults(&faults, text),
    };
    assert_eq!(Some(cluster.map()), map.as_ref().ok());
    let secret = std::str::from_utf8(cluster.secret()).unwrap();
    // If the secret's text occurs a second time, for example as a node's name, the output may
    // contain that text without revealing the secret.
    let is_once = String::from_utf8_lossy(text).matches(secret).count() == 1;
    let shown = format!("{cluster:?} {:?}", cluster.warnings());
    assert!(!is_once || !shown.contains(secret), "the secret is shown: {shown}");
    assert!(cluster.secret_matches(cluster.secret()));
    assert!(!cluster.secret_matches(&cluster.secret()[1..]));
    for (place, node) in cluster.nodes().iter().enumerate() {
        assert_eq!(cluster.node(&node.name).map(|(place, _)| place), Some(place));
        assert!(node.shards.iter().all(|shard| cluster.node_of(*shard) == place));
    }
}

pub(crate) fn check_directory(directory: &Directory) {
    let mut numbers = 0;
    for pool in directory.pools() {
        let id = pool.id();
        assert!(directory.check_key(directory.lookup(id), pool.key().reveal().as_bytes()));
        assert!(!directory.check_key(directory.lookup(id), b""));
        for range in pool.numbers() {
            for number in [range.first(), range.last()] {
                assert_eq!(directory.pool_by_number(number), Some(id));
                assert!(!directory.is_overflow(number));
            }
        }
        numbers += pool.number_count();
    }
    assert_eq!(directory.number_count(), numbers);
}

fn check_faults(faults: &[Fault], text: &[u8]) {
    assert!(!faults.is_empty(), "refused without a reason");
    let lines = text.split(|byte| *byte == b'\n' || *byte == b'\r').count();
    for fault in faults {
        assert!(!fault.message.is_empty());
        let line = usize::try_from(fault.line.unwrap_or(1)).unwrap();
        assert!((1..=lines + 1).contains(&line), "the file has no such line: {fault}");
    }
}

fn written_out(directory: &Directory) -> String {
    let header = "id,ring_pool_key,next_ring_pool_key,lifetime_seconds,numbers,overflow_number\n";
    let lines = directory.pools().map(|pool| {
        let range = |range: &NumberRange| format!("{}-{}", range.first(), range.last());
        let millis = pool.lifetime().0;
        format!(
            "{},{},{},{}.{:03},{},{}\n",
            pool.id(),
            quoted(pool.key().reveal()),
            quoted(pool.next_key().map_or("", |key| key.reveal())),
            millis / 1000,
            millis % 1000,
            pool.numbers().iter().map(range).collect::<Vec<_>>().join(";"),
            pool.overflow().map_or(String::new(), |number| number.to_string()),
        )
    });
    [header.to_owned()].into_iter().chain(lines).collect()
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
