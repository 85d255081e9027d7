//! The driver's interface to the machine: time, tasks, and connections to other processes.
//!
//! The server implements [`Platform`] over tokio. The embedded engine and the simulator implement
//! it over [`crate::local::Executor`]. The driver's code is generic over the platform. Messages,
//! the state of a process, and loops over rows do not depend on it, so they are compiled only once.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use pin_project_lite::pin_project;
use tokio::sync::oneshot;

pub use crate::moment::Moment;
use crate::store::Files;
use crate::watch::Watch;

/// The machine on which a shard runs. Cheap to clone, because it is a handle or an empty type.
pub trait Platform: Clone + fmt::Debug + 'static {
    /// The type of a connection to another process's shard.
    type Net: Net;

    /// The number of calls to [`Self::turn`] that suffice to read an answer that has arrived.
    /// During these calls, the runtime polls its sockets, and the connection reads the answer and
    /// passes it on.
    const TURNS_TO_READ: usize;

    /// The number of entries in one piece of a snapshot. Other tasks run between two pieces.
    const SNAPSHOT_ENTRIES: u32 = ringwell_engine::PIECE_ENTRIES;

    /// The interval between two rounds of maintenance.
    const ROUND: Duration = Duration::from_secs(1);

    /// Whether a batch may have waited past its deadline before [`crate::batch::answer`] gets it.
    /// If it has, its rows overflow at once.
    const STARTS_LATE: bool = false;

    /// The files of this process.
    type Files: Files;

    /// Returns a handle to the files.
    fn files(&self) -> Self::Files;

    /// Returns the observer of the shards' decisions. Only the simulator has an observer.
    #[inline]
    fn watch(&self) -> Option<&dyn Watch> {
        None
    }

    /// Returns the current time as a [`Moment`], the type of all deadlines.
    fn moment(&self) -> Moment;

    /// Returns the time since the machine was booted, including any time during which it was
    /// suspended.
    fn boot_time(&self) -> Duration;

    /// Returns the wall-clock time since 1970. The wall clock can be set at any time.
    fn wall(&self) -> Duration;

    /// Completes at `at`, or at once if that moment has passed.
    fn sleep_until(&self, at: Moment) -> impl Future<Output = ()> + 'static;

    /// Completes after the other ready tasks and the sockets have been polled.
    fn turn(&self) -> impl Future<Output = ()> + 'static;

    /// Runs a task on this shard's thread until it completes or the shard ends.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);

    /// Runs a long computation on a thread that serves no batches. Returns `None` if the process is
    /// ending.
    fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + 'static;

    /// Like [`Self::spawn`], but the returned receiver gets the output. Dropping the receiver does
    /// not end the task.
    fn task<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> oneshot::Receiver<T> {
        let (done, output) = oneshot::channel();
        self.spawn(async move { drop(done.send(work.await)) });
        output
    }

    /// Returns the output of `work` if it completes by `at`. `work` is polled before the time is
    /// checked, so a ready result counts even if it is polled late.
    fn by<F: Future>(&self, at: Moment, work: F) -> By<F, impl Future<Output = ()> + 'static> {
        By { work, end: self.sleep_until(at) }
    }

    /// Like [`Self::by`], with a time limit of `time` from now.
    fn within<F: Future>(
        &self,
        time: Duration,
        work: F,
    ) -> By<F, impl Future<Output = ()> + 'static> {
        self.by(self.moment() + time, work)
    }
}

pin_project! {
    /// The future that [`Platform::by`] returns.
    #[derive(Debug)]
    pub struct By<F, S> {
        #[pin]
        work: F,
        #[pin]
        end: S,
    }
}

impl<F: Future, S: Future> Future for By<F, S> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.work.poll(cx) {
            return Poll::Ready(Some(output));
        }
        this.end.poll(cx).map(|_| None)
    }
}

/// A request to another process's shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Allocates for rows.
    Rows,
    /// Releases numbers that no client has seen.
    Unanswered,
    /// A ping.
    Ping,
    /// Asks for a number's holder.
    Attribution,
    /// Ends a lockout.
    Release,
    /// Asks the other node whether it can take buckets.
    Prepare,
    /// Asks a shard to adopt the state of the numbers in buckets that move.
    Adopt,
    /// Asks the other node to take buckets over.
    Take,
    /// Takes back buckets that the other node has not accepted.
    Abandon,
    /// Exchanges lists of the buckets' owners with the other node.
    Owners,
    /// Reports the progress of journals, and asks for the progress that the other node has
    /// recorded.
    Journals,
    /// Asks how long numbers will remain locked.
    Locked,
}

