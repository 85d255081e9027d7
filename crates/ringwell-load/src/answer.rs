//! Finds the end and the contents of an answer by scanning its bytes.
//!
//! To count the rows of a kind, the scan counts the occurrences of a text that appears exactly once
//! in each such row. Parsing the JSON would take the client more CPU time than the server needs for
//! the whole batch. The client therefore parses JSON only if it writes a history (`history.rs`).

use std::ops::Range;

use memchr::memmem::Finder;

/// The maximum lengths of an answer's head and body. An answer that exceeds one of them is invalid.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A complete answer in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedAnswer {
    pub(crate) status: u16,
    /// The range of the body's bytes in the buffer.
    pub(crate) body: Range<usize>,
    /// Whether the server will close the connection.
    pub(crate) closes: bool,
}

/// The reason why the received bytes are not a valid answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadAnswer(pub(crate) &'static str);

/// Reads the answer at the beginning of `bytes`; `None` if it is incomplete.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<ParsedAnswer>, BadAnswer> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut headers);
    let start = match head.parse(bytes) {
        Ok(httparse::Status::Complete(start)) => start,
        Ok(httparse::Status::Partial) if bytes.len() <= HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(BadAnswer("the response's head is too long")),
        Err(_) => return Err(BadAnswer("the response is not HTTP/1.1")),
    };
    let mut length = None;
    let mut closes = head.version == Some(0);
    for header in &*head.headers {
        if header.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(header.value).unwrap_or_default();
            length = text.trim().parse::<u64>().ok();
        } else if header.name.eq_ignore_ascii_case("connection") {
            closes |= header.value.eq_ignore_ascii_case(b"close");
        }
    }
    let length = length.ok_or(BadAnswer("no content-length"))?;
    if length > BODY_BYTES_MAX {
        return Err(BadAnswer("the response's body is too long"));
    }
    let end = start
        + usize::try_from(length).map_err(|_| BadAnswer("the response's body is too long"))?;
    if bytes.len() < end {
        return Ok(None);
    }
    let status = head.code.ok_or(BadAnswer("no status"))?;
    Ok(Some(ParsedAnswer { status, body: start..end, closes }))
}

/// The rows of one answer, counted by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Rows with a number, including overflow numbers.
    pub(crate) numbers: u64,
    pub(crate) overflow: u64,
    pub(crate) errors: u64,
}

/// Counts the rows in the bodies of answers.
#[derive(Debug)]
pub(crate) struct Scanner {
    number: Finder<'static>,
    overflow: Finder<'static>,
    error: Finder<'static>,
}

impl Scanner {
    pub(crate) fn new() -> Self {
        Self {
            number: Finder::new(r#""promo_number":"#),
            overflow: Finder::new(r#""overflow":true"#),
            error: Finder::new(r#""error_class":"#),
        }
    }

    /// Counts rows. The search texts contain unescaped quotes, so they cannot occur within a JSON
    /// string.
    pub(crate) fn count(&self, body: &[u8]) -> Rows {
        let times = |finder: &Finder<'_>| finder.find_iter(body).map(|_| 1).sum();
        Rows {
            numbers: times(&self.number),
            overflow: times(&self.overflow),
            errors: times(&self.error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_with_its_last_byte_and_not_before() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nx: y\r\n\r\nabcHTTP";
        let whole = ParsedAnswer { status: 200, body: 44..47, closes: false };
        for end in 0..47 {
            assert_eq!(read(&bytes[..end]), Ok(None), "{end} bytes");
        }
        assert_eq!(read(&bytes[..47]), Ok(Some(whole.clone())));
        assert_eq!(read(bytes), Ok(Some(whole)));
    }

    #[test]
    fn a_closed_connection_is_reported() {
        let closes = |head: &str| read(head.as_bytes()).unwrap().unwrap().closes;
        assert!(closes("HTTP/1.1 503 x\r\nconnection: Close\r\ncontent-length: 0\r\n\r\n"));
        assert!(closes("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"));
        assert!(!closes("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
    }

    #[test]
    fn malformed_answers_are_refused() {
        let why = |bytes: &str| read(bytes.as_bytes()).unwrap_err().0;
        assert_eq!(why("SSH-2.0-x\r\n"), "the response is not HTTP/1.1");
        assert_eq!(why("HTTP/1.1 200 OK\r\n\r\n"), "no content-length");
        assert_eq!(why("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"), "no content-length");
        let long = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", u64::MAX);
        assert_eq!(why(&long), "the response's body is too long");
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(HEAD_BYTES_MAX));
        assert_eq!(why(&endless), "the response's head is too long");
    }

    #[test]
    fn rows_overflow_and_errors_are_counted_apart() {
        let body = br#"{"responses":[{"request_id":"\"overflow\":true","promo_number_formatted":
            "888-555-0142","promo_number":"8885550142"},{"promo_number":"8885550143",
            "overflow":true},{"error_class":"InvalidKey"}]}"#;
        let rows = Rows { numbers: 2, overflow: 1, errors: 1 };
        assert_eq!(Scanner::new().count(body), rows);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = read(&bytes);
            let _ = read(&[b"HTTP/1.1 200 OK\r\n".as_slice(), &bytes].concat());
        }
    }
}
