//! A simple model of a server, the histories that it writes, and faults planted in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::{first_opinion, second_opinion};

const SECOND: i64 = 1_000_000_000;
const MS: i64 = 1_000_000;
const WALL: i64 = 1_700_000_000_000;
const POOLS: u64 = 2;
const NUMBERS: u64 = 3;
const LIFETIME: i64 = 1_000;
/// The number of random histories that `ringwell-check` and `second_opinion.py` both judge.
const HISTORIES: usize = 240;
const RUN: &str = "feed0001";

/// One batch: the time since the previous batch, the pools of its rows, and whether it is answered.
type Step = (i64, Vec<u64>, bool);

/// The faults that may be planted in a history. [`LIES`] names the rule that must find each fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    Double,
    Lost,
    Phantom,
    Pool,
    TwoAnswers,
    Overflow,
    Order,
    Owner,
    Deadline,
    Attribution,
    Recovery,
}

const LIES: [(Lie, &str); 11] = [
    (Lie::Double, "C1"),
    (Lie::Lost, "C2"),
    (Lie::Phantom, "C3"),
    (Lie::Pool, "C4"),
    (Lie::TwoAnswers, "C5"),
    (Lie::Overflow, "C6"),
    (Lie::Order, "C7"),
    (Lie::Owner, "C8"),
    (Lie::Deadline, "C9"),
    (Lie::Attribution, "C10"),
    (Lie::Recovery, "C11"),
];

fn number(pool: u64, index: u64) -> String {
    format!("{}", 2_000_000_000 + pool * 100 + index)
}

fn overflow(pool: u64) -> String {
    format!("{}", 2_900_000_000 + pool)
}

fn jrn(members: &Value) -> Value {
    let mut line = json!({"k": "jrn", "node": "a", "shard": 0});
    for (name, value) in members.as_object().unwrap() {
        line[name] = value.clone();
    }
    line
}

/// A history that violates no rule.
fn legal(steps: &[Step]) -> Vec<Value> {
    let mut lines = vec![json!({"k": "run", "v": 1, "t": SECOND, "run": RUN, "deadline_ms": 100})];
    for pool in 0..POOLS {
        let range = [number(pool, 0), number(pool, NUMBERS - 1)];
        lines.push(json!({"k": "cfg", "t": SECOND, "pool": pool, "ver": 1,
            "lifetime_ms": LIFETIME, "overflow": overflow(pool), "numbers": [range]}));
    }
    lines.push(json!({"k": "clk", "t": SECOND, "wall_ms": WALL}));
    lines.push(jrn(&json!({"segment": 1, "journal": "j", "first_frame": 1, "epoch": 1})));
    // For each number, the time and the pool of its last allocation.
    let mut last: BTreeMap<String, (i64, u64)> = BTreeMap::new();
    let (mut at, mut frame) = (0, 0_u64);
    for (batch, (wait, pools, answered)) in steps.iter().enumerate() {
        at += wait;
        let mut records = Vec::new();
        let mut asked = Vec::new();
        let mut got = Vec::new();
        for (row, pool) in pools.iter().enumerate() {
            let rid = format!("{RUN}-{batch}-{row}");
            let free = |n: &String| last.get(n).is_none_or(|(then, _)| at >= then + LIFETIME);
            let chosen = (0..NUMBERS).map(|index| number(*pool, index)).find(free);
            asked.push(json!({"pool": pool, "rid": rid, "par": format!("rid={rid}")}));
            match chosen {
                None => got.push(json!({"rid": rid, "num": overflow(*pool), "ovf": true})),
                Some(number) => {
                    last.insert(number.clone(), (at, *pool));
                    records.push((rid.clone(), number.clone(), *pool));
                    got.push(json!({"rid": rid, "num": number}));
                }
            }
        }
        if !records.is_empty() {
            frame += 1;
            let count = records.len();
            lines.push(jrn(&json!({"frame": frame, "epoch": 1, "at_ms": WALL + at,
                "last_at_ms": WALL + at, "records": count, "previous_hash": "0123456789abcdef"})));
        }
        for (index, (rid, number, pool)) in (0_u64..).zip(records) {
            lines.push(jrn(&json!({"record": "allocate", "frame": frame, "at_ms": WALL + at,
                "position": frame * 1_000 + index, "number": number, "pool": pool,
                "lockout_ms": LIFETIME, "params": format!("a=b&rid={rid}")})));
            if *answered {
                lines.push(json!({"k": "att", "t": 99 * SECOND, "rid": rid, "number": number,
                    "at_ms": WALL + at, "st": 200, "outcome": "allocated", "pool": pool,
                    "par": {"rid": rid}}));
            }
        }
        let (id, t) = (format!("{RUN}-{batch}"), SECOND + at * MS);
        lines.push(json!({"k": "inv", "id": id, "t": t - MS, "op": "alloc", "rows": asked}));
        lines.push(if *answered {
            json!({"k": "ret", "id": id, "t": t + MS, "st": 200, "rows": got})
        } else {
            json!({"k": "unk", "id": id, "t": t + MS, "why": "reset"})
        });
    }
    for (number, (at, pool)) in &last {
        lines.push(json!({"k": "fin", "node": "a", "shard": 0, "number": number, "pool": pool,
            "allocated_at_ms": WALL + at, "locked_until_ms": WALL + at + LIFETIME}));
    }
    lines.push(json!({"k": "fin", "node": "a", "shard": 0, "numbers": last.len()}));
    lines
}

