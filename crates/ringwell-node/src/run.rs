//! A node's lifecycle: startup, serving, draining and shutdown.

use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringwell_config::{Config, Durability};
use ringwell_directory::{Directory, Owners};
use ringwell_engine::Engine;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};

use crate::directories::Directories;
use crate::disk::{self, Inline, Journal, OsFiles, Reader, Store};
use crate::handle::{Handle, Routes};
use crate::http::ListenerKind;
use crate::listen::{self, Listener, Listeners};
use crate::lock_watch::LockWatch;
use crate::platform::{Tokio, current_thread};
use crate::running_node::carry_out;
use crate::secure::Secure;
use crate::server::{Server, drills};
use crate::shard::{HttpShard, ShardThread};
use crate::signals::Signals;
use crate::start::{CopiedLog, ShardLog, Started, start};
use crate::tasks::boxed;
use crate::{
    Membership, ServeError, application, descriptors, http, link, proof, reload, shared_logs, site,
    sweep, tasks,
};
use ringwell_driver::maintenance::task as maintenance;
use ringwell_driver::message::Message;
use ringwell_driver::node::{Node, Phase};
use ringwell_driver::queue::{Peers, QUEUE_MESSAGES_MAX};
use ringwell_driver::serve::serve as serve_queue;
use ringwell_driver::store::{Either, LastOwner, Logs, Memory};
use ringwell_driver::{lifecycle, moves, suspension, witness, writer};
use ringwell_os::Clock;
use ringwell_os::clock::reading;

/// The stages of a shard's lifecycle, in order. The node moves its shards from stage to stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Course {
    /// Check whether the shard can serve.
    Begin,
    Serve,
    /// Accept no new connections, and complete the answers in progress.
    Drain,
    /// No more requests will arrive: save everything, and end.
    Stop,
}

/// A shard's reports to the node, in order. After a fault, `Ended` may be sent at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    Ready,
    Drained,
    Ended,
}

/// Sends `Ended` when a shard's thread ends for any reason.
struct EndReport(mpsc::UnboundedSender<Report>);

impl Drop for EndReport {
    fn drop(&mut self) {
        // This fails only if the node itself is ending and has dropped the receiver.
        let _ = self.0.send(Report::Ended);
    }
}

/// The time limit for completing requests in progress when the node shuts down.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Called once with the bound addresses, as soon as the node answers requests.
pub type OnReady = Box<dyn FnOnce(&[String]) + Send>;

/// Serves until SIGTERM or SIGINT, and then drains. A second signal ends the process immediately.
/// Until the node serves, `directories.signals` handles the signals.
///
/// # Errors
/// Returns a [`ServeError`] if the node cannot start, or could not save everything.
pub fn serve(
    mut config: Config,
    directory: Directory,
    membership: Option<Membership>,
    mut directories: Directories,
    routes: Routes,
    logs: Option<&dyn Logs>,
    on_ready: OnReady,
) -> Result<(), ServeError> {
    let durability = config.durability;
    let member = membership.as_ref().map(|membership| &membership.member);
    let (directory, owners) = lifecycle::place(&OsFiles, &config.data, directory, member)?;
    config.limits.connections =
        descriptors::room_for(config.limits.connections, directory.shards());
    let mut settings = disk::Settings::of(&config, &directory);
    // Read before waiting as a standby, so that a certificate that becomes unusable meanwhile does
    // not prevent the take-over.
    let secure = config.tls.as_ref().map(Secure::begin).transpose()?;
    let last_owner =
        shared_logs::prepare(logs, &config, member, &mut settings, directories.check.as_ref())?;
    let _lock = match durability {
        // A process that stores nothing needs no data directory, so none is created.
        Durability::Memory if !config.data.is_dir() => None,
        Durability::Memory | Durability::Disk | Durability::Os => {
            Some(LockWatch::begin(&config.data)?)
        }
    };
    listen::probe(&config, member)?;
    if logs.is_none() {
        warn_of_disk(&config);
    }
    let (course, course_now) = watch::channel(Course::Begin);
    let (reports, received) = mpsc::unbounded_channel();
    let mut reported = Reported { reports: received, ended: 0 };
    let channels = Channels { routes, course_now, reports };
    let Running { server, threads, listeners, pages, links: _links, peers, clock, epochs } =
        start_threads(
            config,
            directory,
            (membership, owners),
            (&settings, secure),
            (logs, last_owner.as_ref()),
            &channels,
        )?;
    let node = Arc::clone(&server.node);
    drop(channels);
    let runtime = current_thread()?;
    runtime.block_on(async {
        let is_ready = reported.wait_for(Report::Ready, threads.len()).await;
        let mut signals = Signals::take_over(directories.signals.take())?;
        if is_ready {
            lifecycle::unmark(&OsFiles, &node);
            node.enter(Phase::Serving);
            follow(&server, &peers, &clock, &mut directories).await;
            course.send_replace(Course::Serve);
            tracing::info!(
                addresses = ?listeners.addresses,
                pages = pages.listed(),
                shards = node.directory().shards(),
                %durability,
                ring_pools = node.directory().pool_count(),
                numbers = node.directory().number_count(),
                "serving"
            );
            on_ready(&listeners.addresses);
            shared_logs::report(logs, &node, clock.clone(), epochs.clone());
            serve_on(&server, &peers, &mut directories, &mut signals, &mut reported).await;
        }
        node.enter(Phase::Draining);
        signals.exit_at_once_on_the_next();
        course.send_replace(Course::Drain);
        reported.wait_for(Report::Drained, threads.len()).await;
        course.send_replace(Course::Stop);
        Ok::<_, ServeError>(())
    })?;
    join(threads)?;
    lifecycle::end(&OsFiles, &node);
    shared_logs::end(logs, &node);
    tracing::info!("stopped");
    Ok(())
}

