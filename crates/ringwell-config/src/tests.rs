//! Tests which configurations are accepted, and the faults reported for the others.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ringwell_directory::{Directory, Fault};
use tempfile::TempDir;

use super::*;

/// The minimum configuration of a server. Its ring pool starts on line 3.
pub(super) const GOOD: &str = r#"
data = "/data"
[[ring_pool]]
id = 16
ring_pool_key = "key-of-16"
lifetime = "30m"
numbers = ["8885550100-8885550149", "8885550160"]
overflow_number = "8885550199"
"#;

/// Loads `toml` on a machine of 3 cores, with a file `pools.csv` containing `csv`.
pub(super) fn load_files(
    toml: &str,
    csv: &str,
    variables: &[(&str, &str)],
    flags: Overrides,
) -> Result<(Config, Directory), Vec<Fault>> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ringwell.toml");
    fs::write(&path, toml).unwrap();
    fs::write(dir.path().join("pools.csv"), csv).unwrap();
    let get = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    load(&path, get, flags, 3).map_err(|faults| {
        let folder = format!("{}/", dir.path().display());
        let bare =
            |fault: Fault| Fault { file: fault.file.map(|f| f.replace(&folder, "")), ..fault };
        faults.into_iter().map(bare).collect()
    })
}

pub(super) fn lines(faults: &[Fault]) -> String {
    faults.iter().fold(String::new(), |text, fault| text + &fault.to_string() + "\n")
}

/// Asserts that the faults of `toml` are `said`, one per line.
#[track_caller]
pub(super) fn check(toml: &str, said: &str) {
    let faults = load_files(toml, "", &[], Overrides::default()).err().unwrap_or_default();
    assert_eq!(lines(&faults), said);
}

/// Like [`check`], but for [`GOOD`] with one change: `line` replaces the line that starts with the
/// same field. If there is no such line, `line` becomes the first line.
#[track_caller]
pub(super) fn check_line(line: &str, said: &str) {
    let field = line.split(' ').next().unwrap_or_default();
    let is_it = |old: &&str| old.split(' ').next() == Some(field);
    let toml = match GOOD.lines().find(is_it) {
        Some(old) => GOOD.replace(old, line),
        None => format!("{line}{GOOD}"),
    };
    check(&toml, said);
}

#[test]
fn missing_settings_have_their_defaults() {
    let (config, directory) = load_files(GOOD, "", &[], Overrides::default()).unwrap();
    assert_eq!(config, Config::new("/data".into(), 3));
    assert_eq!((config.shards, directory.shards()), (3, 3));
    assert_eq!((directory.pool_count(), directory.number_count()), (1, 51));
}

#[test]
fn the_sample_shows_every_setting_with_its_default() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/ringwell.toml");
    let text = fs::read_to_string(sample).unwrap();
    let chosen = text.replace("\"change-me-", "\"of-the-tests-");
    let (config, directory) = load_files(&chosen, "", &[], Overrides::default()).unwrap();
    assert_eq!(config, Config::new("/var/lib/ringwell/data".into(), 3));
    assert_eq!((directory.pool_count(), directory.number_count()), (2, 71));
    let debug = format!("{config:?}");
    let fields = debug.split([' ', '{']).filter_map(|word| word.strip_suffix(':'));
    // Skips settings that have another name in the file than in `Config` or appear there only in
    // comments, and one name that is not a setting.
    let others =
        ["management", "host", "port", "sites", "site_listen", "replicated", "token_variable_wins"];
    for field in fields.filter(|field| !others.contains(field)) {
        assert!(text.contains(field), "{field}");
    }
}

#[test]
fn relative_paths_start_where_the_file_is() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ringwell.toml");
    fs::write(&path, GOOD.replace("/data", "data")).unwrap();
    let (config, _) = load(&path, |_| None, Overrides::default(), 1).unwrap();
    assert_eq!(config.data, dir.path().join("data"));
}

