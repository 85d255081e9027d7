//! Tests which cluster files are accepted, and the faults reported for the others.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ringwell_core::PoolId;
use ringwell_directory::Placement;
use tempfile::TempDir;

use super::*;
use crate::tests::lines;

const SECRET: &str = "a-secret-of-the-tests";

/// Two nodes with two shards each. The first node starts on line 3, the second on line 8.
const GOOD: &str = r#"version = 3
secret_file = "cluster.secret"
[[node]]
name = "a"
shards = [0, 1]
link = "unix:/run/ringwell/a.link"
listen = ["10.0.0.1:8080"]
[[node]]
name = "b"
shards = [3, 2]
link = "10.0.0.2:9000"
listen = ["10.0.0.2:8080", "unix:/run/ringwell/b.sock"]
"#;

/// Loads `toml` as a cluster file, next to a file `cluster.secret` that contains `secret`. Both
/// files have the permissions `mode`.
fn load(toml: &str, secret: &str, mode: u32) -> Result<Cluster, Vec<Fault>> {
    let dir = TempDir::new().unwrap();
    let [file, secret_file] = ["cluster.toml", "cluster.secret"].map(|name| dir.path().join(name));
    fs::write(&file, toml).unwrap();
    fs::write(&secret_file, secret).unwrap();
    for path in [&file, &secret_file] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let folder = format!("{}/", dir.path().display());
    Cluster::load(&file).map_err(|faults| bare(faults, &folder))
}

/// The faults, without the path of the test's folder.
fn bare(faults: Vec<Fault>, folder: &str) -> Vec<Fault> {
    let bare = |fault: Fault| Fault {
        file: fault.file.map(|file| file.replace(folder, "")),
        message: fault.message.replace(folder, ""),
        ..fault
    };
    faults.into_iter().map(bare).collect()
}

/// Asserts that the faults of `toml` are `said`, one per line.
#[track_caller]
fn check(toml: &str, said: &str) {
    let faults = load(toml, SECRET, 0o600).err().unwrap_or_default();
    assert_eq!(lines(&faults), said);
}

/// Like [`check`], but for [`GOOD`] with `new` instead of `old`.
#[track_caller]
fn check_with(old: &str, new: &str, said: &str) {
    assert!(GOOD.contains(old), "{old}");
    check(&GOOD.replacen(old, new, 1), said);
}

#[test]
fn a_cluster_has_nodes_shards_and_addresses() {
    let cluster = load(GOOD, SECRET, 0o600).unwrap();
    assert_eq!((cluster.version(), cluster.shards()), (3, 4));
    assert_eq!([0, 1, 2, 3].map(|shard| cluster.node_of(shard)), [0, 0, 1, 1]);
    let (place, node) = cluster.node("b").unwrap();
    assert_eq!((place, node), (1, &cluster.nodes()[1]));
    assert_eq!(node.shards, [2, 3], "in rising order");
    assert_eq!(node.link, "10.0.0.2:9000".parse().unwrap());
    assert_eq!(node.listen[1], Listen::Unix("/run/ringwell/b.sock".into()));
    assert_eq!(cluster.node("c"), None);
    assert_eq!(cluster.placement(), &Placement::even(4).unwrap(), "shared evenly");
}

#[test]
fn buckets_go_to_the_listed_shards() {
    let rest = "[[buckets]]\nfirst = 1\nlast = 1023\nshard = 0\n";
    let toml = format!("{GOOD}[[buckets]]\nfirst = 0\nlast = 0\nshard = 3\n{rest}");
    let cluster = load(&toml, SECRET, 0o600).unwrap();
    let placement = cluster.placement();
    assert_eq!((placement.shard(PoolId(0)), placement.shard(PoolId(1))), (3, 0));
    assert_eq!([0, 1, 2, 3].map(|shard| placement.buckets_of(shard).count()), [1023, 0, 0, 1]);
}

#[test]
fn the_secret_is_compared_in_full_and_never_printed() {
    for text in [SECRET.to_owned(), format!("{SECRET}\n"), format!("{SECRET} \r\n")] {
        let cluster = load(GOOD, &text, 0o600).unwrap();
        assert!(cluster.secret_matches(SECRET.as_bytes()));
        assert_eq!(cluster.secret(), SECRET.as_bytes());
        for wrong in ["", &SECRET[1..], "A-secret-of-the-tests", &format!("{SECRET}!")] {
            assert!(!cluster.secret_matches(wrong.as_bytes()), "{wrong}");
        }
        assert!(!format!("{cluster:?}").contains(SECRET));
    }
    let inline = GOOD.replace("secret_file = \"cluster.secret\"", "secret = 'in-this-very-file'");
    assert!(load(&inline, "", 0o600).unwrap().secret_matches(b"in-this-very-file"));
}