/// Begins to apply changes to the directory. If this process was a standby, catches up with the
/// changes since then.
async fn follow(server: &Arc<Server>, peers: &Peers, clock: &Clock, directories: &mut Directories) {
    if let Some(orders) = directories.orders.take() {
        tokio::spawn(carry_out(Arc::clone(server), peers.clone(), clock.clone(), orders));
    }
    if shared_logs::stands_by(&server.node.config) {
        reload::refresh(server, peers, directories).await;
    }
}

/// Serves until a signal or another event ends the node.
async fn serve_on(
    server: &Arc<Server>,
    peers: &Peers,
    directories: &mut Directories,
    signals: &mut Signals,
    reported: &mut Reported,
) {
    let mut reload_requests = server.node.reload_requests.asked();
    if *reload_requests.borrow() > 0 {
        // A shard sent its request before this task existed.
        reload_requests.mark_changed();
    }
    loop {
        tokio::select! {
            name = signals.next() => {
                if name == "SIGHUP" {
                    reload::again(server, peers, directories, "SIGHUP").await;
                    continue;
                }
                tracing::info!(signal = name, "draining");
            }
            Ok(()) = reload_requests.changed() => {
                let request = *reload_requests.borrow_and_update();
                reload::confirm(server, peers, directories, request).await;
                continue;
            }
            () = shared_logs::is_over(&server.node) => {}
            () = reported.an_end() => tracing::error!("a shard's thread has ended; stopping"),
        }
        return;
    }
}

/// The threads of the node, and their sockets.
struct Running {
    server: Arc<Server>,
    threads: Vec<JoinHandle<Result<(), ServeError>>>,
    listeners: Listeners,
    pages: Listeners,
    links: Listeners,
    /// The queues of the node's own shards. The first one forwards requests to other nodes.
    peers: Peers,
    clock: Clock,
    /// The epoch of each shard: a counter that increases with each startup.
    epochs: Vec<u64>,
}

/// The node's channels to and from its shards, and the services for clients.
struct Channels {
    routes: Routes,
    course_now: watch::Receiver<Course>,
    reports: mpsc::UnboundedSender<Report>,
}

