//! Databases for tests: a SQLite file, or a PostgreSQL server that is started for the tests.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ringwell_store::Location;
use tempfile::TempDir;

/// The user id under which PostgreSQL runs, because it refuses to run as root.
const NOBODY: u32 = 65_534;
const PATIENCE: Duration = Duration::from_mins(1);

/// Turns each case into two tests, one with a SQLite file and one with PostgreSQL.
#[allow(unused_macros, reason = "not every program that has the rig runs its tests on both")]
macro_rules! on_both_databases {
    ($($case:ident)*) => {
        mod sqlite {
            $(#[tokio::test] async fn $case() {
                super::$case(super::Rig::sqlite()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test] async fn $case() {
                super::$case(super::Rig::postgres()).await;
            })*
        }
    };
}

/// One empty database. A SQLite file is removed when this value is dropped, and a PostgreSQL
/// database when the test program ends.
pub(crate) struct Rig {
    pub(crate) location: Location,
    _folder: Option<TempDir>,
}

/// A PostgreSQL server that stops when this program ends. The shell that started the server waits
/// until its standard input closes, and then stops the server.
pub(crate) struct Server {
    pub(crate) folder: PathBuf,
    _input: ChildStdin,
    _shell: Child,
}

impl Rig {
    #[allow(dead_code, reason = "not every program has tests on a file")]
    pub(crate) fn sqlite() -> Self {
        let folder = TempDir::new().unwrap();
        let location = Location::File(folder.path().join("directory of 50%.sqlite"));
        Self { location, _folder: Some(folder) }
    }

    #[allow(dead_code, reason = "not every program has tests on another disk")]
    pub(crate) fn sqlite_at(path: PathBuf) -> Self {
        Self { location: Location::File(path), _folder: None }
    }

    pub(crate) fn postgres() -> Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        Self::on(SERVER.get_or_init(Server::start))
    }

    pub(crate) fn on(server: &Server) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("case{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = server.folder.display();
        let created = Command::new(binaries().join("createdb"))
            .args(["--host", &folder.to_string(), "--username", "ringwell", &name])
            .status()
            .unwrap();
        assert!(created.success());
        let folder = folder.to_string().replace('/', "%2F");
        let url = format!("postgres://ringwell@localhost/{name}?host={folder}");
        Self { location: Location::Url(url), _folder: None }
    }
}

#[allow(dead_code, reason = "for programs that make more databases than a server should keep")]
impl Rig {
    /// Drops the database. All connections to it must have been closed.
    pub(crate) fn remove(self) {
        let Location::Url(url) = &self.location else { return };
        let name = url.split(['/', '?']).nth(3).unwrap();
        let folder = url.split('=').next_back().unwrap().replace("%2F", "/");
        let removed = Command::new(binaries().join("dropdb"))
            .args(["--host", &folder, "--username", "ringwell", "--force", name])
            .status()
            .unwrap();
        assert!(removed.success());
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(5432, "")
    }

    /// Starts a server on `port`. The commands in `prepare` first prepare the data directory.
    pub(crate) fn with(port: u16, prepare: &str) -> Self {
        let binaries = binaries();
        let folder = TempDir::new().unwrap().keep();
        let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
        if is_root {
            chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        // The shell stops the server and removes its data when the tests end.
        let script = r#"
            cd "$2" && "$1/initdb" -D data -U ringwell -A trust -E UTF8 > log 2>&1 || exit 1
            echo "listen_addresses = ''" >> data/postgresql.conf
            eval "$3" >> log 2>&1 || exit 1
            "$1/postgres" -D data -k "$2" -p "$4" -c fsync=off >> log 2>&1 &
            read -r _
            kill -INT $!; wait $!; rm -rf "$2"
        "#;
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script, "sh"])
            .arg(&binaries)
            .arg(&folder)
            .arg(prepare)
            .arg(port.to_string())
            .stdin(Stdio::piped());
        if is_root {
            shell.uid(NOBODY).gid(NOBODY);
        }
        let mut shell = shell.spawn().unwrap();
        let mut input = shell.stdin.take().unwrap();
        input.flush().unwrap();
        let started = Instant::now();
        let is_ready = || {
            let mut ask = Command::new(binaries.join("pg_isready"));
            let of = ["--quiet", "--port", &port.to_string(), "--host"];
            ask.args(of).arg(&folder).status().unwrap().success()
        };
        while !is_ready() {
            let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
            assert!(shell.try_wait().unwrap().is_none(), "PostgreSQL ended: {}", log());
            assert!(started.elapsed() < PATIENCE, "PostgreSQL does not start: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { folder, _input: input, _shell: shell }
    }
}

/// Returns the `bin` directory of the newest PostgreSQL version that was installed from Debian's
/// packages.
fn binaries() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin"));
    let newest = found.filter(|bin| bin.join("initdb").exists()).max_by_key(|bin| version(bin));
    newest.unwrap_or_else(|| panic!("PostgreSQL is not installed: apt-get install postgresql"))
}

fn version(bin: &Path) -> u32 {
    let name = bin.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    name.and_then(|name| name.parse().ok()).unwrap_or(0)
}
