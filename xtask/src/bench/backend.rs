//! Measures how many requests per second one process serves if each request is for a new pool, and
//! the application takes 100 ms to return a ring pool.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::inputs::BenchInputs;
use super::server::{Server, free_address, pinned};

const DELAY: Duration = Duration::from_millis(100);
/// The count of clients, which is the maximum count of pools that the server fetches at the same
/// time.
const CLIENTS: u32 = 64;
const FIRST_POOL: u64 = 100_000;

/// Requests a second.
///
/// # Errors
/// If a program does not start, or a request gets no number.
pub(super) fn requests_a_second(plan: &BenchInputs, pools: &Path) -> anyhow::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let application = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // The error is ignored: if a connection breaks, the client gets no number and reports
            // it.
            thread::spawn(move || answer(stream).ok());
        }
    });
    let server = start(plan, pools, application)?;
    let (next, begun) = (AtomicU64::new(FIRST_POOL), Instant::now());
    let until = begun + Duration::from_secs(plan.seconds.into());
    let asked = thread::scope(|scope| {
        let client = || -> anyhow::Result<u32> {
            let mut asked = 0;
            while Instant::now() < until {
                ask(server.address, next.fetch_add(1, Ordering::Relaxed))?;
                asked += 1;
            }
            Ok(asked)
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let ended = clients
            .into_iter()
            .map(|client| client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?);
        ended.sum::<anyhow::Result<u32>>()
    })?;
    Ok(f64::from(asked) / begun.elapsed().as_secs_f64())
}

fn start(plan: &BenchInputs, pools: &Path, application: SocketAddr) -> anyhow::Result<Server> {
    let folder = plan.programs.work.join("backend");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let (address, config) = (free_address()?, folder.join("ringwell.toml"));
    let text = format!(
        "data = \"{}/data\"\nlisten = [\"{address}\"]\nshards = 1\ndeadline = \"10s\"\n\
         ring_pools = \"{}\"\n[application]\nurl = \"http://{application}/{{id}}.json\"\n\
         timeout = \"5s\"\n",
        folder.display(),
        pools.display()
    );
    std::fs::write(&config, text)?;
    let mut command = pinned(&plan.machine.server_cores, &plan.programs.ringwell);
    command.arg("serve").arg("--config").arg(config);
    Server::start(command, address, folder.join("log"), None)
}

/// The application: returns a pool with one number, after a delay.
fn answer(stream: TcpStream) -> anyhow::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(reader.read_line(&mut head)? > 0, "the server has closed the connection");
    }
    let id: u64 = head.split(['/', '.']).nth(1).context("no id")?.parse()?;
    thread::sleep(DELAY);
    let pool = json!({
        "id": id, "ring_pool_key": key(id), "lifetime_seconds": 1800,
        "numbers": [(5_000_000_000 + id).to_string()], "overflow_number": "5999999999",
    });
    let body = pool.to_string();
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    reader.get_mut().write_all((head + &body).as_bytes())?;
    Ok(())
}

fn key(pool: u64) -> String {
    format!("key-of-the-application-{pool}")
}

/// Sends a batch of one row for an unused pool.
fn ask(server: SocketAddr, pool: u64) -> anyhow::Result<()> {
    let suffix = format!("{pool}/allocate_number.json?ring_pool_key={}&m1=autos", key(pool));
    let body = json!({"requests": [{"api_suffix": suffix, "request_id": "1"}]}).to_string();
    let mut stream = TcpStream::connect(server)?;
    write!(
        stream,
        "POST /api/2013-07-01/bulk.json HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let number = (5_000_000_000 + pool).to_string();
    ensure!(answer.contains(&number), "no number was handed out from pool {pool}: {answer}");
    Ok(())
}