/// Reads the journals, binds the addresses, and starts a thread for each shard.
fn start_threads(
    config: Config,
    directory: Directory,
    (membership, owners): (Option<Membership>, Option<Owners>),
    (settings, secure): (&disk::Settings, Option<Secure>),
    log: (Option<&dyn Logs>, Option<&LastOwner>),
    channels: &Channels,
) -> Result<Running, ServeError> {
    let believed = ringwell_driver::open::Believed::of(&config, reading().boot);
    let (membership, tls) = membership.map(|it| (it.member, it.tls)).unzip();
    let withholds = config.database.is_some();
    let (started, clock, begun) =
        start(&directory, settings, believed, membership.as_ref(), log, withholds)?;
    let shards: Vec<u16> = started.iter().map(|started| started.shard).collect();
    let epochs = started.iter().map(|started| started.engine.tip().epoch).collect();
    // A shard without pools exists only for its history, and serves no clients.
    let serving = shards.iter().filter(|shard| **shard < directory.shards()).count();
    let mut listeners = Listeners::bind(&config.listen, serving)?;
    if let Some(tls) = &config.tls {
        listeners.bind_secure(&tls.listen)?;
    }
    let mut pages = Listeners::bind(&config.site_listen, serving)?;
    let link = membership.as_ref().map(|membership| membership.own().link.clone());
    let mut links = Listeners::bind(link.as_slice(), serving)?;
    let opened = (owners, begun);
    let node = Node::new(config, directory, &shards, membership, opened);
    let node = Arc::new(node.with_drills(drills()));
    let server = Arc::new(Server::new(&node, secure, tls.flatten()));
    server
        .sites
        .serve(&node, node.config.sites.clone())
        .map_err(|error| ServeError::Data { path: settings.data.clone(), error })?;
    let mut peers = Peers::default();
    let mut queues = Vec::new();
    let first = shards.first().copied().unwrap_or_default();
    for shard in shards {
        let (way, queue) = mpsc::channel(QUEUE_MESSAGES_MAX);
        peers.add(shard, way);
        queues.push(queue);
    }
    let mut threads = Vec::new();
    let mut bound = listeners.shards.drain(..);
    let mut bound_pages = pages.shards.drain(..);
    let mut bound_links = links.shards.drain(..);
    for (started, queue) in started.into_iter().zip(queues) {
        let Started { shard, engine, store, log, lengthened } = started;
        let plan = ShardPlan {
            shard,
            engine,
            is_lengthened: lengthened.is_some(),
            server: Arc::clone(&server),
            clock: clock.clone(),
            peers: peers.clone(),
            listeners: bound.next().unwrap_or_default(),
            pages: bound_pages.next().unwrap_or_default(),
            links: bound_links.next().unwrap_or_default(),
            routes: Arc::clone(&channels.routes),
            queue,
            course_now: channels.course_now.clone(),
            reports: channels.reports.clone(),
        };
        threads.push(spawn(plan, store, log)?);
    }
    drop((bound, bound_pages, bound_links));
    let peers = peers.forwarding(first);
    Ok(Running { server, threads, listeners, pages, links, peers, clock, epochs })
}

/// The shards' reports.
struct Reported {
    reports: mpsc::UnboundedReceiver<Report>,
    /// The number of shards that will send no more reports.
    ended: usize,
}

impl Reported {
    /// Waits until each shard has reported `wanted` or ended, and returns `false` if any shard has
    /// ended.
    async fn wait_for(&mut self, wanted: Report, shards: usize) -> bool {
        let mut there = 0;
        while there + self.ended < shards {
            match self.reports.recv().await {
                Some(Report::Ended) => self.ended += 1,
                Some(report) => there += usize::from(report == wanted),
                None => return false,
            }
        }
        self.ended == 0
    }

    /// Waits until a shard has ended.
    async fn an_end(&mut self) {
        while let Some(report) = self.reports.recv().await {
            if report == Report::Ended {
                self.ended += 1;
                return;
            }
        }
    }
}

fn join(threads: Vec<JoinHandle<Result<(), ServeError>>>) -> Result<(), ServeError> {
    let ends =
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(ServeError::ShardPanicked)));
    // All threads are joined before the first error is returned.
    ends.collect::<Vec<_>>().into_iter().collect()
}