impl Path {
    const ALL: [Self; 12] = [
        Self::Rows,
        Self::Unanswered,
        Self::Ping,
        Self::Attribution,
        Self::Release,
        Self::Prepare,
        Self::Adopt,
        Self::Take,
        Self::Abandon,
        Self::Owners,
        Self::Journals,
        Self::Locked,
    ];

    /// Returns the path as it appears in requests. Source: docs/spec/link.md.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rows => "/link/v1/rows",
            Self::Unanswered => "/link/v1/unanswered",
            Self::Ping => "/link/v1/ping",
            Self::Attribution => "/link/v1/attribution",
            Self::Release => "/link/v1/release",
            Self::Prepare => "/link/v1/prepare",
            Self::Adopt => "/link/v1/adopt",
            Self::Take => "/link/v1/take",
            Self::Abandon => "/link/v1/abandon",
            Self::Owners => "/link/v1/owners",
            Self::Journals => "/link/v1/journals",
            Self::Locked => "/link/v1/locked",
        }
    }

    /// Parses text that [`Self::as_str`] has returned.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|path| path.as_str() == text)
    }

    /// Whether bodies are frames of ringwell-mesh; otherwise they are JSON.
    #[must_use]
    pub const fn is_frame(self) -> bool {
        matches!(self, Self::Rows | Self::Unanswered | Self::Ping)
    }
}

/// The place of a batch in a recorded trace, as bytes that the driver passes on to other nodes
/// without reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced(pub [u8; 24]);

/// Times are converted between two machines if their wall clocks differ by at least this much.
/// Synchronized clocks differ only by milliseconds.
pub const CLOCK_DIFFERENCE_MIN_MS: u64 = 100;

/// The connection to one of another process's shards.
pub trait Net: fmt::Debug + 'static {
    /// Sends a request and returns the answer's body. If the result is [`Trouble::Lost`], or the
    /// future is dropped, it is unknown whether the request was served.
    fn call(
        &self,
        path: Path,
        body: Bytes,
    ) -> impl Future<Output = Result<Bytes, Trouble>> + 'static;

    /// Like [`Self::call`], for a request that belongs to a trace. The default implementation drops
    /// the trace.
    fn call_traced(
        &self,
        path: Path,
        body: Bytes,
        _: Option<Traced>,
    ) -> impl Future<Output = Result<Bytes, Trouble>> + 'static {
        self.call(path, body)
    }

    /// Returns by how many milliseconds the other machine's wall clock is ahead; negative if it is
    /// behind. Zero if the clocks agree within [`CLOCK_DIFFERENCE_MIN_MS`], or have not been
    /// compared yet.
    fn clock_ahead_ms(&self) -> i64 {
        0
    }

    /// Closes idle connections. Called after the other process has sent data that cannot be parsed.
    fn close(&self);

    /// Counts, for metrics.
    fn stats(&self) -> NetStats;
}

/// For processes that have no connections to others.
impl Net for Infallible {
    fn call(&self, _: Path, _: Bytes) -> impl Future<Output = Result<Bytes, Trouble>> + 'static {
        let never = *self;
        async move { match never {} }
    }

    fn close(&self) {
        match *self {}
    }

    fn stats(&self) -> NetStats {
        match *self {}
    }
}

/// The counts of a connection to another process.
#[derive(Clone, Debug)]
pub struct NetStats {
    /// Open connections.
    pub connections: u32,
    /// Connections made.
    pub connects: u64,
    /// The time from a request to its answer, in microseconds.
    pub latency: Histogram<u64>,
    /// The milliseconds by which the other machine's clock is ahead of this machine's; negative if
    /// it is behind.
    pub clock_ahead_ms: i64,
}

/// The reason why a call got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The other process refused the call, with this HTTP status and reason.
    Refused(u16, String),
    /// There was no connection, or it broke during the call.
    Lost(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status, reason) if reason.is_empty() => {
                write!(f, "the other node answered {status}")
            }
            Self::Refused(_, reason) => write!(f, "the other node answered: {reason}"),
            Self::Lost(reason) => write!(f, "the other node cannot be reached: {reason}"),
        }
    }
}

/// Runs `work` to its end, even if the caller stops waiting. An interrupted change would leave some
/// shards in the new state and others in the old one. Returns `None` if the node is stopping.
pub async fn to_its_end<P: Platform, T: 'static>(
    platform: &P,
    work: impl Future<Output = T> + 'static,
) -> Option<T> {
    platform.task(work).await.ok()
}