#[test]
fn a_secret_that_all_users_can_read_causes_a_warning() {
    for mode in [0o600, 0o640] {
        assert_eq!(load(GOOD, SECRET, mode).unwrap().warnings(), []);
    }
    let inline = GOOD.replace("secret_file = \"cluster.secret\"", "secret = 'in-this-very-file'");
    for (toml, file) in [(GOOD, "cluster.secret"), (inline.as_str(), "cluster.toml")] {
        let cluster = load(toml, SECRET, 0o644).unwrap();
        let said = cluster.warnings()[0].to_string();
        assert!(
            said.contains(&format!("/{file}: contains the cluster's secret, but other users")),
            "{said}"
        );
    }
}

#[test]
fn the_map_is_read_without_the_secret() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("cluster.toml");
    for toml in [GOOD, &GOOD.replace("secret_file = \"cluster.secret\"\n", "")] {
        fs::write(&path, toml).unwrap();
        assert_eq!(ClusterMap::load(&path).unwrap().shards(), 4);
    }
}

#[test]
fn the_sample_is_a_cluster() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/cluster.toml");
    let cluster = load(&fs::read_to_string(sample).unwrap(), SECRET, 0o600).unwrap();
    assert_eq!((cluster.version(), cluster.nodes().len(), cluster.shards()), (1, 2, 4));
}

#[test]
fn a_missing_or_malformed_file_is_refused() {
    let faults = Cluster::load(Path::new("nowhere/cluster.toml")).unwrap_err();
    assert!(lines(&faults).starts_with("nowhere/cluster.toml: cannot be read: "), "{faults:?}");
    let faults = load("version = 1\n[[node", SECRET, 0o600).unwrap_err();
    assert!(lines(&faults).starts_with("cluster.toml:2:"), "{faults:?}");
}

#[test]
fn every_missing_field_is_reported_at_once() {
    check(
        "[[node]]\nlink = 1\n[[buckets]]\n",
        "cluster.toml:1: version: is missing; write version = 1\n\
         cluster.toml:1: secret_file: is missing; write e.g. secret_file = \"cluster.secret\"\n\
         cluster.toml:1: node[0].name: is missing; write e.g. name = \"a\"\n\
         cluster.toml:1: node[0].shards: is missing; write e.g. [0, 1]\n\
         cluster.toml:1: node[0].listen: is missing; write e.g. [\"10.0.0.1:8080\"]\n\
         cluster.toml:2: node[0].link: must be text, is a number; write it in quotes\n\
         cluster.toml:3: buckets[0].first: is missing; write e.g. first = 0\n\
         cluster.toml:3: buckets[0].last: is missing; write e.g. last = 1023\n\
         cluster.toml:3: buckets[0].shard: is missing; write e.g. shard = 0\n",
    );
    let header = "version = 1\nsecret = 'in-this-very-file'\n";
    let said = "node: is missing; write [[node]], and below it name, shards, link and listen\n";
    check(header, &format!("cluster.toml:1: {said}"));
}

#[test]
fn an_unknown_field_is_reported_with_a_similar_name() {
    check_with(
        "name = \"b\"",
        "name = \"b\"\nlisen = []",
        "cluster.toml:10: node[1].lisen: there is no such field; did you mean listen?\n",
    );
    check_with(
        "version = 3",
        "version = 3\nsecret_flie = 1",
        "cluster.toml:2: secret_flie: there is no such field; did you mean secret_file?\n",
    );
}

#[test]
fn a_version_is_a_number_above_0() {
    let said = "cluster.toml:1: version: must be a whole number above 0\n";
    check_with("version = 3", "version = 0", said);
    check_with("version = 3", "version = -1", said);
}

#[test]
fn a_secret_is_long_printable_and_unique() {
    let field = "secret_file = \"cluster.secret\"";
    let short = "must have 16 to 256 bytes, has 5";
    check_with(field, "secret = \"short\"", &format!("cluster.toml:2: secret: {short}\n"));
    check_with(
        field,
        "secret = \"sixteen and spaces\"",
        "cluster.toml:2: secret: must be printable ASCII without spaces\n",
    );
    check_with(
        field,
        "secret_file = \"cluster.secret\"\nsecret = \"in-this-very-file\"",
        "cluster.toml:2: secret_file: conflicts with secret; remove one of them\n",
    );
    let faults = load(GOOD, "short\n", 0o600).unwrap_err();
    assert_eq!(lines(&faults), format!("cluster.toml:2: secret_file: cluster.secret: {short}\n"));
    let faults = load(&GOOD.replace(field, "secret_file = \"x\""), SECRET, 0o600).unwrap_err();
    let said = lines(&faults);
    assert!(said.contains("2: secret_file: the file in \""), "{said}");
    assert!(said.contains("No such file") && !said.contains("x:"), "{said}");
    let slashes = GOOD.replace(field, "secret_file = \"MfKQ9r/TwjUP/XYTac\"");
    let said = lines(&load(&slashes, SECRET, 0o600).unwrap_err());
    assert!(said.contains("2: secret_file: the file cannot be read: No such"), "{said}");
}