/// Warns if the disk seems to be less durable than the configuration requires.
fn warn_of_disk(config: &Config) {
    let durability = config.durability;
    if durability != Durability::Disk {
        tracing::warn!(
            %durability,
            "answers do not wait for the disk: a crash can lose allocations"
        );
        return;
    }
    if let Some(warning) = disk::warn_of_mode(&config.data) {
        tracing::warn!("{warning}");
    }
    match disk::probe(&config.data) {
        Ok(probe) => {
            for warning in probe.warnings() {
                tracing::warn!("{warning}");
            }
        }
        Err(error) => tracing::warn!(%error, "cannot probe the disk"),
    }
}

/// Everything that a shard's thread needs.
struct ShardPlan {
    shard: u16,
    engine: Engine,
    /// Whether lockouts were lengthened and no record of this exists yet.
    is_lengthened: bool,
    server: Arc<Server>,
    clock: Clock,
    peers: Peers,
    listeners: Vec<Listener>,
    pages: Vec<Listener>,
    links: Vec<Listener>,
    routes: Routes,
    queue: mpsc::Receiver<Message>,
    course_now: watch::Receiver<Course>,
    reports: mpsc::UnboundedSender<Report>,
}

fn spawn(
    plan: ShardPlan,
    store: Inline<OsFiles>,
    log: Option<ShardLog>,
) -> Result<JoinHandle<Result<(), ServeError>>, ServeError> {
    let name = format!("shard-{}", plan.shard);
    std::thread::Builder::new()
        .name(name)
        .spawn(move || {
            let _end = EndReport(plan.reports.clone());
            let runtime = current_thread()?;
            let store: Stored = match (store, log) {
                (Inline::Right(memory), _) => Either::Left(Either::Right(memory)),
                (Inline::Left(files), log) => {
                    let journal = Journal::start(files, plan.shard)?;
                    match log {
                        None => Either::Left(Either::Left(journal)),
                        Some(log) => Either::Right(log.store(journal)),
                    }
                }
            };
            runtime.block_on(LocalSet::new().run_until(run_shard(plan, store)))
        })
        .map_err(ServeError::Thread)
}

/// The store of a shard's groups: files, memory, or a log that is copied to files.
type Stored = Either<Either<Journal, Memory>, CopiedLog>;

/// Runs a shard on its thread.
async fn run_shard(plan: ShardPlan, store: Stored) -> Result<(), ServeError> {
    let ShardPlan {
        shard,
        engine,
        is_lengthened,
        server,
        clock,
        mut peers,
        listeners,
        pages,
        links,
        routes,
        queue,
        mut course_now,
        reports,
    } = plan;
    let ways = link::ways(&server, shard, &mut peers);
    let handle = Handle { server: Arc::clone(&server), peers: peers.clone(), clock: clock.clone() };
    let admin = routes(handle);
    let links_out = ways.iter().map(|way| Rc::clone(&way.link)).collect();
    let http = shard_of(server, shard, engine, &clock, peers);
    let thread = Rc::clone(&*http);
    // Determines which groups startup did not read, before a look-up in old history can read and
    // index some of them.
    let unread = store.reader().unread();
    let store = Rc::new(store);
    let mut tasks = JoinSet::new();
    tasks.spawn_local(boxed(writer::run(Rc::clone(&thread), Rc::clone(&store))));
    let begun = lifecycle::begin_shard(&thread, &*store, is_lengthened).await;
    begun.map_err(|reason| ServeError::NoSnapshot { shard, reason })?;
    let clients = Rc::clone(&http);
    let count = move || clients.connections.count();
    let served = serve_queue(Rc::clone(&thread), links_out, Rc::clone(&store), count, queue);
    tasks.spawn_local(boxed(served));
    tasks.spawn_local(boxed(maintenance::run(Rc::clone(&thread), Rc::clone(&store))));
    tasks.spawn_local(boxed(suspension::run(Rc::clone(&thread))));
    tasks.spawn_local(boxed(proof::history(Rc::clone(&thread), store.reader(), unread)));
    tasks.spawn_local(boxed(sweep::sweep(Rc::clone(&http))));
    if thread.node.shards().next() == Some(shard) {
        tasks.spawn_local(boxed(site::sweep(Rc::clone(&http))));
    }
    for way in ways {
        tasks.spawn_local(boxed(way.run()));
    }
    let mut accepting = accept(&http, links, &ListenerKind::Nodes(http.server.links.clone()));
    if thread.node.shards().next() == Some(shard) {
        begin_node(&http, &mut tasks).await;
    }
    let _ = reports.send(Report::Ready);
    tokio::select! {
        () = wait_until(&mut course_now, Course::Serve) => {}
        () = any_panics(&mut tasks) => return Err(ServeError::ShardPanicked),
    }
    accepting.extend(accept(&http, listeners, &ListenerKind::Clients(admin)));
    accepting.extend(accept(&http, pages, &ListenerKind::Pages));
    tokio::select! {
        () = wait_until(&mut course_now, Course::Drain) => {}
        () = any_panics(&mut tasks) => return Err(ServeError::ShardPanicked),
    }
    // The shard still answers during `drain_pause`. Clients must see 503 at `/readyz`, or
    // `Connection: close` in an answer, before their connections are closed.
    tokio::time::sleep(thread.node.config.drain_pause).await;
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    drain(&http).await;
    if thread.node.shards().next() == Some(shard) {
        witness::end(&Tokio, &thread.node, &thread.peers).await;
    }
    let _ = reports.send(Report::Drained);
    wait_until(&mut course_now, Course::Stop).await;
    let is_saved = lifecycle::save(&thread, &*store).await;
    // When the tasks end, their references to the store are dropped too.
    tasks.shutdown().await;
    let is_closed = Rc::into_inner(store).is_none_or(|store| store.close().is_ok());
    if is_saved && is_closed { Ok(()) } else { Err(ServeError::Unsaved { shard }) }
}

