//! Runs batches through every stage (read, look up, allocate, record, render), so that the
//! instructions can be counted.
//!
//! `cargo xtask counts` runs this program twice under callgrind, with different numbers of batches,
//! and reads the memory figures that it prints. The program is a test, because only tests can run
//! these stages without sockets. As a test, it can also check the answers.

use std::rc::Rc;

use bytes::Bytes;
use ringwell_driver::lookup;
use ringwell_driver::store::{Memory, Store as _};
use ringwell_engine::Moment;
use serde_json::Value;
use tokio::runtime::Builder;

use super::{Durability, Millis, body, shard_threads, soon};

/// The environment variable for the number of batches. The default is [`USUAL`].
const BATCHES: &str = "RINGWELL_COUNTED_BATCHES";
const USUAL: usize = 20;
/// The environment variable for the style of the batches' JSON. By default, the JSON is compact.
const STYLE: &str = "RINGWELL_COUNTED_STYLE";
/// The environment variable for the number of rows per batch. The default is that of the
/// benchmarks.
const ROWS: &str = "RINGWELL_COUNTED_ROWS";
const USUAL_ROWS: usize = 40;
/// The style with compact JSON and a look-up after each batch.
const LOOK_UPS: &str = "look-ups";
/// With 64 connections, a group of the journal contains about this many batches.
const BATCHES_A_GROUP: usize = 16;

#[test]
fn the_counted_batches_get_their_numbers() {
    let variable = |name, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (batches, rows) = (variable(BATCHES, USUAL), variable(ROWS, USUAL_ROWS));
    // The lockout is so long that no number becomes free again during the test. The choice of the
    // next number therefore never depends on the clock.
    let (thread, _queue) = shard_threads(1, Millis(3_600_000), Durability::Memory).remove(0);
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let style = std::env::var(STYLE).unwrap_or_else(|_| "compact".to_owned());
    let (body, mut terms) = (styled(&body(&thread, rows), &style), soon(3_600_000));
    let (mut answer, mut spare) = (Vec::new(), Vec::with_capacity(1 << 20));
    let stored = Memory::new([1; 16], u64::MAX);
    let mut least = None;
    for batch in 0..batches {
        let body = body.clone();
        if style == "idempotency key" {
            terms.retry = Some((batch as u128).to_le_bytes());
        }
        let used = allocation_counter::measure(|| {
            answer = runtime.block_on(super::super::answer(&thread, body, &terms)).unwrap();
        });
        // Some batches also enlarge a list that has an entry for each group, so the cost of a batch
        // is the minimum over several batches.
        let used = (used.count_total, used.bytes_total);
        least = least.into_iter().chain([used]).min();
        if batch % BATCHES_A_GROUP == 0 {
            let sealed = thread.engine.borrow_mut().seal(std::mem::take(&mut spare));
            match sealed {
                Some(group) if style == LOOK_UPS => stored.store(group),
                sealed => spare = sealed.map_or_else(Vec::new, |group| group.body),
            }
        }
        if style == LOOK_UPS {
            // The first slot contains the first number that the first batch got. The record of this
            // allocation is in a stored group.
            let number = thread.engine.borrow().shard().slots()[0].number;
            let at = Moment::Shard(thread.engine.borrow().now());
            let looked = lookup::attribution(Rc::clone(&thread), stored.reader(), number, at);
            assert!(runtime.block_on(looked).unwrap().held.is_some());
        }
    }
    let (allocations, bytes) = least.unwrap();
    println!("COUNTED {{\"allocations\":{allocations},\"bytes\":{bytes}}}");
    let text = String::from_utf8(answer).unwrap();
    assert_eq!(text.matches("\"promo_number\"").count(), rows);
    assert!(!text.contains("overflow") && !text.contains("error_class"), "{text}");
    let counts = thread.engine.borrow().counts();
    // Rows that name a visitor get the same number in each batch, so only the first batch allocates
    // numbers.
    let asked = if style == "visitors" { 1 } else { batches };
    assert_eq!(counts.allocated, (asked * rows) as u64);
}

/// Rewrites compact JSON in the style of another JSON writer.
fn styled(compact: &[u8], style: &str) -> Bytes {
    let text = str::from_utf8(compact).unwrap();
    let mut body: Value = serde_json::from_str(text).unwrap();
    let rows = body["requests"].as_array_mut().unwrap();
    let each = |write: &dyn Fn(&str, &str) -> String| {
        let row = |row: &Value| {
            write(row["api_suffix"].as_str().unwrap(), row["request_id"].as_str().unwrap())
        };
        let rows: Vec<String> = rows.iter().map(row).collect();
        format!("{{\"requests\":[{}]}}", rows.join(","))
    };
    let first =
        |suffix: &str, id: &str| format!(r#"{{"request_id":"{id}","api_suffix":"{suffix}"}}"#);
    let last =
        |suffix: &str, id: &str| format!(r#"{{"api_suffix":"{suffix}","request_id":"{id}"}}"#);
    match style {
        "compact" | "idempotency key" | LOOK_UPS => text.to_owned(),
        "no id" => each(&|suffix, _| format!(r#"{{"api_suffix":"{suffix}"}}"#)),
        "integer id" => {
            each(&|suffix, id| format!(r#"{{"api_suffix":"{suffix}","request_id":1{id}}}"#))
        }
        "id first" => each(&first),
        "ring_pools" => each(&|suffix, id| last(&format!("ring_pools/{suffix}"), id)),
        "Python" => {
            let row = |suffix: &str, id: &str| {
                format!(r#" {{"api_suffix": "{suffix}", "request_id": "{id}"}}"#)
            };
            each(&row).replace("{\"requests\":[ ", "{\"requests\": [")
        }
        "indented" => serde_json::to_string_pretty(&body).unwrap(),
        "PHP" => text.replace('/', "\\/"),
        "Go" => text.replace('&', "\\u0026"),
        ".NET" => text.replace('&', "\\u0026").replace("autos", "a\\u002Bb"),
        "key last" => each(&|suffix, id| {
            let (path, query) = suffix.split_once('?').unwrap();
            let (key, params) = query.split_once('&').unwrap();
            last(&format!("{path}?{params}&{key}"), id)
        }),
        ".xml" => text.replace("allocate_number.json", "allocate_number.xml"),
        "URL" => each(&|suffix, id| {
            last(&format!("https://calls.example/api/2013-07-01/ring_pools/{suffix}"), id)
        }),
        "Go, id first" => each(&first).replace('&', "\\u0026"),
        "visitors" => each(&|suffix, id| last(&format!("{suffix}&ringwell_visitor={id}"), id)),
        other => panic!("no style {other:?}"),
    }
    .into()
}
