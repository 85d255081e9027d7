//! One kept-alive HTTP/1.1 connection that writes prepared bytes and counts the answers' rows.
//!
//! Reads only answers with a status line, headers and `content-length`. Any other answer makes the
//! measurement fail. Does not parse JSON, because parsing an answer would take more CPU time than
//! the server needs to produce it.

use anyhow::{Context as _, bail, ensure};
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::target::{Stream, Target};

/// The longest accepted answer.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The contents of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerCounts {
    /// HTTP status.
    pub(crate) status: u16,
    /// Rows with a number.
    pub(crate) rows: u64,
    /// Rows whose number is the overflow number.
    pub(crate) overflow: u64,
    /// Rows with an error instead of a number.
    pub(crate) errors: u64,
}

/// A connection and its buffer.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
}

impl Connection {
    /// Opens a connection.
    ///
    /// # Errors
    /// If the address refuses connections.
    pub(crate) async fn open(target: &Target) -> anyhow::Result<Self> {
        Ok(Self { stream: target.connect().await?, buffer: Vec::new() })
    }

    /// Sends one request and waits for its whole answer.
    ///
    /// # Errors
    /// If the connection breaks, or the answer is not HTTP with a length.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<AnswerCounts> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let (status, start, length) = self.read_head().await?;
        while self.buffer.len() < start + length {
            self.read_more().await?;
        }
        ensure!(self.buffer.len() == start + length, "unexpected bytes after the answer");
        Ok(count(status, &self.buffer[start..]))
    }

    /// Reads a head; returns the status, and the body's start and length.
    async fn read_head(&mut self) -> anyhow::Result<(u16, usize, usize)> {
        loop {
            if let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") {
                let (status, length) = parse_head(&self.buffer[..end])?;
                return Ok((status, end + 4, length));
            }
            self.read_more().await?;
        }
    }

    async fn read_more(&mut self) -> anyhow::Result<()> {
        ensure!(self.buffer.len() < ANSWER_BYTES_MAX, "the response is too long");
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }

    /// Frees the buffer's memory, for connections that will be idle from now on.
    pub(crate) fn shrink(&mut self) {
        self.buffer = Vec::new();
    }
}

fn parse_head(head: &[u8]) -> anyhow::Result<(u16, usize)> {
    let head = std::str::from_utf8(head).context("the response's head is not text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok());
    Ok((status.context("no status")?, length.context("no content-length")?))
}

fn count(status: u16, body: &[u8]) -> AnswerCounts {
    let times = |text: &str| memmem::find_iter(body, text).count() as u64;
    AnswerCounts {
        status,
        rows: times(r#""promo_number":""#),
        overflow: times(r#""overflow":true"#),
        errors: times(r#""error_class":"#),
    }
}

#[cfg(test)]
mod tests {
    use super::{AnswerCounts, count, parse_head};

    #[test]
    fn status_and_length_are_read_in_any_case_of_header_names() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nx: y";
        assert_eq!(parse_head(head).unwrap(), (200, 12));
        assert!(parse_head(b"HTTP/1.1 200 OK").is_err());
    }

    #[test]
    fn rows_overflow_and_errors_are_counted_apart() {
        let body = br#"{"responses":[{"promo_number":"8885550142"},
            {"promo_number":"8885550143","overflow":true},{"error_class":"InvalidKey"}]}"#;
        assert_eq!(count(200, body), AnswerCounts { status: 200, rows: 2, overflow: 1, errors: 1 });
    }
}