/// Creates the shard, and the state that the tasks on its thread share.
fn shard_of(
    server: Arc<Server>,
    shard: u16,
    engine: Engine,
    clock: &Clock,
    peers: Peers,
) -> Rc<HttpShard> {
    let (node, clock) = (Arc::clone(&server.node), clock.shard_time());
    let mut thread = ShardThread::new(shard, node, Tokio, engine, clock, peers);
    let source = |it| application::source(it, &server.node, &thread.peers);
    thread.source = server.application.as_ref().map(source);
    Rc::new(HttpShard::new(Rc::new(thread), server))
}

/// Starts the tasks that run once for the whole node, on one of its threads.
async fn begin_node(http: &Rc<HttpShard>, tasks: &mut JoinSet<()>) {
    let (node, peers) = (Arc::clone(&http.node), http.peers.clone());
    let net = |former: &_| link::to_former(&http.server, former);
    moves::announce_to_former(&Tokio, &node, &peers, net).await;
    let away = witness::begin(&Tokio, &node, &peers).await;
    tasks.spawn_local(boxed(go_on(node, peers, away)));
    tasks.spawn_local(boxed(application::renew(Rc::clone(http))));
}

/// Waits until one of the shard's own tasks has panicked. All these tasks are essential.
async fn any_panics(tasks: &mut JoinSet<()>) {
    while let Some(end) = tasks.join_next().await {
        if end.is_err() {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Exchanges reports with the other nodes of the cluster, and resumes moves.
async fn go_on(node: Arc<Node>, peers: Peers, away: Vec<u16>) {
    let reported = witness::go_on(Tokio, Arc::clone(&node), peers.clone(), away);
    let watched = moves::watch_versions(Tokio, Arc::clone(&node), peers.clone());
    tokio::join!(reported, watched, moves::resume(Tokio, node, peers));
}

fn accept(
    thread: &Rc<HttpShard>,
    listeners: Vec<Listener>,
    kind: &ListenerKind,
) -> Vec<tokio::task::JoinHandle<()>> {
    let of = |listener| tasks::spawn(http::accept(Rc::clone(thread), listener, kind.clone()));
    listeners.into_iter().map(of).collect()
}

async fn wait_until(course_now: &mut watch::Receiver<Course>, course: Course) {
    // An error means that the sender was dropped, which has the same meaning as [`Course::Stop`].
    let _ = course_now.wait_for(|now| *now >= course).await;
}

/// Lets the open connections complete their answers, within [`DRAIN_MAX`].
async fn drain(thread: &HttpShard) {
    let until = Instant::now() + DRAIN_MAX;
    thread.connections.drain();
    while thread.connections.count() > 0 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[cfg(test)]
mod tests;
