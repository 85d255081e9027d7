//! One client connection: its phases, its time limits and its end.
//!
//! The time limits need neither a clock reading nor a timer for each request. Only a slow body has
//! its own timer, so that the client gets an answer (status 408). Each connection records its
//! phase, and once a second a sweep closes the connections that have been in one phase for too
//! long. The phases of all connections are stored contiguously, so that the sweep does not follow
//! thousands of pointers.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use ringwell_os::clock::coarse_time;

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The connection waits for the next request.
    Idle,
    /// The connection waits for the rest of a request's head.
    Head,
    /// The server reads the body or prepares the answer. The sweep ignores this phase, because
    /// other time limits apply to it.
    Service,
    /// The client reads the answer.
    Write,
}

/// The time limit of each phase except [`Phase::Service`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseLimits {
    pub(crate) idle: Duration,
    pub(crate) head: Duration,
    pub(crate) write: Duration,
}

/// An order to the connection's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Continue.
    Serve,
    /// Complete the answers in progress, and then close.
    Finish,
    /// Close now.
    Cut,
}

/// The current order and the waker of one connection, shared with the sweep.
#[derive(Debug)]
pub(crate) struct Watch {
    order: Cell<Order>,
    waker: RefCell<Option<Waker>>,
    list: Rc<Connections>,
    /// The index of the connection in the list.
    place: usize,
    /// Whether the connection's listener serves only web pages.
    is_page: bool,
    /// See [`Watch::linger`].
    lingers: Cell<bool>,
}

impl Watch {
    /// Enters a phase. The next sweep records the time, so a request need not read a clock.
    pub(crate) fn enter(&self, phase: Phase) {
        if let Some(entry) = self.list.open.borrow().get(self.place) {
            entry.stay.set(Stay { phase, since: None });
        }
    }

    /// Keeps the connection open until the client has finished sending a request that was refused.
    /// Otherwise, the client might not see the answer.
    pub(crate) fn linger(&self) {
        self.lingers.set(true);
    }

    pub(crate) fn lingers(&self) -> bool {
        self.lingers.get()
    }

    /// Whether a request has been read and its answer has not yet been sent.
    pub(crate) fn is_in_service(&self) -> bool {
        matches!(self.phase(), Some(Phase::Service | Phase::Write))
    }

    fn phase(&self) -> Option<Phase> {
        self.list.open.borrow().get(self.place).map(|entry| entry.stay.get().phase)
    }

    pub(crate) fn order(&self) -> Order {
        self.order.get()
    }

    /// Sets the task to be woken when an order is sent.
    pub(crate) fn remember(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    fn send(&self, order: Order) {
        if self.order.get() != Order::Cut {
            self.order.set(order);
        }
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

/// The phase of a connection, and the time of the first sweep that found the connection in this
/// phase.
#[derive(Clone, Copy, Debug)]
struct Stay {
    phase: Phase,
    since: Option<Duration>,
}

impl Stay {
    fn is_overdue(self, now: Duration, limits: &PhaseLimits) -> bool {
        let limit = match self.phase {
            Phase::Idle => limits.idle,
            Phase::Head => limits.head,
            Phase::Write => limits.write,
            Phase::Service => return false,
        };
        self.since.is_some_and(|since| now.saturating_sub(since) > limit)
    }
}

/// The open connections of a shard.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: RefCell<Slab<Entry>>,
    /// The number of connections to listeners that serve only web pages.
    pages: Cell<usize>,
    draining: Cell<bool>,
}

#[derive(Debug)]
struct Entry {
    stay: Cell<Stay>,
    watch: Rc<Watch>,
}

impl Connections {
    /// Registers a new connection. The returned guard removes it when dropped.
    pub(crate) fn open(self: &Rc<Self>, is_page: bool) -> Open {
        self.pages.set(self.pages.get() + usize::from(is_page));
        let mut open = self.open.borrow_mut();
        let entry = open.vacant_entry();
        let watch = Rc::new(Watch {
            order: Cell::new(if self.draining.get() { Order::Finish } else { Order::Serve }),
            waker: RefCell::new(None),
            list: Rc::clone(self),
            place: entry.key(),
            is_page,
            lingers: Cell::new(false),
        });
        // A new connection starts in this phase, so a client that sends nothing has no more time
        // than one that does not finish a head.
        let stay = Cell::new(Stay { phase: Phase::Head, since: None });
        entry.insert(Entry { stay, watch: Rc::clone(&watch) });
        Open { watch }
    }

    pub(crate) fn count(&self) -> usize {
        self.open.borrow().len()
    }

    /// Returns the number of connections to listeners that serve only web pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages.get()
    }

    /// Closes the connections that have been in one phase for too long, and returns their number.
    pub(crate) fn sweep(&self, limits: &PhaseLimits) -> u64 {
        let now = coarse_time();
        let open = self.open.borrow();
        let overdue = open.iter().filter(|(_, entry)| {
            let stay = entry.stay.get();
            entry.stay.set(Stay { since: stay.since.or(Some(now)), ..stay });
            stay.is_overdue(now, limits)
        });
        overdue.map(|(_, entry)| entry.watch.send(Order::Cut)).count() as u64
    }

    /// Lets every connection complete its answers and then close.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        for (_, entry) in &*self.open.borrow() {
            entry.watch.send(Order::Finish);
        }
    }
}

/// A registered connection.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) watch: Rc<Watch>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let list = &self.watch.list;
        list.open.borrow_mut().try_remove(self.watch.place);
        list.pages.set(list.pages.get() - usize::from(self.watch.is_page));
    }
}

/// A socket that records two phase changes: from idle to head when it reads the first byte of a
/// request, and from write to idle when it has written the last byte of an answer.
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
        if buffer.filled().len() > before && self.watch.phase() == Some(Phase::Idle) {
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
        if flushed.is_ready() && self.watch.phase() == Some(Phase::Write) {
            self.watch.enter(Phase::Idle);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