#[test]
fn variables_override_the_file_and_flags_override_variables() {
    let toml = format!("shards = 1\ndeadline = \"1s\"\ndurability = \"os\"{GOOD}");
    let hash = "ab".repeat(32);
    let variables = [
        ("RINGWELL_LISTEN", "unix:/run/r.sock, [::1]:80"),
        ("RINGWELL_SHARDS", "2"),
        ("RINGWELL_DEADLINE", "2s"),
        ("RINGWELL_DATA", ""),
        ("RINGWELL_TOKEN_SHA256", hash.as_str()),
        ("RINGWELL_LOG_FORMAT", "json"),
        ("RINGWELL_LOG_LEVEL", "debug"),
        ("RINGWELL_PORT", "tcp://10.0.0.1:80"),
    ];
    let flags = Overrides { shards: Some(0), data: Some("/flag".into()), ..Overrides::default() };
    let (config, directory) = load_files(&toml, "", &variables, flags).unwrap();
    assert_eq!(config.data, Path::new("/flag"));
    assert_eq!((config.shards, directory.shards()), (3, 3));
    assert_eq!(config.deadline, Duration::from_secs(2));
    assert_eq!(config.durability, Durability::Os);
    let addresses: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["unix:/run/r.sock", "[::1]:80"]);
    assert_eq!(config.management.token_sha256.current().len(), 1);
    assert_eq!((config.log.format, config.log.level.as_str()), (LogFormat::Json, "debug"));
}

#[test]
fn faults_name_the_variable() {
    let variables = [
        ("RINGWELL_LISTEN", "127.0.0.1"),
        ("RINGWELL_SHARDS", "many"),
        ("RINGWELL_DURABILITY", "ram"),
        ("RINGWELL_DEADLINE", "0ms"),
        ("RINGWELL_TOKEN_SHA256", "secret"),
        ("RINGWELL_LOG_FORMAT", "xml"),
        ("RINGWELL_LOG_LEVEL", "a b"),
    ];
    let faults = load_files(GOOD, "", &variables, Overrides::default()).unwrap_err();
    assert_eq!(
        lines(&faults),
        "\
RINGWELL_LISTEN: must be HOST:PORT or unix:PATH; write e.g. \"127.0.0.1:8080\" or \"unix:/run/ringwell.sock\"
RINGWELL_SHARDS: must be 0 to 256 (0: one per core)
RINGWELL_DURABILITY: must be \"disk\", \"os\" or \"memory\"
RINGWELL_DEADLINE: must be 1ms to 60s
RINGWELL_TOKEN_SHA256: the SHA-256 of a token has 64 hexadecimal digits; run `ringwell token` to create a token and print its SHA-256
RINGWELL_LOG_FORMAT: must be \"auto\", \"text\" or \"json\"
RINGWELL_LOG_LEVEL: must be error, warn, info, debug or trace, or a list of levels for modules; write e.g. \"info\" or \"warn,ringwell_node=debug\"
"
    );
}

#[test]
fn every_documented_variable_is_read() {
    for name in VARIABLES {
        let read = Overrides::from_variables(|asked| (asked == name).then(|| "\n".to_owned()));
        let accepts_anything = name == "RINGWELL_DATA";
        assert_eq!(read.is_ok(), accepts_anything, "{name}");
    }
}

#[test]
fn slips_in_the_names_of_variables_are_found() {
    assert_eq!(meant("RINGWELL_SHARD"), Some("RINGWELL_SHARDS"));
    assert_eq!(meant("RINGWELL_LOGLEVEL"), Some("RINGWELL_LOG_LEVEL"));
    assert_eq!(meant("RINGWELL_DTAA"), Some("RINGWELL_DATA"));
    for name in ["RINGWELL_CLUSTR", "RINGWELL_CLUSTERS", "RINGWELL_CLUSTER_"] {
        assert_eq!(meant(name), Some("RINGWELL_CLUSTER"), "{name}");
    }
    for name in ["RINGWELL_NOD", "RINGWELL_NODES"] {
        assert_eq!(meant(name), Some("RINGWELL_NODE"), "{name}");
    }
    assert_eq!(meant("RINGWELL_CONFG"), Some("RINGWELL_CONFIG"));
    // No correction is suggested for variables that are valid, or that belong to other commands, to
    // Kubernetes or to other programs.
    let others = ["RINGWELL_SHARDS", "RINGWELL_NODE", "RINGWELL_TOKEN", "RINGWELL_PORT"];
    for other in others.into_iter().chain(["RINGWELL_SERVICE_HOST", "SHARDS", "RINGWELL_HOME"]) {
        assert_eq!(meant(other), None, "{other}");
    }
}

#[test]
fn a_secret_in_the_place_of_a_field_is_not_shown() {
    let hidden = "contains an unknown field (not shown: it may be a secret)";
    check(&format!("{GOOD}[limits]\nS3CR = 1\n"), &format!("ringwell.toml:10: limits: {hidden}\n"));
    let long = "correcthorsebatterystaplecorrect";
    check(&format!("{long} = 1\n{GOOD}"), &format!("ringwell.toml:1: {hidden}\n"));
}

