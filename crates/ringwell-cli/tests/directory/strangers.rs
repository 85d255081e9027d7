//! Strangers on the address of management, who never get as far as a token.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::rig::Rig;
use super::support::server::Server;
use super::support::site::{Pool, TOKEN};
use super::{LONG, Managed, management, management_address};

/// A head must be there within 10 s; the rest is for a busy machine.
const BOUND: Duration = Duration::from_secs(28);

/// Sends bytes and waits for what comes, until the server closes.
fn converse(server: &Server, bytes: &[u8]) -> (String, Duration) {
    let start = Instant::now();
    let mut stream = TcpStream::connect(management_address(server)).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    // The server may close before it has read all.
    let _ = stream.write_all(bytes);
    let mut got = Vec::new();
    let mut part = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut part) {
        got.extend_from_slice(&part[..len]);
    }
    (String::from_utf8_lossy(&got).into_owned(), start.elapsed())
}

#[test]
fn strangers_who_are_silent_slow_or_long_are_cut_and_management_goes_on_beside_them() {
    let managed = Managed::new(Rig::sqlite(), vec![Pool::new(1, 2, LONG)]);
    let server = managed.start();
    let head = "GET /v1/pools HTTP/1.1\r\nhost: x\r\n";
    let idle: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(management_address(&server)).unwrap()).collect();
    let token = format!("Bearer {TOKEN}");
    let beside = management(&server).get("/v1/pools", &[("authorization", &token)]).unwrap();
    assert_eq!(beside.status, 200, "{}", beside.body);
    std::thread::scope(|scope| {
        for (bytes, status) in [
            (String::new(), ""),
            (head.to_owned(), ""),
            (format!("{head}a: {}\r\n\r\n", "x".repeat(20_000)), "431"),
            (format!("{head}{}\r\n", "a: b\r\n".repeat(70)), "431"),
        ] {
            let server = &server;
            scope.spawn(move || {
                let (got, took) = converse(server, bytes.as_bytes());
                assert!(took < BOUND, "{took:?}: {}", &bytes[..bytes.len().min(60)]);
                let first = got.lines().next().unwrap_or_default();
                assert!(first.contains(status) && !first.contains("200"), "{first}");
            });
        }
    });
    drop(idle);
    server.stop();
}
