//! Requests to the management API: ring pools in the form of the published API, paths under `/v1/`,
//! and lists of pools as CSV.
//!
//! No request may cause an internal error, and it must be possible to serve the resulting
//! directory.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;
use ringwell_admin::{Entrance, Later, Management, PoolLoad, PoolState, RunningServer, router};
use ringwell_config::Site;
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{Directory, RingPool, RingPoolKey, Token};
use ringwell_store::{Location, Scope, Store};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower::ServiceExt;

use crate::files::read_list;
use crate::rig::Rig;

const TOKEN: &str = "administrator-of-the-fuzzer";
const NOW: Millis = Millis(1_767_225_600_000);
/// The separator between two requests.
const NEXT: &[u8] = b"\n%%\n";
const REQUESTS_MAX: usize = 6;
/// The allowed statuses of an answer: never an internal error.
const STATUSES: [StatusCode; 11] = [
    StatusCode::OK,
    StatusCode::CREATED,
    StatusCode::NO_CONTENT,
    StatusCode::BAD_REQUEST,
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::CONFLICT,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNPROCESSABLE_ENTITY,
];

thread_local! {
    static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
}

/// The async runtime, and the databases that are copied for each input. The databases are created
/// only once for all inputs, because creating one takes longer than all requests to it.
struct Stage {
    runtime: Runtime,
    folder: TempDir,
}

/// A server that answers management requests but hands out no numbers.
struct Quiet;

impl RunningServer for Quiet {
    fn now(&self) -> Millis {
        NOW
    }

    fn state(&self, _pool: PoolId) -> Later<'_, Option<PoolState>> {
        Box::pin(async { Some(PoolState::default()) })
    }

    fn load(&self, _pool: PoolId) -> Option<PoolLoad> {
        None
    }

    fn unused(&self, _pool: PoolId, _since: Millis) -> Later<'_, Option<Vec<NumberRange>>> {
        Box::pin(async { Some(Vec::new()) })
    }

    fn configured_sites(&self) -> Vec<Site> {
        Vec::new()
    }

    fn changed(&self, _version: u64) {}
}

/// Sends the requests in `text` to a new server. Each request consists of `METHOD TARGET`, a line
/// break and a body; a line with `%%` separates two requests. A request that begins with `~` is
/// sent without a token.
pub fn manage(text: &[u8]) {
    STAGE.with_borrow_mut(|stage| {
        let stage = stage.get_or_insert_with(Stage::new);
        stage.runtime.block_on(async {
            let store = stage.copy_of("empty.sqlite").await;
            ask_all(text, &store).await;
            store.close().await;
        });
    });
}

/// Like [`manage`], but sends the requests to two servers: one with its pools in PostgreSQL, and
/// one with its pools in SQLite. On both, every request must get the same status, and the final
/// pools must be the same. Starts a new PostgreSQL server.
pub fn manage_postgres(text: &[u8]) {
    STAGE.with_borrow_mut(|stage| {
        let stage = stage.get_or_insert_with(Stage::new);
        stage.runtime.block_on(async {
            let (sqlite, rig) = (stage.copy_of("empty.sqlite").await, Rig::postgres());
            let postgres = Store::open(&rig.location).await.unwrap();
            fill(&postgres).await;
            let (one, other) = (ask_all(text, &sqlite).await, ask_all(text, &postgres).await);
            assert_eq!(one, other, "the databases answer differently");
            let (one, other) = (served(&sqlite).await, served(&postgres).await);
            assert_eq!(
                one.iter().map(without_keys).collect::<Vec<_>>(),
                other.iter().map(without_keys).collect::<Vec<_>>()
            );
            sqlite.close().await;
            postgres.close().await;
            rig.remove();
        });
    });
}

/// The pool as text, without its keys, which may be random.
fn without_keys(pool: &RingPool) -> String {
    let (numbers, overflow) = (pool.numbers(), pool.overflow());
    format!("{} {:?} {} {numbers:?} {overflow:?}", pool.id(), pool.name(), pool.lifetime())
}

/// Imports any list of pools into an empty database, as a server does at its first startup, and
/// checks that the server then reads the same pools from the database.
pub fn import(text: &[u8]) {
    let Some(directory) = read_list(text) else { return };
    let mut pools: Vec<RingPool> = directory.pools().map(|pool| (**pool).clone()).collect();
    pools.sort_by_key(RingPool::id);
    STAGE.with_borrow_mut(|stage| {
        let stage = stage.get_or_insert_with(Stage::new);
        stage.runtime.block_on(async {
            let store = stage.copy_of("void.sqlite").await;
            let mut change = store.change("fuzzer", NOW).await.unwrap();
            change.import(&pools, &Scope::of_file()).await.unwrap();
            change.commit().await.unwrap();
            let mut served = served(&store).await;
            served.sort_by_key(RingPool::id);
            assert_eq!(
                served.iter().map(plainly).collect::<Vec<_>>(),
                pools.iter().map(plainly).collect::<Vec<_>>()
            );
            store.close().await;
        });
    });
}

/// The pool as text, without its name, which the database assigns.
fn plainly(pool: &RingPool) -> String {
    let next = pool.next_key().map(RingPoolKey::reveal);
    let (key, lifetime) = (pool.key().reveal(), pool.lifetime());
    let mut numbers = pool.numbers().to_vec();
    numbers.sort_unstable_by_key(|range| range.first());
    format!("{} {key:?} {next:?} {lifetime} {numbers:?} {:?}", pool.id(), pool.overflow())
}