#[test]
fn a_wrong_server_is_not_also_missing() {
    let servers = "servers = [\"10.0.0.1\"]\nmonitor = [\"http://10.0.0.1:8222\"]\n";
    check(
        &format!("{GOOD}[journal]\nengine = \"nats\"\n{servers}"),
        "ringwell.toml:11: journal.servers[0]: must be an address such as \"nats://10.0.0.1:4222\"\n",
    );
}

#[test]
fn an_unreadable_file_is_named() {
    let faults = load(Path::new("/nowhere/r.toml"), |_| None, Overrides::default(), 1).unwrap_err();
    assert_eq!(
        lines(&faults),
        "/nowhere/r.toml: cannot be read: No such file or directory (os error 2)\n"
    );
}

#[test]
fn malformed_toml_is_reported_by_line_and_column_and_not_shown() {
    let faults = load_files(
        "data = \"/data\"\n[[ring_pool]]\nring_pool_key = top-secret-key\n",
        "",
        &[],
        Overrides::default(),
    )
    .unwrap_err();
    let said = lines(&faults);
    assert!(said.starts_with("ringwell.toml:3:17: is not TOML: "), "{said}");
    assert!(!said.contains("top-secret"), "{said}");
    check("shards = 1\nshards = 2\n", "ringwell.toml:2:1: is not TOML: duplicate key\n");
}

#[test]
fn a_configuration_has_data_and_pools() {
    check(
        "shards = 1\n",
        "\
ringwell.toml: data: is missing; write e.g. data = \"/var/lib/ringwell\", or use --data
ringwell.toml: ring_pool: is missing; add a table [[ring_pool]], or write e.g. ring_pools = \"pools.csv\"
",
    );
    check_line("data = \"\"", "ringwell.toml:2: data: must not be empty\n");
    // A server with an application or a database needs no pools at startup.
    check("data = \"/d\"\n[application]\nurl = \"http://localhost/{id}\"\n", "");
    check("data = \"/d\"\n[directory]\ndatabase = \"sqlite:/d/directory.sqlite\"\n", "");
}

#[test]
fn unknown_fields_are_refused_and_the_nearest_known_is_named() {
    check(
        &format!("{GOOD}colour = 1\n[limits]\nrow = 1\n[journaal]\n"),
        "\
ringwell.toml:9: ring_pool[0].colour: there is no such field
ringwell.toml:11: limits.row: there is no such field; did you mean rows?
ringwell.toml:12: journaal: there is no such field; did you mean journal?
",
    );
}

#[test]
fn types_are_distinguished() {
    check(
        &format!(
            "listen = \"here\"\nshards = \"2\"\ndeadline = 100\ndurability = true\nlimits = 1\n\
             api.bulk_only = \"no\"\njournal.segment_bytes = 1.5\nlog = []\n\
             management.token_sha256 = [1]\n{}",
            GOOD.replace("\"30m\"", "1979-05-27")
        ),
        "\
ringwell.toml:1: listen: must be a list, is text; write it in brackets: [\"…\", \"…\"]
ringwell.toml:2: shards: must be a whole number, is text
ringwell.toml:3: deadline: must be a duration, is a number; write it with its unit in quotes, e.g. \"100ms\"
ringwell.toml:4: durability: must be text, is true or false; write it in quotes
ringwell.toml:5: limits: must be a table, is a number; write [limits] on a separate line
ringwell.toml:6: api.bulk_only: must be true or false, is text
ringwell.toml:7: journal.segment_bytes: must be a size, is a number; write e.g. 65536 or \"64KiB\"
ringwell.toml:8: log: must be a table, is a list; write [log] on a separate line
ringwell.toml:9: management.token_sha256[0]: must be text, is a number; write it in quotes
ringwell.toml:15: ring_pool[0].lifetime: must be text, is a date; write it in quotes
",
    );
    check(
        "data = \"d\"\nring_pool = 3",
        "ringwell.toml:2: ring_pool: must be a list of tables, is a number; \
         write [[ring_pool]] on a separate line\n",
    );
    check(
        "data = \"d\"\nring_pool = [3]",
        "ringwell.toml:2: ring_pool[0]: must be a table, is a number; \
         write [[ring_pool]] on a separate line\n",
    );
    check(
        &format!("{GOOD}\n[calls]\nlisten = \"127.0.0.1:8090\"\ndestination = 3\n"),
        "ringwell.toml:12: calls.destination: must be a list of tables, is a number; \
         write [[calls.destination]] on a separate line\n",
    );
}

