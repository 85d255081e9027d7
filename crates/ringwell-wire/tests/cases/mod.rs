//! Reads the cases in `fixtures/api/`, and compares answers with the expected ones.
//!
//! The tests of this crate and of `ringwell-cli` share this module. This crate's tests cover only
//! the codec; those of `ringwell-cli` send the same bytes over a socket. The format of the cases is
//! described in `fixtures/api/README.md`.

use std::fs;
use std::path::{Path, PathBuf};

/// One case: a directory in `fixtures/api/`.
pub(crate) struct Case {
    pub(crate) name: String,
    /// The requests in order, each with its expected answer.
    pub(crate) exchanges: Vec<(Request, Response)>,
    /// The lines to insert into the configuration, before the pools.
    pub(crate) settings: Option<String>,
    /// The variables to set in the server's environment.
    pub(crate) environment: Vec<(String, String)>,
}

pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Response {
    pub(crate) status: u16,
    /// Templates: see [`matches`].
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// The directory `fixtures/api/`.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/api")
}

/// Returns the ring pools that every case starts with, as tables of a configuration file.
pub(crate) fn pools() -> String {
    fs::read_to_string(folder().join("pools.toml")).expect("the pools of all cases")
}

/// Returns all cases, in the order of their names.
pub(crate) fn all() -> Vec<Case> {
    let entries = fs::read_dir(folder()).expect("the folder of all cases");
    let paths = entries.map(|entry| entry.expect("an entry of the folder").path());
    let mut cases: Vec<Case> = paths.filter(|path| path.is_dir()).map(|path| read(&path)).collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(cases.len() > 50, "only {} cases: is this the right folder?", cases.len());
    cases
}

fn read(folder: &Path) -> Case {
    let name = folder.file_name().expect("a folder has a name").to_string_lossy().into_owned();
    let file = |name: &str| fs::read(folder.join(name)).ok();
    let exchange = |turn: usize| {
        let suffix = if turn == 1 { String::new() } else { format!("-{turn}") };
        let request = file(&format!("request{suffix}.http"))?;
        let response = file(&format!("response{suffix}.http"))
            .unwrap_or_else(|| panic!("{name}: request {turn} has no response"));
        Some((request_of(&request), response_of(&response)))
    };
    let exchanges: Vec<_> = (1..).map_while(exchange).collect();
    assert!(!exchanges.is_empty(), "{name}: no request.http");
    let text = |name: &str| file(name).map(|bytes| String::from_utf8(bytes).expect("text"));
    let environment = text("environment").unwrap_or_default();
    let environment = environment.lines().filter_map(|line| line.split_once('='));
    let environment =
        environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Case { settings: text("settings.toml"), environment, exchanges, name }
}

fn request_of(file: &[u8]) -> Request {
    let (first, headers, body) = split(file);
    // The target of a request may contain spaces, because some clients send them.
    let (method, rest) = first.split_once(' ').expect("a method");
    let (target, _version) = rest.rsplit_once(' ').expect("a target and a version");
    Request { method: method.to_owned(), target: target.to_owned(), headers, body }
}

fn response_of(file: &[u8]) -> Response {
    let (first, headers, body) = split(file);
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
    Response { status: status.expect("a status"), headers, body }
}

/// Returns the first line, the headers and the body, which is everything after the first empty
/// line.
fn split(file: &[u8]) -> (String, Vec<(String, String)>, Vec<u8>) {
    let end = file.windows(2).position(|pair| pair == b"\n\n").expect("an empty line");
    let head = str::from_utf8(&file[..end]).expect("a head is text");
    let mut lines = head.lines();
    let first = lines.next().expect("a first line").to_owned();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").expect("a name and a value");
        (name.to_owned(), value.to_owned())
    };
    (first, lines.map(header).collect(), file[end + 2..].to_vec())
}

/// Whether `text` matches `template`. `{{integer}}` matches one or more digits, and `{{decimal}}`
/// matches one or more digits and decimal points.
fn matches(template: &[u8], text: &[u8]) -> bool {
    const PLACES: [(&[u8], &[u8]); 2] =
        [(b"{{integer}}", b"0123456789"), (b"{{decimal}}", b"0123456789.")];
    let (mut template, mut text) = (template, text);
    while let Some((first, rest)) = template.split_first() {
        if let Some((place, allowed)) = PLACES.iter().find(|(place, _)| template.starts_with(place))
        {
            let length = text.iter().take_while(|byte| allowed.contains(byte)).count();
            if length == 0 {
                return false;
            }
            (template, text) = (&template[place.len()..], &text[length..]);
        } else if text.first() == Some(first) {
            (template, text) = (rest, &text[1..]);
        } else {
            return false;
        }
    }
    text.is_empty()
}

/// Returns a readable description of each difference between an answer and the one that `case`
/// expects.
pub(crate) fn compare(
    case: &str,
    wanted: &Response,
    status: u16,
    header: impl Fn(&str) -> Option<String>,
    body: &[u8],
) -> Vec<String> {
    let mut faults = Vec::new();
    if status != wanted.status {
        faults.push(format!("{case}: status {status}, not {}", wanted.status));
    }
    for (name, template) in &wanted.headers {
        let value = header(name);
        if !value.as_ref().is_some_and(|value| matches(template.as_bytes(), value.as_bytes())) {
            faults.push(format!("{case}: {name} is {value:?}, not {template:?}"));
        }
    }
    if !matches(&wanted.body, body) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        faults.push(format!("{case}: body\n  {}\nnot\n  {}", text(body), text(&wanted.body)));
    }
    faults
}
