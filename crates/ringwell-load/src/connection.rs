//! One non-blocking keep-alive connection, which sends a batch and receives its answer.
//!
//! Does not use the schedule, the history or the counters of a run. Invariant: at most one batch is
//! in progress, and all received bytes belong to its answer.
//!
//! Readiness is edge-triggered. A read that does not fill its buffer has emptied the socket, and
//! the next byte causes a new edge. This saves one further read per answer, which would only return
//! `WouldBlock`.

use std::io;
use std::mem;

use mio::{Registry, Token};

use crate::answer::{self, BadAnswer, ParsedAnswer};
use crate::target::{Endpoint, Stream};

/// The source of a batch's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// One of the prepared batches.
    Ready(usize),
    /// Bytes that were made for this batch. They are kept so that the batch can be sent again.
    Own(Vec<u8>),
}

impl Request {
    fn bytes<'a>(&'a self, ready: &'a [Box<[u8]>]) -> &'a [u8] {
        match self {
            Self::Ready(place) => &ready[*place],
            Self::Own(bytes) => bytes,
        }
    }
}

/// The buffer that contains a complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerBuffer {
    /// The buffer that was passed to [`Connection::receive`].
    Given,
    /// The connection's own buffer, because the answer arrived in pieces.
    Own,
}

/// The result of a read from a readable socket.
#[derive(Debug)]
pub(crate) enum Received {
    /// The answer is not complete yet.
    More,
    Whole(ParsedAnswer, AnswerBuffer),
    /// The connection is closed or broken.
    Lost,
    Bad(BadAnswer),
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// Not connected. The next attempt to connect is due at `again_ns`.
    Closed {
        again_ns: u64,
    },
    /// Connecting since `since_ns`.
    Connecting {
        since_ns: u64,
    },
    Idle,
    /// A batch is in progress.
    Busy {
        sent_ns: u64,
        due_ns: u64,
    },
}

/// A connection, open or not.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) endpoint: usize,
    pub(crate) state: ConnectionState,
    token: Token,
    stream: Option<Stream>,
    request: Request,
    /// The count of the request's bytes that have been sent.
    written: usize,
    /// The bytes of an incomplete answer that have arrived so far.
    partial: Vec<u8>,
}

impl Connection {
    /// A connection that is not open yet.
    pub(crate) fn new(endpoint: usize, token: Token) -> Self {
        Self {
            endpoint,
            state: ConnectionState::Closed { again_ns: 0 },
            token,
            stream: None,
            request: Request::Ready(0),
            written: 0,
            partial: Vec::new(),
        }
    }

    /// Connects, and waits until the connection is open.
    pub(crate) fn connect(&mut self, to: &Endpoint, registry: &Registry) -> io::Result<()> {
        let mut stream = to.connect()?;
        stream.register(registry, self.token)?;
        self.stream = Some(stream);
        self.state = ConnectionState::Idle;
        Ok(())
    }

    /// Begins to reconnect.
    pub(crate) fn reconnect(
        &mut self,
        to: &Endpoint,
        registry: &Registry,
        now_ns: u64,
    ) -> io::Result<()> {
        let mut stream = to.begin()?;
        stream.register(registry, self.token)?;
        self.stream = Some(stream);
        self.state = ConnectionState::Connecting { since_ns: now_ns };
        Ok(())
    }

    /// Whether the connection is open now; returns an error if connecting failed.
    pub(crate) fn opened(&mut self) -> io::Result<bool> {
        let Some(stream) = &self.stream else { return Ok(false) };
        let is_open = stream.is_open()?;
        if is_open {
            self.state = ConnectionState::Idle;
        }
        Ok(is_open)
    }

    /// Closes the connection, and returns the batch in flight so that it can be sent again.
    pub(crate) fn close(&mut self, again_ns: u64) -> Request {
        self.stream = None;
        self.partial.clear();
        self.state = ConnectionState::Closed { again_ns };
        mem::replace(&mut self.request, Request::Ready(0))
    }

    /// Sends a batch, or as much of it as the socket accepts.
    ///
    /// # Errors
    /// If the connection is broken.
    pub(crate) fn send(
        &mut self,
        request: Request,
        ready: &[Box<[u8]>],
        sent_ns: u64,
        due_ns: u64,
    ) -> io::Result<()> {
        self.request = request;
        self.written = 0;
        self.state = ConnectionState::Busy { sent_ns, due_ns };
        self.go_on(ready)
    }

    /// Sends the rest of the batch, or as much of it as the socket accepts.
    ///
    /// # Errors
    /// The same as for [`Self::send`].
    pub(crate) fn go_on(&mut self, ready: &[Box<[u8]>]) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Err(io::ErrorKind::NotConnected.into()) };
        let bytes = self.request.bytes(ready);
        while self.written < bytes.len() {
            match stream.write(&bytes[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether part of the batch still has to be sent.
    pub(crate) fn has_more_to_send(&self, ready: &[Box<[u8]>]) -> bool {
        matches!(self.state, ConnectionState::Busy { .. })
            && self.written < self.request.bytes(ready).len()
    }

    /// Reads the received bytes into `given`. If the answer arrives in pieces, collects the pieces
    /// in the connection's own buffer.
    pub(crate) fn receive(&mut self, given: &mut [u8]) -> Received {
        let Some(stream) = &mut self.stream else { return Received::More };
        loop {
            let got = match stream.read(given) {
                Ok(0) => return Received::Lost,
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Received::More,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Received::Lost,
            };
            let is_drained = got < given.len();
            let place =
                if self.partial.is_empty() { AnswerBuffer::Given } else { AnswerBuffer::Own };
            let bytes = match place {
                AnswerBuffer::Given => &given[..got],
                AnswerBuffer::Own => {
                    self.partial.extend_from_slice(&given[..got]);
                    &self.partial
                }
            };
            match answer::read(bytes) {
                Ok(Some(answer)) if answer.body.end < bytes.len() => {
                    return Received::Bad(BadAnswer(
                        "the response is followed by unexpected bytes",
                    ));
                }
                Ok(Some(answer)) => return Received::Whole(answer, place),
                Ok(None) if place == AnswerBuffer::Given => {
                    self.partial.extend_from_slice(&given[..got]);
                }
                Ok(None) => {}
                Err(bad) => return Received::Bad(bad),
            }
            if is_drained {
                return Received::More;
            }
        }
    }

    /// The answer that arrived in pieces.
    pub(crate) fn pieces(&self) -> &[u8] {
        &self.partial
    }

    /// Frees the connection for the next batch after the answer has been processed. Returns the
    /// bytes of the answered batch.
    pub(crate) fn finish(&mut self) -> Request {
        self.partial.clear();
        self.state = ConnectionState::Idle;
        mem::replace(&mut self.request, Request::Ready(0))
    }
}