#[test]
fn addresses_in_the_list_are_read_as_they_are() {
    check_line(
        "listen = [\"127.0.0.1:80\",\n \"unix:\", \"[1:80\", \"127.0.0.1:99999\"]",
        "\
ringwell.toml:2: listen[1]: must be HOST:PORT or unix:PATH; write e.g. \"127.0.0.1:8080\" or \"unix:/run/ringwell.sock\"
ringwell.toml:2: listen[2]: must be HOST:PORT or unix:PATH; write e.g. \"127.0.0.1:8080\" or \"unix:/run/ringwell.sock\"
ringwell.toml:2: listen[3]: the port must be 1 to 65535, or 0 for any free port; write e.g. \"127.0.0.1:8080\"
",
    );
    check_line(
        "listen = []",
        "ringwell.toml:1: listen: must contain at least one address; write e.g. \
         [\"127.0.0.1:8080\"]\n",
    );
}

#[test]
fn every_limit_has_a_least_and_a_greatest() {
    let refused = [
        ("shards = 257", "must be 0 to 256 (0: one per core)"),
        ("shards = -1", "must be 0 to 256 (0: one per core)"),
        ("deadline = \"61s\"", "must be 1ms to 60s"),
        (
            "deadline = \"soon\"",
            "must be a duration; write it with its unit in quotes, e.g. \"1ms\"",
        ),
        (
            "limits.head_timeout = \"5\"",
            "must be a duration; write it with its unit in quotes, e.g. \"5s\"",
        ),
        ("limits.body_bytes = 1023", "must be 1KiB to 64MiB"),
        (
            "limits.body_bytes = \"64Mb\"",
            "must be a size in bytes, KiB, MiB, GiB or TiB; write e.g. \"64MiB\"",
        ),
        ("limits.rows = 0", "must be 1 to 10000"),
        ("limits.suffix_bytes = \"17KiB\"", "must be 64 bytes to 16KiB"),
        ("limits.request_id_bytes = 7", "must be 8 bytes to 4KiB"),
        ("limits.header_bytes = 2", "must be 1KiB to 1MiB"),
        ("limits.headers = 7", "must be 8 to 1000"),
        ("limits.uri_bytes = \"65KiB\"", "must be 256 bytes to 64KiB"),
        ("limits.connections = 0", "must be 1 to 1000000"),
        ("limits.head_timeout = \"9ms\"", "must be 10ms to 1h"),
        ("limits.body_timeout = \"2h\"", "must be 10ms to 1h"),
        ("limits.idle_timeout = \"2h\"", "must be 10ms to 1h"),
        ("limits.write_timeout = \"2h\"", "must be 10ms to 1h"),
        ("limits.idempotency_rows = -1", "must be 0 to 100000000"),
        ("links.deadline = \"0s\"", "must be 1ms to 60s"),
        ("links.slow = \"51ms\"", "must not be longer than links.deadline"),
        ("links.wait = \"2m\"", "must be 1ms to 60s"),
        ("journal.segment_bytes = \"2GiB\"", "must be 1MiB to 1GiB"),
        ("journal.spare_segments = 17", "must be 0 to 16"),
        ("journal.snapshot_every_bytes = 0", "must be 1MiB to 1TiB"),
        ("journal.history_age = \"59m\"", "must be 1h to 3650 days"),
        ("journal.history_bytes = \"3MiB\"", "must be 4MiB to 1PiB"),
        (
            "log.level = \"\"",
            "must be error, warn, info, debug or trace, or a list of levels for modules; write e.g. \"info\" or \"warn,ringwell_node=debug\"",
        ),
    ];
    for (line, said) in refused {
        let field = line.split(' ').next().unwrap();
        check_line(line, &format!("ringwell.toml:1: {field}: {said}\n"));
    }
}

#[test]
fn no_configuration_shows_its_keys() {
    let (config, directory) = load_files(GOOD, "", &[], Overrides::default()).unwrap();
    assert!(!format!("{config:?} {directory:?}").contains("key-of-16"));
}

