//! The request in a row (`api_suffix`), and the request for a single number, which is a path.

use ringwell_core::{PoolId, PromoNumber};
use ringwell_wire::legacy::{Format, QUERY_BYTES_MAX};
use ringwell_wire::{Ask, Batch, Limits, Route, RowError, VISITOR_BYTES_MAX, params, route};

use crate::batch::{parse, words};

/// Checks any text as `api_suffix`. The result must be the same as from a simple implementation of
/// the specification. A request for a single number with the same query must have the same result.
pub fn suffix(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let body = serde_json::json!({"requests": [{"api_suffix": text}]}).to_string();
    let limits = Limits::default();
    let batch = parse(body.as_bytes(), &limits).unwrap();
    let Some((pool, digits, query)) = plainly(text).filter(|_| text.len() <= 8192) else {
        assert!(batch.rows()[0].ask.is_err(), "accepted, but not a suffix: {text:?}");
        return;
    };
    let ask = batch.rows()[0].ask.unwrap();
    assert_eq!((ask.pool, ask.pool_text.of(batch.text())), (pool, digits.as_bytes()));
    check_ask(&ask, batch.text(), query);

    let mut single = Batch::default();
    single.parse_single(digits, query, false);
    assert_eq!(words(&batch), words(&single));
}

/// Checks any path and query: an accepted path contains `api/` and a date, and every answer to an
/// accepted request for a single number is well-formed.
pub fn legacy(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let Ok(route) = route(path) else { return };
    let inside = path.trim_start_matches('/');
    assert!(inside.starts_with("api/") && inside.as_bytes()[14] == b'/' && path.starts_with('/'));
    let Route::Allocate { pool, format } = route else {
        let end = path.strip_suffix('/').unwrap_or(path).to_ascii_lowercase();
        assert!(end.ends_with("/bulk.json"));
        return;
    };
    let mut batch = Batch::default();
    for strict in [false, true] {
        batch.parse_single(pool, query, strict);
        let [row] = batch.rows() else { panic!("the batch does not have exactly one row") };
        let error = match row.ask {
            Ok(ask) => {
                assert!(query.len() <= QUERY_BYTES_MAX);
                assert_eq!(pool.parse().ok(), Some(ask.pool.0));
                check_ask(&ask, batch.text(), query);
                RowError::InvalidKey { key: ask.key, pool: ask.pool_text }
            }
            Err(error) => error,
        };
        check_error(format, &format.error(&error, batch.text()));
    }
    let number = PromoNumber::from_e164(18_885_550_142).unwrap();
    let tracking = ringwell_wire::Tracking { base: "http://t.example/c", destination: query };
    let answer = String::from_utf8(format.number(number, Some(tracking))).unwrap();
    match format {
        Format::Json => {
            let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer["promo_number"], "8885550142");
        }
        Format::Xml => assert_eq!(answer.matches('<').count(), 9, "{answer}"),
        Format::Csv => assert_eq!(answer.matches('\n').count(), 2, "{answer}"),
    }
}

/// `[http[s]://host][/…][api/<date>/][ring_pools/]<digits>/allocate_number[.<format>][/][?query]`,
/// read piece by piece.
fn plainly(text: &str) -> Option<(PoolId, &str, &str)> {
    let mut text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("http://") || lower.starts_with("https://") {
        let host = text.find("//")? + 2;
        text = &text[host + text[host..].find('/')?..];
    }
    text = text.trim_start_matches('/');
    if let Some((date, rest)) = text.strip_prefix("api/").and_then(|rest| rest.split_once('/'))
        && route(&format!("/api/{date}/bulk.json")).is_ok()
    {
        text = rest;
    }
    text = text.strip_prefix("ring_pools/").unwrap_or(text);
    let (pool, action) = text.split_once('/')?;
    let (action, query) = action.split_once('?').unwrap_or((action, ""));
    let action = action.strip_suffix('/').unwrap_or(action);
    let extension = action.strip_prefix("allocate_number")?.to_ascii_lowercase();
    let is_pool = !pool.is_empty() && pool.bytes().all(|byte| byte.is_ascii_digit());
    let is_known = ["", ".json", ".xml", ".csv"].contains(&extension.as_str());
    let id = pool.parse().ok().filter(|_| is_pool && is_known)?;
    Some((PoolId(id), pool, query))
}

/// Splits a query into name-value pairs, and checks that they match `ask`.
fn check_ask(ask: &Ask, text: &[u8], query: &str) {
    let pairs: Vec<&str> = query.split('&').collect();
    let place = pairs.iter().rposition(|pair| pair.starts_with("ring_pool_key="));
    let (before, key, after) = match place {
        Some(place) => {
            let key = &pairs[place]["ring_pool_key=".len()..];
            (pairs[..place].join("&"), decoded(key), pairs[place + 1..].join("&"))
        }
        None => (query.to_owned(), Vec::new(), String::new()),
    };
    assert_eq!(ask.key.of(text), key);
    assert_eq!(ask.params.map(|part| part.of(text)), [before.as_bytes(), after.as_bytes()]);

    let without_key = [before.split('&'), after.split('&')].into_iter().flatten();
    let mut visitors =
        without_key.clone().filter_map(|pair| pair.strip_prefix("ringwell_visitor="));
    let visitor = visitors.next_back();
    let visitor = visitor.filter(|name| (1..=VISITOR_BYTES_MAX).contains(&name.len()));
    assert_eq!(ask.visitor.map(|span| span.of(text)), visitor.map(str::as_bytes));

    let mut seen = Vec::new();
    for (name, value) in without_key.filter(|p| !p.is_empty()).map(pair) {
        seen.retain(|(other, _)| *other != name);
        if !["ring_pool_key", "ringwell_visitor"].contains(&name.as_str()) {
            seen.push((name, value));
        }
    }
    let raw = [before.as_bytes(), after.as_bytes()].join(&b'&');
    assert_eq!(params::decode(&raw), seen);
}

fn pair(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let text = |raw| String::from_utf8_lossy(&decoded(raw)).into_owned();
    (text(name), text(value))
}

/// Decodes `+` to a space and `%41` to `A`; any other text stays unchanged.
fn decoded(raw: &str) -> Vec<u8> {
    let raw = raw.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < raw.len() {
        let digit = |place: usize| char::from(*raw.get(place)?).to_digit(16);
        let byte = match (raw[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                at += 2;
                u8::try_from(high * 16 + low).unwrap()
            }
            (b'+', ..) => b' ',
            (byte, ..) => byte,
        };
        out.push(byte);
        at += 1;
    }
    out
}

fn check_error(format: Format, answer: &[u8]) {
    let answer = std::str::from_utf8(answer).unwrap();
    if format == Format::Xml {
        assert_eq!(answer.matches('<').count(), 7, "{answer}");
        let is_text = |c: char| !c.is_control() || c == '\n' || c == '\t';
        assert!(answer.chars().all(is_text), "the answer has control characters: {answer:?}");
        let entities = ["&amp;", "&lt;", "&gt;"].map(|name| answer.matches(name).count());
        assert_eq!(answer.matches('&').count(), entities.iter().sum::<usize>());
    }
}
