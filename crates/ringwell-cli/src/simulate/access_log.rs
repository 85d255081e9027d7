//! A web site's access log: the times when visitors opened pages.
//!
//! Reads the common and the combined log format of Apache and nginx. Defines which requests are
//! page views, and which clients are robots. A visitor is identified by address and user agent. A
//! page view is a GET request that was answered with 2xx or 304. Its path must have no extension,
//! or the extension of a page.

use std::io::{self, BufRead, Read};

use jiff::fmt::strtime;
use ringwell_core::{Millis, VisitorId};

/// The maximum length of a line. No access log has longer lines.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// The maximum number of page views in one log. Each takes 24 bytes of memory.
const VIEWS_MAX: usize = 20_000_000;
/// Extensions of pages. A path without an extension is also a page.
const PAGES: [&str; 6] = ["html", "htm", "php", "asp", "aspx", "jsp"];
/// Strings that occur in the user agents of robots. Robots open pages, but are not visitors.
const ROBOTS: [&str; 14] = [
    "bot", "crawl", "spider", "slurp", "curl/", "wget/", "python", "headless", "monitor", "uptime",
    "scrapy", "go-http", "java/", "libwww",
];

/// A visitor's view of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) at: Millis,
    pub(super) visitor: VisitorId,
}

/// The count of each kind of line in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) pages: u64,
    pub(super) robots: u64,
    /// Requests for files that are not pages, requests with methods other than GET, and failed
    /// requests.
    pub(super) others: u64,
    pub(super) unreadable: u64,
}

/// The kind of one line.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Page(View),
    Robot,
    Other,
}

/// Reads a log. Returns the page views, ordered by time, and the count of lines of each kind.
///
/// # Errors
/// If the log cannot be read, or has more than [`VIEWS_MAX`] page views.
pub(super) fn read(mut log: impl BufRead) -> io::Result<(Vec<View>, Lines)> {
    let (mut views, mut lines, mut line) = (Vec::new(), Lines::default(), Vec::new());
    loop {
        line.clear();
        if log.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if !line.ends_with(b"\n") && line.len() as u64 == LINE_BYTES_MAX {
            log.skip_until(b'\n')?;
        }
        let text = String::from_utf8_lossy(&line);
        match parse(text.trim_end()) {
            Some(Line::Page(_)) if views.len() == VIEWS_MAX => {
                let text =
                    format!("the log has more than {VIEWS_MAX} page views: use only part of it");
                return Err(io::Error::other(text));
            }
            Some(Line::Page(view)) => {
                views.push(view);
                lines.pages += 1;
            }
            Some(Line::Robot) => lines.robots += 1,
            Some(Line::Other) => lines.others += 1,
            None if text.trim().is_empty() => {}
            None => lines.unreadable += 1,
        }
    }
    // Servers write a line when the answer is complete, so the lines are not ordered by the time of
    // the request.
    views.sort_by_key(|view| view.at);
    Ok((views, lines))
}

/// Parses `HOST - USER [TIME] "REQUEST" STATUS BYTES`, followed in the combined format by
/// `"REFERRER" "AGENT"`.
fn parse(line: &str) -> Option<Line> {
    let (host, rest) = line.split_once(' ')?;
    let (_, rest) = rest.split_once('[')?;
    let (time, rest) = rest.split_once(']')?;
    let (request, rest) = quoted(rest)?;
    let mut numbers = rest.split_ascii_whitespace();
    let status: u16 = numbers.next()?.parse().ok()?;
    let agent = quoted(rest).and_then(|(_, rest)| quoted(rest)).map_or("", |(agent, _)| agent);
    let at = moment(time)?;
    if is_robot(agent) {
        return Some(Line::Robot);
    }
    let mut words = request.split(' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    let is_served = (200..300).contains(&status) || status == 304;
    if method != Some("GET") || !is_served || !is_page(target) {
        return Some(Line::Other);
    }
    let hash = blake3::hash(format!("{host}\n{agent}").as_bytes());
    let visitor = VisitorId(*hash.as_bytes().first_chunk()?);
    Some(Line::Page(View { at, visitor }))
}

/// Returns the next quoted text, and the rest of the line. Quotes inside the quoted text are
/// escaped as `\"`.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let (_, inner) = text.split_once('"')?;
    let mut is_escaped = false;
    for (place, byte) in inner.bytes().enumerate() {
        match byte {
            b'"' if !is_escaped => return Some((&inner[..place], &inner[place + 1..])),
            _ => is_escaped = byte == b'\\' && !is_escaped,
        }
    }
    None
}

/// Parses a time such as `10/Oct/2000:13:55:36 -0700`.
fn moment(text: &str) -> Option<Millis> {
    let time = strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?.to_timestamp().ok()?;
    u64::try_from(time.as_millisecond()).ok().map(Millis)
}

fn is_page(target: &str) -> bool {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    path.starts_with('/')
        && ending.is_none_or(|ending| PAGES.iter().any(|page| ending.eq_ignore_ascii_case(page)))
}

fn is_robot(agent: &str) -> bool {
    let agent = agent.to_ascii_lowercase();
    ROBOTS.iter().any(|robot| agent.contains(robot))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMBINED: &str = "203.0.113.9 - ann [10/Oct/2000:13:55:36 -0700] \"GET /shop?a=1 HTTP/1.1\" \
                            200 2326 \"https://x.example/\\\"q\\\"\" \"Mozilla/5.0 (X11)\"";

    #[test]
    fn both_formats_are_read() {
        let (views, lines) = read(COMBINED.as_bytes()).unwrap();
        assert_eq!((lines.pages, views[0].at), (1, Millis(971_211_336_000)));
        let common = "203.0.113.9 - - [10/Oct/2000:13:55:37 -0700] \"GET / HTTP/1.0\" 304 -\n";
        let (other, lines) = read(common.as_bytes()).unwrap();
        assert_eq!((lines.pages, other[0].at), (1, Millis(971_211_337_000)));
        assert_ne!(other[0].visitor, views[0].visitor);
    }

    #[test]
    fn only_pages_opened_by_people_count() {
        let lines = [
            (COMBINED.replace("/shop", "/style.css"), Line::Other),
            (COMBINED.replace("GET", "POST"), Line::Other),
            (COMBINED.replace("200", "404"), Line::Other),
            (COMBINED.replace("Mozilla/5.0", "Googlebot/2.1"), Line::Robot),
        ];
        for (line, wanted) in lines {
            assert_eq!(parse(&line), Some(wanted), "{line}");
        }
        assert!(matches!(parse(&COMBINED.replace("/shop", "/a.b/x.PHP")), Some(Line::Page(_))));
    }

    #[test]
    fn an_invalid_line_is_counted_and_skipped() {
        let junk =
            ["", "-", "a [", "a [x] \"GET / H\" 200 1", "a - - [10/Oct/2000:13:55:36 -0700] \"GET"];
        let text = format!("{}\n{}\n{COMBINED}\n", junk.join("\n"), "x".repeat(200_000));
        let (views, lines) = read(text.as_bytes()).unwrap();
        assert_eq!((views.len(), lines.unreadable), (1, 5));
    }

    proptest::proptest! {
        #[test]
        fn no_line_causes_a_panic(line in "\\PC{0,120}", cut in 0..150_usize) {
            let _ = parse(&line);
            let _ = parse(COMBINED.get(..cut).unwrap_or(COMBINED));
        }
    }
}
