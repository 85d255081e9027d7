//! Stores the shards' journals in NATS JetStream: one stream per shard, one message per group.
//!
//! Owns the interpretation of JetStream's answers, and the rules for the settings of servers and
//! streams. Does not depend on the contents of a message. `ringwell_driver::store::Appending`
//! decides how to react to an answer. Messages are sent without an id, and only one append is in
//! progress at a time: see docs/spec/log.md, "JetStream".

mod ahead;
mod beat;
mod check;
mod connection;
mod error;
mod examine;
mod keep;
mod notes;
mod permissions;
mod reach;
mod snapshot_store;
mod stream;

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use async_nats::Client;
use ringwell_config::Replicated;
use ringwell_driver::store::{
    Beat, FoundLog, KeptNotes, LastHeartbeat, LogNotes, Logs, SharedLog, Sign, SnapshotStore,
};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use connection::connect;
use error::unreached;

pub use error::{NatsError, Unfit};
pub use examine::{Examined, examine};

/// The time for which each request at startup is repeated while the servers do not answer.
const START_MAX: Duration = Duration::from_mins(1);

/// The time limit for reporting that the process has ended.
const END_MAX: Duration = Duration::from_secs(1);

/// The pause before a request is repeated at startup.
const START_PAUSE: Duration = Duration::from_millis(200);

/// The streams of all shards of a process, on one connection.
pub struct NatsLogs {
    client: Client,
    reach: Arc<reach::Reach>,
    runtime: Handle,
    settings: Replicated,
    /// Whether the process already serves, or has ended. In both cases, its heartbeats no longer
    /// report that it is starting.
    has_started: Arc<AtomicBool>,
    /// Whether the process no longer serves anything.
    has_ended: Arc<AtomicBool>,
    /// The thread that talks to the servers ends when this is dropped.
    _running: oneshot::Sender<()>,
}

impl NatsLogs {
    /// Connects to the servers and checks whether they can be trusted with journals.
    ///
    /// # Errors
    /// [`NatsError`]
    pub fn connect(settings: &Replicated) -> Result<Self, NatsError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<()>();
        std::thread::Builder::new().name("journal-log".to_owned()).spawn(move || {
            // The wait ends when the sender is dropped.
            let _ = runtime.block_on(ended);
        })?;
        let wanted = settings.clone();
        let client = wait(&handle, async move {
            let client = patiently(|| connect(&wanted)).await?;
            for away in check::servers(&client, &wanted).await? {
                tokio::spawn(check::later(away));
            }
            Ok::<_, NatsError>(client)
        });
        let client = client.unwrap_or_else(|| Err(unreached(settings, "no answer")))?;
        Ok(Self {
            client,
            reach: Arc::default(),
            runtime: handle,
            settings: settings.clone(),
            has_started: Arc::default(),
            has_ended: Arc::default(),
            _running: running,
        })
    }
}

impl NatsLogs {
    fn stream(&self, shard: u16) -> stream::Stream {
        let name = format!("{}_{shard}", self.settings.stream);
        let reach = Arc::clone(&self.reach);
        stream::Stream::new(self.client.clone(), reach, self.runtime.clone(), name)
    }

    fn snapshots(&self, shard: u16) -> stream::Stream {
        let name = format!("{}_{shard}_snapshots", self.settings.stream);
        stream::Stream::of_snapshots(self.client.clone(), self.runtime.clone(), name)
    }

    /// Opens a stream, and creates it if it does not exist.
    fn open(
        &self,
        stream: stream::Stream,
        placement: &str,
        notes: &LogNotes,
    ) -> Result<stream::Stream, String> {
        let (opening, settings) = (stream.clone(), self.settings.clone());
        let (placement, notes) = (placement.to_owned(), notes.clone());
        self.ask(async move { patiently(|| opening.open(&settings, &placement, &notes)).await })?;
        Ok(stream)
    }

    /// Returns a stream's notes and the place after its last message; `None` if the stream does not
    /// exist.
    fn find_stream(&self, stream: stream::Stream) -> Result<Option<(LogNotes, u64)>, String> {
        let settings = self.settings.clone();
        self.ask(async move { patiently(|| stream.find(&settings)).await })
    }

