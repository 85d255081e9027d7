//! Tests misuse of the ABI that the engine must survive.

use std::path::Path;
use std::ptr;

use super::*;

#[test]
fn the_version_of_the_interface_equals_that_of_the_header() {
    let header = include_str!("../../../include/ringwell_embed.h");
    let line = format!("#define RINGWELL_EMBED_ABI_VERSION {}\n", ringwell_embed_abi_version());
    assert!(header.contains(&line));
    let statuses = [
        ("INVALID", INVALID),
        ("FORKED", FORKED),
        ("PANICKED", PANICKED),
        ("CLOSED", CLOSED),
        ("NOT_OPENED", NOT_OPENED),
        ("NOT_STORED", NOT_STORED),
    ];
    for (name, value) in statuses {
        assert!(header.contains(&format!("RINGWELL_EMBED_{name} ({value})\n")), "{name}");
    }
}

#[test]
fn null_pointers_and_impossible_lengths_are_refused() {
    let engine = memory(9);
    let (body, mut handle) = (batch(1), 0);
    let mut open = |at, len, out| {
        // SAFETY: the invalid pointers in this test are null, misaligned, or have a length that is
        // refused before anything is read.
        unsafe { ringwell_embed_open(at, len, &raw mut handle, out) }
    };
    assert_eq!(call(|out| open(ptr::null(), 5, out)).0, INVALID);
    assert_eq!(call(|out| open(body.as_ptr(), usize::MAX, out)).0, INVALID);
    assert_eq!(open(body.as_ptr(), body.len(), ptr::null_mut()), INVALID);
    let no_handle = |out: &mut Bytes| {
        // SAFETY: as above.
        unsafe { ringwell_embed_open(body.as_ptr(), body.len(), ptr::null_mut(), out) }
    };
    assert_eq!(call(no_handle).0, INVALID);
    let bulk = |at, len, key, key_len, out| {
        // SAFETY: as above.
        unsafe { ringwell_embed_bulk(engine.0, at, len, key, key_len, 0, out) }
    };
    let (at, len) = (body.as_ptr(), body.len());
    assert_eq!(call(|out| bulk(ptr::null(), len, ptr::null(), 0, out)).0, INVALID);
    assert_eq!(call(|out| bulk(at, usize::MAX, ptr::null(), 0, out)).0, INVALID);
    assert_eq!(call(|out| bulk(at, len, at, usize::MAX, out)).0, INVALID);
    assert_eq!(bulk(at, len, ptr::null(), 0, ptr::null_mut()), INVALID);
    let misaligned = ptr::without_provenance_mut(1);
    assert_eq!(bulk(at, len, ptr::null(), 0, misaligned), INVALID);
    // SAFETY: as above.
    unsafe { ringwell_embed_free(ptr::null_mut()) };
    // SAFETY: as above.
    unsafe { ringwell_embed_free(misaligned) };
    // Calls with an invalid `out` must not hand out a number, so the first number is still free.
    assert_eq!(engine.numbers(1), ["8885550101"]);
}

#[test]
fn a_closed_handle_and_an_invalid_one_are_distinguished() {
    let engine = memory(9);
    assert_eq!(close(engine.0), (OK, String::new()));
    let closed = (CLOSED, "the engine is closed".to_owned());
    assert_eq!(close(engine.0), closed);
    assert_eq!(engine.bulk(&batch(1)), closed);
    let pid = u64::from(std::process::id()) << 32;
    for made_up in [0, pid, pid | 255, pid | 1 << 30] {
        assert_eq!(bulk(made_up, &batch(1), None, 0), closed, "{made_up:x}");
    }
    // The next engine reuses the table entry of the closed engine, but gets a different handle.
    let next = memory(9);
    assert_ne!(next.0, engine.0);
    assert_eq!(engine.bulk(&batch(1)), closed);
}

#[test]
fn an_engine_of_another_process_is_not_used() {
    let engine = memory(9);
    // Simulates a forked child, which inherits the table but has another process id.
    let inherited = engine.0 ^ 1 << 32;
    for (status, text) in [bulk(inherited, &batch(1), None, 0), close(inherited)] {
        assert_eq!(status, FORKED);
        assert!(text.contains("forked child"), "{text}");
    }
    assert_eq!(engine.numbers(1), ["8885550101"]);
}

