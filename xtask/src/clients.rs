//! Golden clients: runs the programs in `clients/` against a server of this build. Each program
//! uses the usual HTTP and JSON libraries of its language.
//!
//! `clients/setup` installs their libraries. If a client's language is not installed, the client is
//! skipped with a message. If no language is installed, this is an error.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::bench::{Server, free_address};
use crate::shell::{self, is_installed, root, target_dir};

/// The keyword that the clients send and that the attributions must contain.
const KEYWORD: &str = "shoes & söhne / 20% \"off\" <now> + more";
/// A management token for this run only, and its SHA-256.
const TOKEN: &str = "a-token-of-the-tests-0123456789";
const TOKEN_SHA256: &str = "af302123040d812ad3584e5d695d360b9164fe78912d741368fb068de6202952";

/// A program in `clients/`, and the command that runs it.
struct Client {
    name: &'static str,
    command: Command,
    is_installed: bool,
}

/// The folder into which `clients/setup` installs the libraries.
fn home() -> PathBuf {
    target_dir().join("clients")
}

/// Runs every installed client.
///
/// # Errors
/// If a client fails, gets wrong numbers, or has a wrong attribution.
pub(crate) fn run() -> anyhow::Result<()> {
    let work = target_dir().join("clients-work");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    let (here, left_out): (Vec<_>, Vec<_>) =
        clients().into_iter().partition(|client| client.is_installed);
    ensure!(!here.is_empty(), "no client is installed: run clients/setup");
    for client in left_out {
        println!("{:<20} skipped: not installed", client.name);
    }
    let address = free_address()?;
    let config = work.join("ringwell.toml");
    let pools = (1..=here.len()).map(|pool| {
        format!(
            "[[ring_pool]]\nid = {pool}\nring_pool_key = \"key-of-pool-{pool}\"\nlifetime = \"30m\"\n\
             numbers = [\"{0}-{1}\"]\nallow_overflow = false\n",
            number(pool, 0),
            number(pool, 9)
        )
    });
    let settings = format!(
        "data = \"data\"\nlisten = [\"{address}\"]\nshards = 1\ndurability = \"memory\"\n\
         deadline = \"20s\"\nmanagement.token_sha256 = [\"{TOKEN_SHA256}\"]\n{}",
        pools.collect::<String>()
    );
    fs::write(&config, settings)?;
    let mut command = Command::new(target_dir().join("debug/ringwell"));
    command.arg("serve").arg("--config").arg(&config);
    let _server = Server::start(command, address, work.join("log"), None)?;
    let base = format!("http://{address}");
    for (client, pool) in here.into_iter().zip(1..) {
        check(client, pool, &base)?;
    }
    Ok(())
}

/// Returns the number that a pool hands out after it has handed out `turn` other numbers.
fn number(pool: usize, turn: usize) -> u64 {
    8_885_550_000 + (pool * 10 + turn) as u64
}

fn check(mut client: Client, pool: usize, base: &str) -> anyhow::Result<()> {
    let name = client.name;
    let key = format!("key-of-pool-{pool}");
    client.command.args([base, &pool.to_string(), &key, KEYWORD]);
    let printed = shell::output(&mut client.command).context(name)?;
    let of = |turn| number(pool, turn);
    let wanted =
        format!("bulk {} a/b&c {} 7\nsingle {}\nrefused 403 InvalidInput\n", of(0), of(1), of(2));
    ensure!(printed == wanted, "{name} printed\n{printed}not\n{wanted}");
    for turn in 0..3 {
        let url = format!("{base}/v1/attributions?number={}", of(turn));
        let token = format!("authorization: Bearer {TOKEN}");
        let answer = shell::output(Command::new("curl").args(["-sS", "-H", &token, &url]))?;
        let answer: Value = serde_json::from_str(&answer).with_context(|| answer.clone())?;
        let keyword = &answer["parameters"]["keyword"];
        ensure!(keyword == KEYWORD, "{name}: {keyword} was attributed, not {KEYWORD:?}");
    }
    println!("{name:<20} works");
    Ok(())
}

fn clients() -> Vec<Client> {
    let (folder, home) = (root().join("clients"), home());
    let client = |name, program: &Path, arguments: &[&str], file: &str| {
        let mut command = Command::new(program);
        command.args(arguments).arg(folder.join(file));
        let is_there = if program.is_absolute() {
            program.is_file()
        } else {
            is_installed(&program.to_string_lossy())
        };
        Client { name, command, is_installed: is_there }
    };
    let python = home.join("python/bin/python");
    let mut axios = client("axios", Path::new("node"), &[], "axios.cjs");
    let modules = home.join("node/node_modules");
    axios.is_installed &= modules.join("axios").is_dir();
    axios.command.env("NODE_PATH", modules);
    let mut java = client("Java HttpClient", Path::new("java"), &[], "java/Client.java");
    java.is_installed &= is_installed("javac") && gson(&home).is_some();
    let libraries = gson(&home).unwrap_or_default();
    let file = folder.join("java/Client.java");
    java.command = Command::new("java");
    java.command.arg("-cp").arg(libraries).arg(file);
    let has_curl = is_installed("php")
        && shell::output(Command::new("php").arg("-m")).is_ok_and(|all| all.contains("curl"));
    let mut php_curl = client("PHP curl", Path::new("php"), &[], "curl.php");
    php_curl.is_installed &= has_curl;
    let program = home.join("dotnet/Client.exe");
    let mut dotnet = client(".NET HttpClient", Path::new("mono"), &[], "Client.cs");
    dotnet.is_installed &= program.is_file();
    dotnet.command = Command::new("mono");
    dotnet.command.arg(program);
    let mut go = client("Go net/http", Path::new("go"), &["run"], "client.go");
    go.command.env("GO111MODULE", "off");
    let file_get_contents =
        client("file_get_contents", Path::new("php"), &[], "file_get_contents.php");
    vec![
        client("Node fetch", Path::new("node"), &[], "fetch.mjs"),
        axios,
        client("Python requests", &python, &[], "requests_client.py"),
        client("Python httpx", &python, &[], "httpx_client.py"),
        go,
        php_curl,
        file_get_contents,
        client("Ruby Net::HTTP", Path::new("ruby"), &[], "net_http.rb"),
        java,
        dotnet,
    ]
}

/// Gson's archive.
fn gson(home: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(home.join("java")).ok()?.flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "jar")).find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("gson"))
    })
}