impl Stage {
    /// Prepares two databases to copy: an empty one, and one with some numbers in its inventory.
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            open(&folder.path().join("void.sqlite")).await.close().await;
            let store = open(&folder.path().join("empty.sqlite")).await;
            fill(&store).await;
            store.close().await;
        });
        Self { runtime, folder }
    }

    async fn copy_of(&self, name: &str) -> Store {
        let folder = self.folder.path();
        let path = folder.join("directory.sqlite");
        for leftover in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(folder.join(format!("directory.sqlite{leftover}")));
        }
        std::fs::copy(folder.join(name), &path).unwrap();
        open(&path).await
    }
}

/// Adds some numbers to the inventory.
async fn fill(store: &Store) {
    let mut change = store.change("fuzzer", NOW).await.unwrap();
    let first = PromoNumber::parse("8885550100").unwrap();
    let range = NumberRange::new(first, 40).unwrap();
    change.add_to_inventory(&[range], None).await.unwrap();
    change.commit().await.unwrap();
}

async fn open(path: &Path) -> Store {
    Store::open(&Location::File(path.to_owned())).await.unwrap()
}

/// Sends all requests in `text`, and returns the status of each answer.
async fn ask_all(text: &[u8], store: &Store) -> Vec<(String, StatusCode)> {
    let router = router(
        Entrance {
            token_sha256: vec![Token::parse(TOKEN).unwrap().hash()].into(),
            requests_per_second: u32::MAX,
            hosts: None,
            bodies_bytes: usize::MAX,
            dashboard: None,
        },
        Some(Management { store: store.clone(), live: Arc::new(Quiet) }),
    );
    let mut answers = Vec::new();
    for request in requests(text) {
        let line = format!("{} {}", request.method(), request.uri());
        let (status, _) = answer(&router, request, &line).await;
        answers.push((line, status));
    }
    check(store, &router).await;
    answers
}

/// The requests in the input, except those that cannot be sent.
fn requests(text: &[u8]) -> Vec<Request<Body>> {
    let mut rest = text;
    let mut requests = Vec::new();
    while !rest.is_empty() && requests.len() < REQUESTS_MAX {
        let end = rest.windows(NEXT.len()).position(|bytes| bytes == NEXT);
        let (one, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after.get(NEXT.len()..).unwrap_or_default();
        requests.extend(request(one));
    }
    requests
}

fn request(text: &[u8]) -> Option<Request<Body>> {
    let line = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    let (head, body) = (&text[..line], text.get(line + 1..).unwrap_or_default());
    let (method, target) = std::str::from_utf8(head).ok()?.split_once(' ')?;
    let (method, is_named) = match method.strip_prefix('~') {
        Some(method) => (method, false),
        None => (method, true),
    };
    // The server's HTTP library accepts only targets that begin with a slash.
    let target = Some(target).filter(|target| target.starts_with('/'))?;
    let mut request = Request::builder().method(method).uri(target);
    if is_named {
        request = request.header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
    }
    request.body(Body::from(body.to_owned())).ok()
}

/// Sends a request. Checks that the answer's status is allowed, and that its body matches its
/// content type.
async fn answer(router: &Router, request: Request<Body>, line: &str) -> (StatusCode, Bytes) {
    let (head, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body);
    assert!(STATUSES.contains(&head.status), "{line}: {} {text}", head.status);
    if kind(&head.headers).contains("json") {
        let json = serde_json::from_slice::<Value>(&body);
        assert!(json.is_ok(), "{line}: {text}");
    }
    (head.status, body)
}

fn kind(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default()
}

/// Checks that the directory can be served, and that importing its exported list changes none of
/// its pools.
async fn check(store: &Store, router: &Router) {
    let before = served(store).await;
    let list = Request::get("/v1/pools.csv").header(header::AUTHORIZATION, bearer());
    let (status, list) =
        answer(router, list.body(Body::empty()).unwrap(), "export of the list").await;
    assert_eq!(status, StatusCode::OK);
    if list.is_empty() {
        return;
    }
    let again = Request::post("/v1/pools.csv").header(header::AUTHORIZATION, bearer());
    let again = again.body(Body::from(list.clone())).unwrap();
    let (status, report) = answer(router, again, "import of the exported list").await;
    let (list, report) = (String::from_utf8_lossy(&list), String::from_utf8_lossy(&report));
    assert_eq!(status, StatusCode::OK, "{list}\n{report}");
    assert_eq!(served(store).await, before, "{list}\n{report}");
}

fn bearer() -> String {
    format!("Bearer {TOKEN}")
}

/// The pools as a server reads them.
async fn served(store: &Store) -> Vec<RingPool> {
    let loaded = store.load_all().await.unwrap();
    let delta = store.changed_since(0).await.unwrap();
    assert_eq!(delta.version, loaded.version);
    let mut changed = delta.changed;
    changed.sort_by_key(RingPool::id);
    assert_eq!(changed, loaded.pools, "the changes and the full load differ");
    let directory = Directory::new(loaded.version, loaded.pools.clone(), 2);
    crate::files::check_directory(&directory.unwrap());
    loaded.pools
}