/// Plants the fault; returns `false` if the fault applies to no line in the history.
fn plant(lie: Lie, lines: &mut Vec<Value>, place: usize) -> bool {
    let chosen = |lines: &[Value], fits: &dyn Fn(&Value) -> bool| {
        let places: Vec<_> = (0..lines.len()).filter(|index| fits(&lines[*index])).collect();
        places.get(place % places.len().max(1)).copied()
    };
    let own = |line: &Value| line["k"] == "ret" && line["rows"][0]["ovf"].is_null();
    let allocates = |line: &Value| line["record"] == "allocate";
    let rows = lines.iter().filter(|line| line["k"] == "ret");
    let rows = rows.flat_map(|line| line["rows"].as_array().unwrap());
    let answered: Vec<_> =
        rows.map(|row| format!("a=b&rid={}", row["rid"].as_str().unwrap())).collect();
    // An allocation without an answer may be lost, because no client depends on it.
    let promised = |line: &Value| answered.iter().any(|params| line["params"] == params.as_str());
    let found = match lie {
        Lie::Lost => chosen(lines, &|line| allocates(line) && promised(line)),
        Lie::Order => chosen(lines, &|line| !line["previous_hash"].is_null()),
        Lie::Double | Lie::Phantom => chosen(lines, &allocates),
        Lie::Pool | Lie::TwoAnswers | Lie::Overflow => chosen(lines, &own),
        Lie::Deadline => chosen(lines, &|line| line["k"] == "ret"),
        Lie::Owner => chosen(lines, &|line| !line["segment"].is_null()),
        Lie::Attribution => chosen(lines, &|line| line["k"] == "att"),
        Lie::Recovery => chosen(lines, &|line| line["k"] == "fin" && !line["number"].is_null()),
    };
    let Some(index) = found else { return false };
    let mut copy = lines[index].clone();
    match lie {
        // Allocates the number a second time, for a row that is not in the history.
        Lie::Double => {
            copy["params"] = json!("rid=other-0-0");
            lines.insert(index + 1, copy);
        }
        Lie::Lost => lines[index]["params"] = json!("rid=other-0-0"),
        Lie::Phantom => lines[index]["params"] = json!(format!("rid={RUN}-999-0")),
        Lie::Order => lines[index]["records"] = json!(99),
        Lie::Pool => lines[index]["rows"][0]["num"] = json!("2999999999"),
        Lie::TwoAnswers => lines.push(copy),
        Lie::Overflow => {
            // By this time, every lockout has ended.
            let (id, t) = (format!("{RUN}-888"), 80 * SECOND);
            let row = json!({"pool": 0, "rid": format!("{id}-0"), "par": ""});
            lines.push(json!({"k": "inv", "id": id, "t": t, "op": "alloc", "rows": [row]}));
            let got = json!({"rid": format!("{id}-0"), "num": overflow(0), "ovf": true});
            lines.push(json!({"k": "ret", "id": id, "t": t + MS, "st": 200, "rows": [got]}));
        }
        Lie::Owner => {
            copy["node"] = json!("b");
            copy["journal"] = json!("another");
            lines.push(copy);
        }
        Lie::Deadline => {
            let late = lines[index]["t"].as_i64().unwrap() + 200 * MS;
            lines[index]["t"] = json!(late);
        }
        Lie::Attribution => lines[index]["par"]["rid"] = json!("other-0-0"),
        Lie::Recovery => {
            let until = lines[index]["locked_until_ms"].as_i64().unwrap();
            lines[index]["locked_until_ms"] = json!(until - 1);
        }
    }
    true
}

fn write(lines: &[Value], path: &Path) {
    let text: Vec<_> = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path, text.concat()).unwrap();
}

/// The codes of the rules that a history violates, separated by spaces.
fn violated(lines: &[Value]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    write(lines, &path);
    first_opinion(&[path]).remove(0)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pools = prop::collection::vec(0..POOLS, 1..5);
    prop::collection::vec((1_i64..900, pools, prop::bool::weighted(0.8)), 1..12)
}

proptest! {
    #[test]
    fn histories_that_keep_all_promises_are_clean(steps in steps()) {
        prop_assert_eq!(violated(&legal(&steps)), "");
    }

    #[test]
    fn every_planted_lie_is_found(
        steps in steps(),
        (lie, rule) in prop::sample::select(LIES.to_vec()),
        place in 0_usize..1_000,
    ) {
        let mut lines = legal(&steps);
        if plant(lie, &mut lines, place) {
            let rules = violated(&lines);
            prop_assert!(rules.split(' ').any(|found| found == rule), "{lie:?}: {rules}");
        }
    }
}

#[test]
fn the_second_implementation_agrees_on_random_histories_with_and_without_faults() {
    let folder = tempfile::tempdir().unwrap();
    let mut runner = TestRunner::deterministic();
    let mut histories = Vec::new();
    for place in 0..HISTORIES {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let mut lines = legal(&steps);
        // One in `LIES.len() + 1` histories contains no fault.
        if let Some((lie, _)) = LIES.get(place % (LIES.len() + 1)) {
            plant(*lie, &mut lines, place);
        }
        let path = folder.path().join(format!("{place}.jsonl"));
        write(&lines, &path);
        histories.push(path);
    }
    let (first, second) = (first_opinion(&histories), second_opinion(&histories));
    for (place, pair) in first.iter().zip(&second).enumerate() {
        assert_eq!(pair.0, pair.1, "history {place}");
    }
    assert!(first.iter().any(String::is_empty) && first.iter().any(|rules| rules == "C6"));
}
