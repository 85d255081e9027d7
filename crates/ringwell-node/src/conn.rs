//! One client connection: its phases, its time limits, its end.
//!
//! A request costs no timer: the connection notes in which phase it is and since when, and a
//! sweep once a second cuts those that have been in one for too long. Only a slow body has a
//! timer of its own, because it gets an answer (408).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::coarse_time;

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The next request.
    Idle,
    /// The rest of a request's head.
    Head,
    /// Us: its body is being read, or its answer made. Other limits apply there.
    Service,
    /// The client, to take the answer.
    Write,
}

/// How long each phase may last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseLimits {
    pub(crate) idle: Duration,
    pub(crate) head: Duration,
    pub(crate) write: Duration,
}

/// What the connection's task is told from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Go on.
    Serve,
    /// Answer what has begun, then close.
    Finish,
    /// Close now.
    Cut,
}

/// Phase and orders of one connection, shared with the sweep.
#[derive(Debug)]
pub(crate) struct Watch {
    phase: Cell<(Phase, Duration)>,
    order: Cell<Order>,
    waker: RefCell<Option<Waker>>,
}

impl Watch {
    fn new(now: Duration) -> Self {
        // A client that connects and says nothing is one that does not finish its head.
        Self {
            phase: Cell::new((Phase::Head, now)),
            order: Cell::new(Order::Serve),
            waker: RefCell::new(None),
        }
    }

    /// Enters a phase; time counts from here.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.set((phase, coarse_time()));
    }

    pub(crate) fn order(&self) -> Order {
        self.order.get()
    }

    /// Whom to wake when an order comes.
    pub(crate) fn remember(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    fn tell(&self, order: Order) {
        if self.order.get() != Order::Cut {
            self.order.set(order);
        }
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    fn is_overdue(&self, now: Duration, limits: &PhaseLimits) -> bool {
        let (phase, since) = self.phase.get();
        let limit = match phase {
            Phase::Idle => limits.idle,
            Phase::Head => limits.head,
            Phase::Write => limits.write,
            Phase::Service => return false,
        };
        now.saturating_sub(since) > limit
    }
}

/// Connections that are looked at in one go, a tenth of a millisecond's work: requests do not wait
/// for a sweep over thousands.
pub(crate) const SWEEP_CONNECTIONS: usize = 64;

/// The open connections of a shard.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: RefCell<BTreeMap<u64, Rc<Watch>>>,
    next: Cell<u64>,
    draining: Cell<bool>,
}

impl Connections {
    /// A new connection; the guard takes it off the list.
    pub(crate) fn open(self: &Rc<Self>) -> Open {
        let id = self.next.replace(self.next.get() + 1);
        let watch = Rc::new(Watch::new(coarse_time()));
        if self.draining.get() {
            watch.tell(Order::Finish);
        }
        self.open.borrow_mut().insert(id, Rc::clone(&watch));
        Open { id, watch, list: Rc::clone(self) }
    }

    pub(crate) fn count(&self) -> usize {
        self.open.borrow().len()
    }

    /// Connections that come from now on have this id or a greater one.
    pub(crate) fn end(&self) -> u64 {
        self.next.get()
    }

    /// Cuts the connections that have been in one phase for too long, among the next few of `ids`;
    /// says how many were cut, and where to go on if there are more.
    pub(crate) fn sweep(&self, ids: Range<u64>, limits: &PhaseLimits) -> (u64, Option<u64>) {
        let now = coarse_time();
        let open = self.open.borrow();
        let mut some = open.range(ids);
        let overdue = some.by_ref().take(SWEEP_CONNECTIONS);
        let overdue = overdue.filter(|(_, watch)| watch.is_overdue(now, limits));
        let cut = overdue.map(|(_, watch)| watch.tell(Order::Cut)).count() as u64;
        (cut, some.next().map(|(id, _)| *id))
    }

    /// Lets every connection answer what it has begun and close.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        for watch in self.open.borrow().values() {
            watch.tell(Order::Finish);
        }
    }
}

/// A connection on the list.
#[derive(Debug)]
pub(crate) struct Open {
    id: u64,
    pub(crate) watch: Rc<Watch>,
    list: Rc<Connections>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.list.open.borrow_mut().remove(&self.id);
    }
}

/// A socket that notes the phases which only it can see: the first byte of a head, and the last
/// byte of an answer.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    pub(crate) socket: S,
    pub(crate) watch: Rc<Watch>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buffer);
        if buffer.filled().len() > before && self.watch.phase.get().0 == Phase::Idle {
            self.watch.enter(Phase::Head);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        if flushed.is_ready() && self.watch.phase.get().0 == Phase::Write {
            self.watch.enter(Phase::Idle);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
