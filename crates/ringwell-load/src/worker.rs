//! One thread of the generator: its connections, its batches, its counts.
//!
//! Owns its sockets and counts, and shares no mutable state with other threads except the history
//! and the flag that ends the run. Invariant: a connection in the state `Idle` is in exactly one of
//! `idle` and `waiting`, exactly once; a connection in any other state is in neither.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use mio::event::Event;
use mio::{Events, Poll, Token};

use crate::answer::{BadAnswer, ParsedAnswer, Scanner};
use crate::clock::{as_ns, now_ns};
use crate::connection::{AnswerBuffer, Connection, ConnectionState, Received, Request};
use crate::feed::{Feed, Retry};
use crate::history::{Attempt, History, Scribe};
use crate::pace::Pace;
use crate::plan::LoadPlan;
use crate::request::Batches;
use crate::tally::{Counts, Failure, Latencies, Tally};
use crate::target::Endpoint;
use crate::timer::Timer;

/// Answers up to this length can be read with one system call and processed in place.
const BUFFER_BYTES: usize = 256 * 1024;
/// The maximum number of events that one poll returns.
const EVENTS: usize = 1_024;
/// The interval between two checks of the connections.
const TICK_NS: u64 = 50_000_000;
/// The pause before a lost connection is opened again.
const RECONNECT_NS: u64 = 50_000_000;
/// If the next batch is due within this time, the thread does not sleep, because waking up takes
/// about this long.
const SPIN_NS: u64 = 60_000;
/// The time for which the generator waits for answers to batches in flight after SIGINT.
const STOP_NS: u64 = 1_000_000_000;
/// The maximum number of attempts to send a batch.
const TRIES: u32 = 4;

/// The state that all threads read.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) plan: &'a LoadPlan,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) nodes: Vec<String>,
    pub(crate) ready: Vec<Box<[u8]>>,
    pub(crate) batches: Batches,
    pub(crate) history: Option<&'a History>,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) interval_ns: u64,
}

/// A thread's counts for one interval, which `interval` identifies.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) interval: u64,
    pub(crate) counts: Counts,
    pub(crate) latencies: Latencies,
}

/// One thread, connected and ready to start.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    shared: &'a Shared<'a>,
    thread: usize,
    poll: Poll,
    timer: Timer,
    connections: Vec<Connection>,
    /// For each connection, the attempt in flight, if the run writes a history.
    attempts: Vec<Option<Attempt>>,
    idle: VecDeque<usize>,
    /// During the ramp of a closed loop, the connections that have not begun to send.
    waiting: VecDeque<usize>,
    busy: usize,
    /// The index of the next batch.
    next: u64,
    tally: Tally,
    scanner: Scanner,
    buffer: Box<[u8]>,
    scribe: Option<Scribe<'a>>,
}

impl<'a> Worker<'a> {
    /// Opens the thread's share of the connections.
    ///
    /// # Errors
    /// The index of the endpoint that could not be connected to (0 for other failures), and the
    /// error.
    pub(crate) fn connect(
        shared: &'a Shared<'a>,
        thread: usize,
    ) -> Result<Self, (usize, io::Error)> {
        let own = |error| (0, error);
        let poll = Poll::new().map_err(own)?;
        let LoadPlan { connections: count, threads, pace, ramp, .. } = shared.plan;
        let mut connections = Vec::new();
        for place in (thread..*count).step_by(*threads) {
            let endpoint = place % shared.endpoints.len();
            let mut connection = Connection::new(endpoint, Token(connections.len()));
            connection
                .connect(&shared.endpoints[endpoint], poll.registry())
                .map_err(|error| (endpoint, error))?;
            connections.push(connection);
        }
        let timer = Timer::new(poll.registry(), Token(connections.len())).map_err(own)?;
        let all = (0..connections.len()).collect();
        let joins_slowly = *pace == Pace::Closed && *ramp > Duration::ZERO;
        let (waiting, idle) = if joins_slowly { (all, [].into()) } else { ([].into(), all) };
        let has_keys = shared.plan.retry;
        let first = thread * shared.ready.len() / threads;
        Ok(Self {
            shared,
            thread,
            poll,
            timer,
            attempts: connections.iter().map(|_| None).collect(),
            connections,
            idle,
            waiting,
            busy: 0,
            next: u64::try_from(first).unwrap_or(0),
            tally: Tally::new(),
            scanner: Scanner::new(),
            buffer: vec![0; BUFFER_BYTES].into(),
            scribe: shared.history.map(|history| Scribe::new(history, thread, has_keys)),
        })
    }

