//! The driver's interface to the machine: time, tasks, connections to other processes.
//!
//! The server implements [`Platform`] over tokio, the embedded engine and the simulator over
//! [`crate::local::Executor`]. Code of the driver has the platform as its only type parameter;
//! messages, the state of a process and loops over rows do not depend on it, so they are compiled
//! only once.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use pin_project_lite::pin_project;
use tokio::sync::oneshot;

use crate::store::Files;
use crate::watch::Watch;

/// Time since an origin of the process, which all its shards share. Deadlines are such times.
///
/// There is no `now()`, because only a platform knows the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub Duration);

impl Moment {
    /// The time from `earlier` to this moment; zero if `earlier` is the later one.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }
}

/// The machine under one shard. Cheap to clone: a handle, or an empty type.
pub trait Platform: Clone + fmt::Debug + 'static {
    /// The connection to shards of other processes.
    type Net: Net;

    /// The count of turns of the other tasks after which an answer that has arrived has been read:
    /// the runtime polls its sockets, the connection reads the answer and passes it on.
    const TURNS_TO_READ: usize;

    /// Entries in one piece of a snapshot: other tasks run between two pieces.
    const SNAPSHOT_ENTRIES: u32 = ringwell_engine::PIECE_ENTRIES;

    /// The interval between two rounds of maintenance.
    const ROUND: Duration = Duration::from_secs(1);

    /// Whether a batch may have waited past its deadline before [`crate::batch::answer`] gets it.
    /// Its rows then overflow at once.
    const STARTS_LATE: bool = false;

    /// Files of this process.
    type Files: Files;

    /// A handle on the files.
    fn files(&self) -> Self::Files;

    /// The observer of the shards' decisions; only the simulator has one.
    #[inline]
    fn watch(&self) -> Option<&dyn Watch> {
        None
    }

    /// The time, for deadlines.
    fn moment(&self) -> Moment;

    /// The time since the machine was booted, which continues while it is suspended.
    fn boot_time(&self) -> Duration;

    /// The wall clock, as time since 1970. It can be set at any time.
    fn wall(&self) -> Duration;

    /// Completes at `at`, or at once if that has passed.
    fn sleep_until(&self, at: Moment) -> impl Future<Output = ()> + 'static;

    /// Completes after the other ready tasks and the sockets have been polled.
    fn turn(&self) -> impl Future<Output = ()> + 'static;

    /// Runs a task on this shard's thread until it completes or the shard ends.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);

    /// Runs a long computation where no batch waits for it. `None` if the process is ending.
    fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + 'static;

    /// Like [`Self::spawn`]; the receiver gets the output. Dropping it does not end the task.
    fn task<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> oneshot::Receiver<T> {
        let (done, output) = oneshot::channel();
        self.spawn(async move { drop(done.send(work.await)) });
        output
    }

    /// The output of `work` if it completes by `at`. `work` is polled first: a ready result counts,
    /// even if it is polled late.
    fn by<F: Future>(&self, at: Moment, work: F) -> By<F, impl Future<Output = ()> + 'static> {
        By { work, end: self.sleep_until(at) }
    }

    /// Like [`Self::by`], with a limit of `time` from now.
    fn within<F: Future>(
        &self,
        time: Duration,
        work: F,
    ) -> By<F, impl Future<Output = ()> + 'static> {
        self.by(self.moment() + time, work)
    }
}

pin_project! {
    /// The future of [`Platform::by`].
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

/// A request to a shard of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Allocates for rows.
    Rows,
    /// Releases numbers that no client saw.
    Unanswered,
    /// A ping.
    Ping,
    /// Asks for the holder of a number.
    Attribution,
    /// Ends a lockout.
    Release,
    /// Asks whether the node can take buckets.
    Prepare,
    /// Asks to adopt the state of numbers of buckets that move.
    Adopt,
    /// Asks the node to take buckets.
    Take,
    /// Asks the node not to take buckets any more.
    Abandon,
    /// Exchanges copies of the owners.
    Owners,
    /// Exchanges records about journals.
    Journals,
    /// Asks how long numbers are locked.
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

    /// Its name in requests. Source: docs/spec/link.md.
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

    /// The inverse of [`Self::as_str`].
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

/// The place of a batch in a recorded trace: bytes that the driver passes to other nodes without
/// reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced(pub [u8; 24]);

/// The connection to one shard of another process.
pub trait Net: fmt::Debug + 'static {
    /// Sends a request and returns the answer's body. It is unknown whether a request was served if
    /// the result is [`Trouble::Lost`], or if the future is dropped.
    fn call(
        &self,
        path: Path,
        body: Bytes,
    ) -> impl Future<Output = Result<Bytes, Trouble>> + 'static;

    /// The same for a request that belongs to a trace. The default implementation ends the trace
    /// here.
    fn call_traced(
        &self,
        path: Path,
        body: Bytes,
        _: Option<Traced>,
    ) -> impl Future<Output = Result<Bytes, Trouble>> + 'static {
        self.call(path, body)
    }

    /// Closes idle connections after the other side sent something unreadable.
    fn close(&self);

    /// Counts, for metrics.
    fn stats(&self) -> NetStats;
}

/// There is no other process.
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

/// Counts of a connection to another process.
#[derive(Clone, Debug)]
pub struct NetStats {
    /// Open connections.
    pub connections: u32,
    /// Connections made.
    pub connects: u64,
    /// From a request to its answer, in microseconds.
    pub latency: Histogram<u64>,
    /// The milliseconds by which the other machine's clock is ahead, or behind if negative.
    pub clock_ahead_ms: i64,
}

/// The reason why a call got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The other process refused, with an HTTP status and its reason.
    Refused(u16, String),
    /// There was no connection, or it broke.
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
