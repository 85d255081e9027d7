use proptest::prelude::*;
use serde_json::json;

use super::*;

fn example() -> serde_json::Value {
    json!({
        "id": 17, "ring_pool_key": "a-key-of-pool-17", "lifetime_seconds": 0.5,
        "numbers": ["8885550100-8885550149", "8885550160"], "overflow_number": "8885559999",
    })
}

#[test]
fn a_pool_is_read() {
    let pool = pool_from_json(example().to_string().as_bytes()).unwrap();
    assert_eq!((pool.id(), pool.number_count()), (PoolId(17), 51));
    assert_eq!(pool.lifetime().0, 500);
}

#[test]
fn each_fault_names_its_member_and_prints_no_key() {
    let with = |member: &str, value: serde_json::Value| {
        let mut json = example();
        json[member] = value;
        pool_from_json(json.to_string().as_bytes()).unwrap_err()
    };
    for (member, value) in [
        ("ring_pool_key", json!("short")),
        ("next_ring_pool_key", json!("a b c d e f g h")),
        ("lifetime_seconds", json!(0)),
        ("numbers", json!(["1"])),
        ("numbers", json!([])),
        ("overflow_number", json!("8885550100")),
    ] {
        let message = with(member, value);
        assert!(message.starts_with(member.trim_end_matches("_seconds")), "{message}");
    }
    assert!(with("tracking_url", json!("http://example.org")).contains("belong together"));
    assert_eq!(with("id", json!("17")).matches("a-key-of-pool").count(), 0);
    assert!(with("unknown", json!(1)).contains("is not a ring pool"));
    assert!(pool_from_json(b"{").unwrap_err().contains("is not JSON"));
}

proptest! {
    #[test]
    fn no_input_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = pool_from_json(&bytes);
    }
}