    /// Sends and receives until every batch is sent and answered, or the time is up.
    ///
    /// # Errors
    /// If polling fails or the history cannot be written.
    pub(crate) fn run(mut self, start_ns: u64, seen: &Sender<Seen>) -> io::Result<()> {
        let plan = self.shared.plan;
        let mut feed = Feed::new(plan, self.thread, start_ns);
        let mut give_up_ns = feed.end_ns().saturating_add(as_ns(plan.timeout));
        let mut is_stopped = false;
        let (mut interval, mut tick_ns) = (0, start_ns);
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let now = now_ns();
            if now >= tick_ns {
                if !is_stopped && self.shared.stop.load(Ordering::Relaxed) {
                    is_stopped = true;
                    feed.stop(now);
                    give_up_ns = give_up_ns.min(now + STOP_NS);
                }
                self.look_through(now, start_ns, &mut feed)?;
                tick_ns = now + TICK_NS;
            }
            while now >= start_ns + (interval + 1) * self.shared.interval_ns {
                self.report(interval, seen);
                interval += 1;
            }
            self.issue(now, &mut feed)?;
            let is_over = now >= start_ns && feed.is_done(now) && self.busy == 0;
            if is_over || now >= give_up_ns {
                break;
            }
            let boundary = start_ns + (interval + 1) * self.shared.interval_ns;
            let timeout = self.wait_for(now, tick_ns.min(boundary), &feed)?;
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                if event.token().0 < self.connections.len() {
                    self.on_event(event, &mut feed)?;
                }
            }
        }
        self.wind_up(&mut feed)?;
        self.report(interval, seen);
        Ok(())
    }

    fn report(&mut self, interval: u64, seen: &Sender<Seen>) {
        let (counts, latencies) = self.tally.take();
        // The receiver is dropped early only if the run has already failed elsewhere.
        let _ = seen.send(Seen { interval, counts, latencies });
    }

    /// Returns the time for which a poll may wait for events. A poll's timeout is accurate only to
    /// a millisecond, so this also sets the timer to expire shortly before the next batch is due.
    fn wait_for(&mut self, now: u64, until: u64, feed: &Feed) -> io::Result<Duration> {
        let until = until.max(now);
        let Some(due) = feed.next_ns().filter(|_| !self.idle.is_empty()) else {
            return Ok(Duration::from_nanos(until - now));
        };
        if due <= now + SPIN_NS {
            return Ok(Duration::ZERO);
        }
        if due < until {
            self.timer.set(due - SPIN_NS)?;
        }
        Ok(Duration::from_nanos(until - now))
    }

    /// Sends due batches as long as connections are free.
    fn issue(&mut self, now: u64, feed: &mut Feed) -> io::Result<()> {
        while !self.idle.is_empty() {
            if let Some(retry) = feed.take_retry() {
                self.send(Request::Own(retry.bytes), Some(retry.attempt), retry.due_ns, now, feed)?;
                continue;
            }
            let Some(due) = feed.due(now) else { return Ok(()) };
            feed.take();
            let (request, attempt) = self.make();
            self.send(request, attempt, due, now, feed)?;
        }
        Ok(())
    }

    /// Creates the next batch that is not a retry.
    fn make(&mut self) -> (Request, Option<Attempt>) {
        let index = self.next;
        self.next += 1;
        let Some(scribe) = &mut self.scribe else {
            let count = u64::try_from(self.shared.ready.len()).unwrap_or(u64::MAX);
            return (Request::Ready(usize::try_from(index % count).unwrap_or(0)), None);
        };
        let id = scribe.next_id();
        let key = self.shared.plan.retry.then_some(id.as_str());
        let (text, asked) = self.shared.batches.own(index, &id, key);
        let attempt = Attempt { key: id.clone(), id, asked, number: 1 };
        (Request::Own(text.into_bytes()), Some(attempt))
    }

    fn send(
        &mut self,
        request: Request,
        attempt: Option<Attempt>,
        due: u64,
        now: u64,
        feed: &mut Feed,
    ) -> io::Result<()> {
        let Some(place) = self.idle.pop_front() else { return Ok(()) };
        let connection = &mut self.connections[place];
        if let (Some(scribe), Some(attempt)) = (&mut self.scribe, &attempt) {
            let is_open = matches!(self.shared.plan.pace, Pace::Open { .. });
            let node = &self.shared.nodes[connection.endpoint];
            scribe.invoked(attempt, now_ns(), is_open.then_some(due), node)?;
        }
        self.attempts[place] = attempt;
        self.busy += 1;
        self.tally.counts.sent += 1;
        match connection.send(request, &self.shared.ready, now, due) {
            Ok(()) => Ok(()),
            Err(_) => self.lost(place, Failure::Reset, now_ns(), feed),
        }
    }

    fn on_event(&mut self, event: &Event, feed: &mut Feed) -> io::Result<()> {
        let place = event.token().0;
        let connection = &mut self.connections[place];
        if let ConnectionState::Connecting { .. } = connection.state {
            return match connection.opened() {
                Ok(true) => {
                    self.idle.push_back(place);
                    self.issue(now_ns(), feed)
                }
                Ok(false) => Ok(()),
                Err(_) => self.lost(place, Failure::Refused, now_ns(), feed),
            };
        }
        if event.is_writable()
            && connection.has_more_to_send(&self.shared.ready)
            && connection.go_on(&self.shared.ready).is_err()
        {
            return self.lost(place, Failure::Reset, now_ns(), feed);
        }
        if !(event.is_readable() || event.is_read_closed() || event.is_error()) {
            return Ok(());
        }
        match connection.receive(&mut self.buffer) {
            Received::More => Ok(()),
            Received::Whole(answer, lies) => self.answered(place, &answer, lies, feed),
            Received::Lost => self.lost(place, Failure::Reset, now_ns(), feed),
            Received::Bad(bad) => self.unreadable(place, bad, feed),
        }
    }

    fn answered(
        &mut self,
        place: usize,
        answer: &ParsedAnswer,
        lies: AnswerBuffer,
        feed: &mut Feed,
    ) -> io::Result<()> {
        let now = now_ns();
        let connection = &mut self.connections[place];
        let ConnectionState::Busy { due_ns, .. } = connection.state else {
            return self.unreadable(place, BadAnswer("a response without a request"), feed);
        };
        let bytes = match lies {
            AnswerBuffer::Given => &self.buffer[..answer.body.end],
            AnswerBuffer::Own => connection.pieces(),
        };
        let body = &bytes[answer.body.clone()];
        self.tally.counts.bytes_in += u64::try_from(answer.body.end).unwrap_or(0);
        if answer.status == 200 {
            self.tally.answered(now.saturating_sub(due_ns), self.scanner.count(body));
        } else {
            self.tally.other_status(answer.status);
        }
        if let (Some(scribe), Some(attempt)) = (&mut self.scribe, self.attempts[place].take()) {
            scribe.returned(&attempt, now, answer.status, body)?;
        }
        self.busy -= 1;
        if answer.closes {
            connection.close(now);
        } else {
            connection.finish();
            self.idle.push_back(place);
        }
        self.issue(now, feed)
    }

    fn unreadable(&mut self, place: usize, bad: BadAnswer, feed: &mut Feed) -> io::Result<()> {
        let now = now_ns();
        if let (Some(scribe), Some(attempt)) = (&mut self.scribe, self.attempts[place].take()) {
            scribe.unreadable(&attempt, now, bad)?;
        }
        self.lost(place, Failure::Bad, now, feed)
    }

    /// Closes a connection that can no longer be used. If a batch was in flight, it counts as
    /// failed and may be sent again.
    fn lost(
        &mut self,
        place: usize,
        failure: Failure,
        now: u64,
        feed: &mut Feed,
    ) -> io::Result<()> {
        let connection = &mut self.connections[place];
        let state = connection.state;
        let request = connection.close(now + RECONNECT_NS);
        let due_ns = match state {
            ConnectionState::Busy { due_ns, .. } => due_ns,
            ConnectionState::Idle => {
                // A server may close idle connections.
                self.idle.retain(|other| *other != place);
                self.waiting.retain(|other| *other != place);
                if failure == Failure::Bad {
                    self.tally.failed(failure, 0);
                }
                return Ok(());
            }
            ConnectionState::Closed { .. } | ConnectionState::Connecting { .. } => {
                self.tally.failed(failure, 0);
                return Ok(());
            }
        };
        self.busy -= 1;
        self.tally.failed(failure, now.saturating_sub(due_ns));
        let (Some(scribe), Some(attempt)) = (&mut self.scribe, self.attempts[place].take()) else {
            return Ok(());
        };
        scribe.unknown(&attempt, now, failure)?;
        let is_under_way = now < feed.end_ns();
        if let Request::Own(bytes) = request
            && self.shared.plan.retry
            && attempt.number < TRIES
            && is_under_way
        {
            let number = attempt.number + 1;
            let attempt = Attempt { id: scribe.next_id(), number, ..attempt };
            feed.retry(Retry { attempt, bytes, due_ns });
        }
        Ok(())
    }

    /// Reopens closed connections, closes connections whose batch timed out, and lets further
    /// connections start to send.
    fn look_through(&mut self, now: u64, start: u64, feed: &mut Feed) -> io::Result<()> {
        let patience = as_ns(self.shared.plan.timeout);
        for place in 0..self.connections.len() {
            let connection = &mut self.connections[place];
            match connection.state {
                ConnectionState::Closed { again_ns } if again_ns <= now => {
                    let to = &self.shared.endpoints[connection.endpoint];
                    if connection.reconnect(to, self.poll.registry(), now).is_err() {
                        self.lost(place, Failure::Refused, now, feed)?;
                    }
                }
                ConnectionState::Connecting { since_ns }
                    if now > since_ns.saturating_add(patience) =>
                {
                    self.lost(place, Failure::Refused, now, feed)?;
                }
                ConnectionState::Busy { sent_ns, .. } if now > sent_ns.saturating_add(patience) => {
                    self.lost(place, Failure::Timeout, now, feed)?;
                }
                _ => {}
            }
        }
        self.join(now.saturating_sub(start));
        Ok(())
    }

    /// In a closed loop with a ramp, connections start to send at even intervals during the ramp.
    fn join(&mut self, since_ns: u64) {
        let ramp = as_ns(self.shared.plan.ramp);
        let (count, since) = (self.connections.len(), u128::from(since_ns));
        while let Some(place) = self.waiting.front().copied() {
            // The first connection starts at once, and the last one shortly before the ramp ends.
            let turn = u128::from(ramp) * (place as u128) / (count as u128);
            if since < turn {
                return;
            }
            self.waiting.pop_front();
            self.idle.push_back(place);
        }
    }

    /// Counts batches without an answer and batches that were never sent.
    fn wind_up(&mut self, feed: &mut Feed) -> io::Result<()> {
        let now = now_ns();
        for place in 0..self.connections.len() {
            if let ConnectionState::Busy { .. } = self.connections[place].state {
                self.lost(place, Failure::End, now, feed)?;
            }
        }
        self.tally.counts.unsent += feed.left();
        self.scribe.as_mut().map_or(Ok(()), Scribe::hand_over)
    }
}