    /// Waits for the answer to a request at startup.
    fn ask<T: Send + 'static>(
        &self,
        question: impl Future<Output = Result<T, NatsError>> + Send + 'static,
    ) -> Result<T, String> {
        let answer = wait(&self.runtime, question);
        let answer = answer.unwrap_or_else(|| Err(unreached(&self.settings, "no answer")));
        answer.map_err(|error| error.to_string())
    }
}

impl Logs for NatsLogs {
    fn find(&self, shard: u16) -> Result<FoundLog, String> {
        if let Some((notes, end)) = self.find_stream(self.stream(shard))? {
            return Ok(FoundLog::Found { notes, end });
        }
        let is_beside = self.find_stream(self.snapshots(shard))?.is_some();
        Ok(if is_beside { FoundLog::Lost } else { FoundLog::Missing })
    }

    fn log(
        &self,
        shard: u16,
        placement: &str,
        notes: &LogNotes,
    ) -> Result<Arc<dyn SharedLog>, String> {
        Ok(Arc::new(self.open(self.stream(shard), placement, notes)?))
    }

    fn keep_notes(&self, shards: BTreeSet<u16>, kept: Box<dyn Fn() -> KeptNotes + Send>) {
        let streams = shards.iter().map(|shard| (*shard, self.stream(*shard))).collect();
        self.runtime.spawn(keep::keep(streams, shards, kept));
    }

    fn has_log(&self, shard: u16) -> Result<bool, String> {
        Ok(self.find_stream(self.stream(shard))?.is_some())
    }

    fn snapshots(&self, shard: u16) -> Result<Arc<dyn SnapshotStore>, String> {
        let snapshots = self.open(self.snapshots(shard), "", &LogNotes::default())?;
        Ok(Arc::new(snapshot_store::SnapshotStream::new(snapshots, self.stream(shard))))
    }

    fn stand_by(&self, first: u16) -> Option<LastHeartbeat> {
        let beats = beat::Beats::new(self.client.clone(), &self.settings, first);
        let stream = self.stream(first);
        let (done, over) = channel();
        self.runtime.spawn(async move {
            let _ = done.send(beats.silence(&stream).await);
        });
        // An error means that the thread that talks to the servers has ended. Startup will report
        // that.
        over.recv().ok().flatten()
    }

    fn starting(&self, first: u16) {
        let beats = beat::Beats::new(self.client.clone(), &self.settings, first);
        let has_started = Arc::clone(&self.has_started);
        let beat = move || (!has_started.load(Ordering::Relaxed)).then_some(Beat::Starting);
        self.runtime.spawn(beats.send(beat));
    }

    fn serving(&self, first: u16, sign: Box<dyn Fn() -> Option<Sign> + Send>) {
        let beats = beat::Beats::new(self.client.clone(), &self.settings, first);
        self.has_started.store(true, Ordering::Relaxed);
        let has_ended = Arc::clone(&self.has_ended);
        let sign = move || sign().filter(|_| !has_ended.load(Ordering::Relaxed));
        self.runtime.spawn(beats.send(move || sign().map(|sign| Beat::Serving(Some(sign)))));
    }

    fn ended(&self, first: u16) {
        self.has_started.store(true, Ordering::Relaxed);
        self.has_ended.store(true, Ordering::Relaxed);
        let beats = beat::Beats::new(self.client.clone(), &self.settings, first);
        let (done, over) = channel();
        self.runtime.spawn(async move {
            beats.end().await;
            let _ = done.send(());
        });
        // If the report fails or takes too long, other processes notice that the heartbeats have
        // stopped.
        let _ = over.recv_timeout(END_MAX);
    }
}

impl fmt::Debug for NatsLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsLogs").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Repeats `work` while the servers do not answer, for at most [`START_MAX`].
async fn patiently<T, F: Future<Output = Result<T, NatsError>>>(
    work: impl Fn() -> F,
) -> Result<T, NatsError> {
    let until = tokio::time::Instant::now() + START_MAX;
    loop {
        match work().await {
            Err(NatsError::Unreached { servers, reason })
                if tokio::time::Instant::now() < until =>
            {
                tracing::warn!(servers, reason, "the journal's servers do not answer yet");
                tokio::time::sleep(START_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Runs `work` on the thread that talks to the servers, and waits for it. Returns `None` if the
/// work did not end in time.
fn wait<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (done, output) = channel();
    runtime.spawn(async move { drop(done.send(work.await)) });
    output.recv_timeout(START_MAX * 2).ok()
}
