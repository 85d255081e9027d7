//! Tests that the demo's pools are valid and the same everywhere.

use ringwell_directory::Directory;

use super::*;

fn listing(pools: u32, numbers: u32, lifetime: Millis) -> String {
    let mut out = Vec::new();
    write_demo_csv(&demo_pools(pools, numbers, lifetime).unwrap(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_demo_is_the_same_on_every_machine() {
    assert_eq!(
        listing(3, 500, DEMO_LIFETIME),
        "\
id,ring_pool_key,overflow_number,lifetime_seconds,first_number,numbers
1,e711f9c2423deeef32d4b08cb147bf8a,9990000000,1800,2000000000,500
2,3141cbc4f47379392fb388a95612eacb,9990000001,1800,2000000500,500
3,b68abe5727a52a301a3327c14c18ae09,9990000002,1800,2000001000,500
"
    );
}

#[test]
fn a_lifetime_below_a_second_is_listed_with_decimals() {
    assert!(listing(1, 2, Millis(10)).ends_with(",9990000000,0.01,2000000000,2\n"));
    assert!(listing(1, 2, Millis(90_500)).ends_with(",9990000000,90.5,2000000000,2\n"));
}

#[test]
fn ten_million_numbers_make_a_directory() {
    for (pools, numbers) in [(100_000, 100), (1_000_000, 10)] {
        let all = demo_pools(pools, numbers, DEMO_LIFETIME).unwrap();
        let directory = Directory::new(1, all, 4).unwrap();
        assert_eq!(directory.number_count(), 10_000_000);
    }
}

#[test]
fn an_impossible_demo_is_refused() {
    let fault = |pools, numbers, lifetime| {
        demo_pools(pools, numbers, Millis(lifetime)).unwrap_err().to_string()
    };
    assert_eq!(fault(0, 1, 1), "a demo has 1 to 1,000,000 pools, not 0");
    assert_eq!(fault(1_000_001, 1, 1), "a demo has 1 to 1,000,000 pools, not 1000001");
    assert_eq!(fault(1, 0, 1), "numbers: must be 1 to 100,000 numbers, not 0");
    assert_eq!(fault(1, 100_001, 1), "numbers: must be 1 to 100,000 numbers, not 100001");
    assert_eq!(fault(1, 1, 0), "lifetime: must be at least 1 ms and at most 400 days");
    assert_eq!(
        fault(90_000, 100_000, 1),
        "90000 pools of 100000 numbers need more telephone numbers than exist"
    );
}
