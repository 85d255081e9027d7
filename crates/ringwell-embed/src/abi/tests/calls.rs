//! Tests the results of correct calls.

use std::thread;
use std::time::Duration;

use super::*;

#[test]
fn bytes_go_in_and_bytes_come_out() {
    let engine = memory(1);
    let row = |key: &str| {
        format!(
            r#"{{"api_suffix":"1/allocate_number.json?ring_pool_key={key}&m1=a","request_id":7}}"#
        )
    };
    let body = format!("{{\"requests\":[{},{},{}]}}", row(KEY), row("wrong"), row(KEY));
    let number = |digits: &str, bare: &str, end: &str| {
        format!(
            r#"{{"request_id":7,"promo_number_formatted":"{digits}","promo_number":"{bare}","tracking_url":""{end}}}"#
        )
    };
    let wrong = r#"{"request_id":7,"error_class":"InvalidKey","message":"API Key 'wrong' is not valid for resource '1'"}"#;
    let wanted = format!(
        "{{\"responses\":[{},{wrong},{}]}}",
        number("888-555-0101", "8885550101", ""),
        number("888-999-9999", "8889999999", ",\"overflow\":true"),
    );
    assert_eq!(engine.bulk(&body), (OK, wanted));
}

#[test]
fn a_malformed_batch_is_refused_with_its_status_and_its_body() {
    let engine = memory(1);
    let body = |class: &str, text: &str| {
        format!(r#"{{"errors":{{"invalid_data":"{text}","class":"{class}"}}}}"#)
    };
    assert_eq!(engine.bulk("{"), (400, body("InvalidInput", "the body is not JSON")));
    assert_eq!(engine.bulk("").0, 400);
    let none = body("InvalidInput", "requests must have at least one entry");
    assert_eq!(engine.bulk(r#"{"requests":[]}"#), (403, none));
    assert_eq!(engine.bulk(&" ".repeat((1 << 20) + 1)).0, 413);
    assert_eq!(engine.status()["batches"], 0);
}

#[test]
fn a_batch_with_a_key_gets_the_same_numbers_even_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let options = options(data.path(), "disk", 9);
    let engine = Opened::new(&options);
    let first = bulk(engine.0, &batch(2), Some("order 7"), 0);
    assert_eq!(numbers_of(&first.1), ["8885550101", "8885550102"]);
    assert_eq!(bulk(engine.0, &batch(2), Some("order 7"), 0), first);
    assert_eq!(engine.numbers(1), ["8885550103"]);
    drop(engine);
    let engine = Opened::new(&options);
    assert_eq!(bulk(engine.0, &batch(2), Some("order 7"), 0), first);
    assert_eq!(engine.numbers(1), ["8885550104"]);
}

#[test]
fn a_batch_past_its_deadline_gets_overflow_numbers_and_uses_up_none() {
    let engine = memory(9);
    let handle = engine.0;
    let (begun, has_begun) = std::sync::mpsc::channel();
    let busy = thread::spawn(move || {
        let work = |_: &mut Embedded| {
            begun.send(()).unwrap();
            thread::sleep(Duration::from_millis(30));
        };
        slots::with(handle, work).unwrap();
    });
    has_begun.recv().unwrap();
    assert_eq!(numbers_of(&bulk(handle, &batch(2), None, 1).1), ["over", "over"]);
    busy.join().unwrap();
    assert_eq!(numbers_of(&bulk(handle, &batch(1), None, 50).1), ["8885550101"]);
}

#[test]
fn threads_may_share_an_engine_and_no_number_goes_out_twice() {
    let engine = memory(400);
    let (handle, threads) = (engine.0, 4);
    let ask = move |_| numbers_of(&bulk(handle, &batch(10), None, 0).1);
    let asks = move || (0..10).flat_map(ask).collect();
    let asked: Vec<_> = (0..threads).map(|_| thread::spawn(asks)).collect();
    let mut numbers: Vec<String> = Vec::new();
    for thread in asked {
        numbers.append(&mut thread.join().unwrap());
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 400);
    assert_eq!(engine.status()["allocated"], 400);
}

#[test]
fn a_configuration_file_works_as_well() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("ringwell.toml");
    let text = format!(
        "data = \"data\"\nshards = 4\nlimits.rows = 2\n[[ring_pool]]\nid = 1\n\
         ring_pool_key = \"{KEY}\"\nlifetime = \"30m\"\nnumbers = [\"8885550101\"]\n\
         overflow_number = \"8885559999\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let engine = Opened::new(&format!(r#"{{"config":{file:?}}}"#));
    assert_eq!(engine.numbers(2), ["8885550101", "over"]);
    assert_eq!(engine.bulk(&batch(3)).0, 413);
    let status = engine.status();
    assert_eq!(status["durability"], "disk");
    assert_eq!((&status["rows"], &status["journal"]), (&2.into(), &"writing".into()));
    // The engine stores its journal in the directory that the configuration file specifies.
    assert!(data.path().join("data/journal/0").is_dir());
}