#[test]
fn no_message_shows_the_password_in_an_address() {
    let servers = ["nats://me:secret@10.0.0.1:4222", "tls://10.0.0.2:4222", "nats://a:s@b@h:1"];
    let servers = servers.map(str::to_owned).to_vec();
    let shown = Replicated { servers, ..Replicated::default() }.shown_servers();
    assert_eq!(shown, "nats://10.0.0.1:4222, tls://10.0.0.2:4222, nats://h:1");
    check_line(
        "ring_pools = \"postgres://me:secret@host/db\"\n",
        "ringwell.toml:1: ring_pools: must be a path, not the address of a server\n",
    );
}

#[test]
fn fields_of_the_shared_journal_need_its_engine() {
    let why = "applies only to engine = \"nats\"";
    check(
        &format!("{GOOD}[journal]\nservers = [\"nats://10.0.0.1:4222\"]\nreplicas = 3\n"),
        &format!(
            "ringwell.toml:10: journal.servers: {why}\nringwell.toml:11: journal.replicas: {why}\n"
        ),
    );
}

#[test]
fn files_that_are_missing_are_named_with_their_fields() {
    let tls = "[tls]\nlisten = [\"127.0.0.1:0\"]\ncertificate = \"no.pem\"\nkey = \".\"\n";
    let faults = load_files(&format!("{GOOD}{tls}"), "", &[], Overrides::default()).unwrap_err();
    let said = lines(&faults);
    assert!(said.starts_with("ringwell.toml:11: tls.certificate: "), "{said}");
    assert!(said.contains("no.pem: cannot be read: No such file"), "{said}");
    assert!(
        said.contains("ringwell.toml:12: tls.key: ") && said.contains("is a directory"),
        "{said}"
    );
}

#[test]
fn no_two_listeners_have_the_same_address() {
    let calls = "[calls]\nlisten = \"127.0.0.1:8080\"\n";
    let with = |more: &str, said: &str| check(&format!("{GOOD}{more}"), said);
    with(calls, "ringwell.toml:10: calls.listen: conflicts with an address in `listen`\n");
    with(
        "[management]\naddress = \"0.0.0.0:8080\"\ndashboard = true\n",
        "ringwell.toml:10: management.address: conflicts with an address in `listen`\n",
    );
    with(
        "[sites]\nlisten = [\"127.0.0.1:8090\"]\n[calls]\nlisten = \"127.0.0.1:8090\"\n",
        "ringwell.toml:12: calls.listen: conflicts with an address in `sites.listen`\n",
    );
    with(
        "[sites]\nlisten = [\"127.0.0.1:8080\"]\n",
        "ringwell.toml:10: sites.listen: conflicts with an address in `listen`\n",
    );
    with(
        "[sites]\nlisten = [\"0.0.0.0:8080\"]\n",
        "ringwell.toml:10: sites.listen: conflicts with an address in `listen`\n",
    );
    check_line(
        "listen = [\"127.0.0.1:80\", \"127.0.0.1:80\"]",
        "ringwell.toml:1: listen: must not contain the same address twice\n",
    );
    // Port 0 never conflicts, because the system chooses a different port each time.
    with("[management]\naddress = \"127.0.0.1:8080\"\n", "");
    with("[calls]\nlisten = \"127.0.0.1:0\"\n[sites]\nlisten = [\"127.0.0.1:0\"]\n", "");
    let flags =
        Overrides { listen: Some(vec!["127.0.0.1:8090".parse().unwrap()]), ..Overrides::default() };
    let toml = format!("{GOOD}[calls]\n");
    let faults = load_files(&toml, "", &[], flags.clone()).err().unwrap_or_default();
    let default = Calls::default().listen.to_string();
    assert_eq!(faults.is_empty(), default != "127.0.0.1:8090", "{}", lines(&faults));
}

#[test]
fn a_swap_to_a_missing_pool_is_a_fault() {
    let site = "[[site]]\nkey = \"pk_shop\"\norigins = [\"https://shop.example\"]\n\
        [[site.swap]]\nnumber = \"+18005550100\"\nring_pool = 16\n\
        [[site.swap]]\nnumber = \"+18005550101\"\nring_pool = 99\n";
    let said = "ringwell.toml:17: site[0].swap[1].ring_pool: there is no ring pool 99\n";
    check(&format!("{GOOD}{site}"), said);
    // With a database, this is not a fault, because the database may contain the pool.
    check(&format!("{GOOD}{site}[directory]\ndatabase = \"sqlite:pools.sqlite\"\n"), "");
}