#[test]
fn a_panic_is_a_status_and_breaks_its_engine_alone() {
    let data = tempfile::tempdir().unwrap();
    let options = options(data.path(), "os", 9);
    let (engine, other) = (Opened::new(&options), memory(9));
    assert_eq!(engine.numbers(1), ["8885550101"]);
    let panics = || with(engine.0, |_| panic!("drill {}", 7));
    let (status, text) = call(|out| {
        // SAFETY: `out` is a reference.
        unsafe { reply(out, panics) }
    });
    assert_eq!(status, PANICKED);
    assert!(text.contains("drill 7"), "{text}");
    assert_eq!(engine.bulk(&batch(1)).0, PANICKED);
    assert_eq!(engine.flush().0, PANICKED);
    assert_eq!(other.numbers(1), ["8885550101"]);
    assert_eq!(close(engine.0), (OK, String::new()));
    assert_eq!(Opened::new(&options).numbers(1), ["8885550102"]);
}

#[test]
fn a_panic_during_a_batch_costs_that_batch_and_returns_its_numbers() {
    let options = options(Path::new(""), "memory", 9);
    let drilled = Embedded::open_with(options.as_bytes(), Some(b"autos".to_vec())).unwrap();
    let engine = Opened(slots::put(drilled).unwrap());
    let (status, text) = engine.bulk(&batch(2));
    assert_eq!((status, text.matches("InternalServiceError").count()), (OK, 2), "{text}");
    let handle = text.split("error handle ").nth(1).unwrap().split('"').next().unwrap();
    let trouble = engine.status()["trouble"].as_str().unwrap().to_owned();
    assert!(trouble.contains(handle) && trouble.contains("drill: "), "{trouble}");
    let (_, text) = engine.bulk(&batch(1).replace("autos", "boats"));
    assert_eq!(numbers_of(&text), ["8885550101"]);
}

#[test]
fn impossible_options_are_refused_without_printing_a_key() {
    let whole = options(Path::new("/nowhere/else"), "disk", 9);
    let cases = [
        ("", "the options are invalid"),
        ("[1]", "the options are invalid"),
        ("{}", "either config or pools"),
        (r#"{"config":"a","pools":[]}"#, "either config or pools"),
        (r#"{"config":"/no/such.toml"}"#, "/no/such.toml: cannot be read"),
        (r#"{"pools":[],"surprise":1}"#, "surprise"),
        (r#"{"pools":[],"durability":"paper"}"#, "durability must be \"disk\""),
        (r#"{"pools":[],"deadline_ms":0}"#, "deadline_ms must be 1 to 60000"),
        (r#"{"pools":[]}"#, "data must be set"),
        (&whole.replace("\"id\":1", "\"id\":\"x\""), "pools[0]: the data is not a ring pool"),
        (&whole.replace("0101-", "01-"), "pools[0]: numbers"),
    ];
    for (options, wanted) in cases {
        let (status, handle, text) = open(options.as_bytes());
        assert_eq!((status, handle), (NOT_OPENED, 0), "{options}");
        assert!(text.contains(wanted) && !text.contains(KEY), "{options}: {text}");
    }
}

#[test]
fn options_only_for_servers_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("ringwell.toml");
    let servers = "servers = [\"nats://127.0.0.1:4222\"]";
    let monitors = "monitor = [\"http://127.0.0.1:8222\"]";
    for (setting, wanted) in [
        ("[directory]\ndatabase = \"sqlite:pools.sqlite\"", "remove `database`"),
        (&*format!("[journal]\nengine = \"nats\"\n{servers}\n{monitors}"), "remove `engine`"),
    ] {
        let pool = format!(
            "[[ring_pool]]\nid = 1\nring_pool_key = \"{KEY}\"\nlifetime = \"30m\"\n\
             numbers = [\"8885550101\"]\noverflow_number = \"8885559999\"\n"
        );
        std::fs::write(&file, format!("data = \"data\"\n{setting}\n{pool}")).unwrap();
        let (status, _, text) = open(format!(r#"{{"config":{file:?}}}"#).as_bytes());
        assert_eq!(status, NOT_OPENED);
        assert!(text.contains(wanted), "{text}");
    }
}
