//! A collector of traces. It can also receive any other JSON by POST.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Takes POST requests. Stores the path, the `traceparent` header and the body of each request.
#[derive(Clone)]
pub(crate) struct Taker {
    pub(crate) port: u16,
    taken: Arc<Mutex<Vec<(String, String, Value)>>>,
}

impl Taker {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let started = Self { port, taken: Arc::default() };
        let taken = Arc::clone(&started.taken);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream);
                let mut head = Vec::new();
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                    head.push(std::mem::take(&mut line));
                }
                let field = |name: &str| {
                    let found = head.iter().find_map(|line| line.strip_prefix(name));
                    found.map_or(String::new(), |value| value.trim().to_owned())
                };
                let mut body = vec![0; field("content-length:").parse().unwrap_or(0)];
                if head.is_empty() || reader.read_exact(&mut body).is_err() {
                    continue;
                }
                let path = head[0].split(' ').nth(1).unwrap().to_owned();
                let body = serde_json::from_slice(&body).unwrap();
                taken.lock().unwrap().push((path, field("traceparent:"), body));
                let _ = reader.get_mut().write_all(
                    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                );
            }
        });
        started
    }

    pub(crate) fn taken(&self) -> Vec<(String, String, Value)> {
        self.taken.lock().unwrap().clone()
    }

    /// Returns the spans with the name `name`.
    pub(crate) fn spans(&self, name: &str) -> Vec<Value> {
        let bodies =
            self.taken().into_iter().inspect(|(path, _, _)| assert_eq!(path, "/v1/traces"));
        let spans = bodies.flat_map(|(_, _, body)| {
            assert_eq!(
                body["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"],
                "ringwell"
            );
            body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
        });
        spans.filter(|span| span["name"] == name).collect()
    }
}

pub(crate) fn until<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = holds() {
            return found;
        }
        assert!(Instant::now() < until, "{what} has not come");
        thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let all = span["attributes"].as_array().unwrap();
    let found = all.iter().find(|it| it["key"] == key);
    let value = &found.unwrap_or_else(|| panic!("no {key}: {span}"))["value"];
    if value["intValue"].is_null() { &value["stringValue"] } else { &value["intValue"] }
}
