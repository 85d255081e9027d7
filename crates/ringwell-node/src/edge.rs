//! The part of a connection below the HTTP library. It repairs the first request line if the client
//! did not escape the query. The library's own refusals have no body, so they are replaced with
//! answers that have one. If a request was refused before all of it was read, the connection stays
//! open until the client has finished sending.
//!
//! Only the first line of a connection is examined. Any later line might be part of a body. All
//! other bytes pass through unchanged, and are not copied.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use ringwell_wire::{RequestError, repaired};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::conn::{Phase, Watch};

/// The maximum length of a first line that is repaired.
const LINE_BYTES_MAX: usize = 16 << 10;

/// The maximum number of bytes that are read and discarded after a request was refused.
const DROPPED_BYTES_MAX: usize = 8 << 20;

/// A client's socket.
#[derive(Debug)]
pub(crate) struct Edge<S> {
    socket: S,
    watch: Rc<Watch>,
    first: First,
    refusal: Option<Refusal>,
    closing: Closing,
}

/// The progress of closing a connection.
#[derive(Clone, Copy, Debug)]
enum Closing {
    /// Closing has not begun.
    Not,
    /// The server's side of the connection has been shut down. The client may still send this many
    /// bytes.
    Lingering(usize),
}

/// The first line of a connection.
#[derive(Debug)]
enum First {
    /// No byte has been read yet.
    Awaited,
    /// The part of the line that has been read, held back until the rest arrives.
    Held(Vec<u8>),
    /// The bytes that have been read, beginning with the line, and the number of bytes that have
    /// already been passed on.
    Read(Vec<u8>, usize),
    /// The line was passed on, or needs no repair.
    Passed,
}

/// The bytes that replace the library's refusal, and the number of bytes that have already been
/// written.
#[derive(Debug)]
struct Refusal {
    bytes: Vec<u8>,
    written: usize,
}

impl<S> Edge<S> {
    pub(crate) fn new(socket: S, watch: Rc<Watch>) -> Self {
        Self { socket, watch, first: First::Awaited, refusal: None, closing: Closing::Not }
    }
}

impl<S: AsyncRead + Unpin> Edge<S> {
    #[inline(never)]
    fn read_first(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match &mut self.first {
                First::Passed => return Pin::new(&mut self.socket).poll_read(cx, buffer),
                First::Awaited => {
                    let before = buffer.filled().len();
                    ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
                    let read = &buffer.filled()[before..];
                    if !may_need_repair(read) {
                        self.first = First::Passed;
                        return Poll::Ready(Ok(()));
                    }
                    self.first = First::Held(read.to_vec());
                    buffer.set_filled(before);
                }
                First::Held(held) => {
                    if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                        let (line, rest) = held.split_at(end + 1);
                        let whole = repaired(line).map(|line| [&line, rest].concat());
                        let whole = whole.unwrap_or_else(|| std::mem::take(held));
                        self.first = First::Read(whole, 0);
                        continue;
                    }
                    let mut room = [0; 2048];
                    let mut more = ReadBuf::new(&mut room);
                    ready!(Pin::new(&mut self.socket).poll_read(cx, &mut more))?;
                    held.extend_from_slice(more.filled());
                    if more.filled().is_empty() || held.len() > LINE_BYTES_MAX {
                        self.first = First::Read(std::mem::take(held), 0);
                    }
                }
                First::Read(bytes, at) => {
                    let length = buffer.remaining().min(bytes.len() - *at);
                    buffer.put_slice(&bytes[*at..*at + length]);
                    *at += length;
                    if *at == bytes.len() {
                        self.first = First::Passed;
                    }
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

/// Whether these first bytes may begin a line that needs repair. Nearly all clients send POST
/// requests, whose first lines need no repair.
fn may_need_repair(read: &[u8]) -> bool {
    let is_begun = |begin: &[u8]| read.iter().zip(begin).all(|(read, wanted)| read == wanted);
    !read.is_empty() && (is_begun(b"GET /") || is_begun(b"HEAD /"))
}

impl<S: AsyncRead + Unpin> AsyncRead for Edge<S> {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.first {
            First::Passed => Pin::new(&mut self.socket).poll_read(cx, buffer),
            _ => self.read_first(cx, buffer),
        }
    }
}

impl<S: AsyncWrite + Unpin> Edge<S> {
    /// Whether `bytes` are a refusal by the library, which must be replaced with Ringwell's own
    /// answer.
    #[inline]
    fn refuses(&mut self, bytes: &[u8]) -> bool {
        if self.refusal.is_none() && self.watch.is_in_service() {
            return false;
        }
        if self.refusal.is_none()
            && let Some(error) = refused(bytes)
        {
            let body = error.body();
            let head = format!(
                "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncache-control: no-store\r\n\
                 connection: close\r\ncontent-length: {}\r\n\r\n",
                error.status(),
                if error.status() == 400 {
                    "Bad Request"
                } else {
                    "Request Header Fields Too Large"
                },
                body.len()
            );
            self.watch.linger();
            self.refusal = Some(Refusal { bytes: [head.into_bytes(), body].concat(), written: 0 });
        }
        self.refusal.is_some()
    }

    fn write_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(refusal) = &mut self.refusal else { return Poll::Ready(Ok(())) };
        while refusal.written < refusal.bytes.len() {
            let rest = &refusal.bytes[refusal.written..];
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            refusal.written += written;
        }
        Poll::Ready(Ok(()))
    }
}

/// Returns the error that corresponds to `head` if `head` is a refusal by the HTTP library. Such a
/// refusal has no body.
fn refused(head: &[u8]) -> Option<RequestError> {
    let text = str::from_utf8(head).ok()?;
    let status = text.strip_prefix("HTTP/1.1 ").or(text.strip_prefix("HTTP/1.0 "))?;
    if !text.ends_with("\r\n\r\n") || !text.contains("\r\ncontent-length: 0\r\n") {
        return None;
    }
    match status.get(..3)? {
        "400" => Some(RequestError::Malformed),
        "414" | "431" => Some(RequestError::HeadTooLarge),
        _ => None,
    }
}

impl<S: AsyncRead + Unpin> Edge<S> {
    /// Reads and discards bytes until the client has sent everything, or more than is allowed. If a
    /// connection with unread bytes is closed, the kernel resets it, and many clients then lose the
    /// answer.
    fn drop_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut room = [0; 4096];
        while let Closing::Lingering(left @ 1..) = self.closing {
            let mut buffer = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer))?;
            let read = buffer.filled().len();
            self.closing =
                Closing::Lingering(if read == 0 { 0 } else { left.saturating_sub(read) });
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Edge<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.refuses(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = buffers.iter().find(|buffer| !buffer.is_empty());
        if first.is_some_and(|first| self.refuses(first)) {
            return Poll::Ready(Ok(buffers.iter().map(|buffer| buffer.len()).sum()));
        }
        Pin::new(&mut self.socket).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_refusal(cx))?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Closing::Not = self.closing {
            ready!(self.write_refusal(cx))?;
            ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
            // Discarding the rest of the request has the same time limit as writing an answer.
            self.watch.enter(Phase::Write);
            self.closing = Closing::Lingering(DROPPED_BYTES_MAX);
        }
        if self.watch.lingers() { self.drop_rest(cx) } else { Poll::Ready(Ok(())) }
    }
}