#[test]
fn a_name_is_simple_and_belongs_to_one_node() {
    let said = "node[1].name: must be 1 to 64 letters, digits, -, _ and .\n";
    for name in ["", "a b", "b:1", "ü"] {
        let new = format!("name = \"{name}\"");
        check_with("name = \"b\"", &new, &format!("cluster.toml:9: {said}"));
    }
    check_with(
        "name = \"b\"",
        "name = \"a\"",
        "cluster.toml:9: node[1].name: is already used by the node on line 4; give each node a \
         different name\n",
    );
}

#[test]
fn shards_are_numbered_from_0_without_gaps_and_each_has_one_node() {
    check_with(
        "[3, 2]",
        "[2, 1]",
        "cluster.toml:10: node[1].shards: contains shard 1, which line 5 already contains; assign \
         each shard to only one node\n",
    );
    check_with(
        "[3, 2]",
        "[3, 6]",
        "cluster.toml:10: node[1].shards: contains shard 6, but no node has 2, 4, 5; number the \
         shards from 0 without gaps\n",
    );
    check_with("[3, 2]", "[256]", "cluster.toml:10: node[1].shards[0]: must be 0 to 255\n");
    check_with(
        "[3, 2]",
        "[]",
        "cluster.toml:10: node[1].shards: must not be empty; write e.g. [0, 1]\n",
    );
}

#[test]
fn an_address_is_reachable_by_others_and_unique() {
    let hint = "; write e.g. \"10.0.0.1:8080\" or \"unix:/run/ringwell/a\"\n";
    for (address, message) in [
        ("10.0.0.2:0", "must have a fixed port"),
        ("0.0.0.0:9000", "must be an address that other machines can reach"),
        ("[::]:9000", "must be an address that other machines can reach"),
        ("unix:b.link", "must be an absolute path, because nodes run in different directories"),
    ] {
        let said = format!("cluster.toml:11: node[1].link: {message}{hint}");
        check_with("10.0.0.2:9000", address, &said);
        let said = format!("cluster.toml:12: node[1].listen[0]: {message}{hint}");
        check_with("10.0.0.2:8080", address, &said);
    }
    check_with(
        "10.0.0.2:9000",
        "here",
        "cluster.toml:11: node[1].link: must be HOST:PORT or unix:PATH; write e.g. \
         \"127.0.0.1:8080\" or \"unix:/run/ringwell.sock\"\n",
    );
    check_with(
        "10.0.0.2:9000",
        "10.0.0.1:8080",
        "cluster.toml:11: node[1].link: contains 10.0.0.1:8080, which line 7 already contains; use \
         each address only once\n",
    );
}

#[test]
fn all_buckets_are_assigned_once_to_existing_shards() {
    let run = |first: u16, last: u16, shard: u16| {
        format!("[[buckets]]\nfirst = {first}\nlast = {last}\nshard = {shard}\n")
    };
    let check_runs = |runs: &[(u16, u16, u16)], said: &str| {
        let runs: String =
            runs.iter().map(|(first, last, shard)| run(*first, *last, *shard)).collect();
        check(&format!("{GOOD}{runs}"), said);
    };
    check_runs(&[(0, 511, 0), (512, 1023, 3)], "");
    check_runs(
        &[(0, 511, 0), (511, 1023, 4)],
        "cluster.toml:18: buckets[1].first: bucket 511 is already listed; assign each bucket to \
         only one shard\ncluster.toml:20: buckets[1].shard: is 4, but no node has this shard; write \
         the number of a shard that a node has\n",
    );
    check_runs(
        &[(1, 510, 0), (512, 1000, 1)],
        "cluster.toml:13: buckets: leave 0, 511, 1001 to 1023 without a shard; assign every bucket \
         from 0 to 1023 to a shard; if the file has no [[buckets]], all buckets are assigned \
         evenly\n",
    );
    check_runs(
        &[(5, 4, 0), (1, 1024, 1)],
        "cluster.toml:15: buckets[0].last: must not be less than first\n\
         cluster.toml:19: buckets[1].last: must be 0 to 1023\n",
    );
}
