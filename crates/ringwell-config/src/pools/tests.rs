//! Tests which ring pools in TOML are accepted, and the faults reported for the others.

use ringwell_core::Millis;

use super::super::Overrides;
use super::super::tests::{GOOD, check, check_line, lines, load_files};

/// Like [`check_line`], with `line` at the end of the pool.
#[track_caller]
fn check_pool(line: &str, said: &str) {
    check(&format!("{GOOD}{line}\n"), said);
}

#[test]
fn a_pool_has_an_id_a_key_a_lifetime_numbers_and_overflow() {
    check(
        "data = \"d\"\n[[ring_pool]]\n",
        "\
ringwell.toml:2: ring_pool[0].id: is missing; write e.g. id = 16
ringwell.toml:2: ring_pool[0].ring_pool_key: is missing; write 8 to 64 random characters
ringwell.toml:2: ring_pool[0].lifetime: is missing; write e.g. \"30m\"
ringwell.toml:2: ring_pool[0].numbers: is missing; write e.g. [\"8885550100-8885550149\"]
ringwell.toml:2: ring_pool[0].overflow_number: is missing; write a number that is not in rotation, or allow_overflow = false
",
    );
}

#[test]
fn each_field_of_a_pool_is_checked() {
    let at = |line: u32, said: &str| format!("ringwell.toml:{line}: ring_pool[0].{said}\n");
    check_line("id = -1", &at(4, "id: must be a whole number from 0 to 2^63 - 1"));
    check_line("id = \"16\"", &at(4, "id: must be a whole number, is text"));
    check_line(
        "ring_pool_key = \"secret\"",
        &at(5, "ring_pool_key: a ring pool key has 8 to 64 bytes, not 6"),
    );
    check_line(
        "ring_pool_key = \"secret key\"",
        &at(5, "ring_pool_key: a ring pool key is printable ASCII without spaces, `&`, `%` or `+`"),
    );
    check_line(
        "lifetime = \"401 days\"",
        &at(6, "lifetime: must be at least 1 ms and at most 400 days; write e.g. \"30m\""),
    );
    for too_long in ["99999999999999h", "99999999999999999999h"] {
        check_line(
            &format!("lifetime = \"{too_long}\""),
            &at(6, "lifetime: must be at least 1 ms and at most 400 days; write e.g. \"30m\""),
        );
    }
    check_line(
        "lifetime = \"1us\"",
        &at(6, "lifetime: must be a whole number of milliseconds; write e.g. \"10ms\""),
    );
    check_line(
        "numbers = []",
        &at(
            7,
            "numbers: must be 1 to 100,000 numbers, not 0; write e.g. [\"8885550100-8885550149\"]",
        ),
    );
    check_line(
        "numbers = [\"888-555-0100\", \"1885550100\", \"8885550101-8885550100\", \"888555010x\"]",
        &[
            at(7, "numbers[0]: a promo number needs ten digits without punctuation, or a + and its country code; this one has 3 bytes; write e.g. \"8885550100-8885550149\""),
            at(7, "numbers[1]: an area code cannot start with 0 or 1; write e.g. \"8885550100-8885550149\""),
            at(7, "numbers[2]: a range must not end before it starts, and must contain fewer than \
                   2^32 numbers of the same length; write e.g. \"8885550100-8885550149\""),
            at(7, "numbers[3]: a promo number may contain only the digits 0 to 9; write e.g. \"8885550100-8885550149\""),
        ]
        .concat(),
    );
    check_line(
        "numbers = [\"2000000000-9999999999\"]",
        &at(
            7,
            "numbers[0]: a range must not end before it starts, and must contain fewer than 2^32 \
             numbers of the same length; write e.g. \"8885550100-8885550149\"",
        ),
    );
    check_line(
        "overflow_number = \"8885550100\"",
        &at(
            8,
            "overflow_number: 8885550100 is also in the pool's rotation, so calls to it would be \
             attributed to one visitor",
        ),
    );
    check_line(
        "overflow_number = \"888-555-0100\"",
        &at(
            8,
            "overflow_number: a promo number needs ten digits without punctuation, or a + and its country code; this one has 12 bytes; write e.g. \"8885550142\"",
        ),
    );
}

#[test]
fn a_wrong_lifetime_is_reported_beside_a_wrong_key() {
    check(
        "data = \"d\"\n[[ring_pool]]\nid = 16\nring_pool_key = \"secret\"\n\
         lifetime = \"401 days\"\nnumbers = []\noverflow_number = \"8885550199\"\n",
        "\
ringwell.toml:4: ring_pool[0].ring_pool_key: a ring pool key has 8 to 64 bytes, not 6
ringwell.toml:5: ring_pool[0].lifetime: must be at least 1 ms and at most 400 days; write e.g. \"30m\"
ringwell.toml:6: ring_pool[0].numbers: must be 1 to 100,000 numbers, not 0; write e.g. [\"8885550100-8885550149\"]
",
    );
}

#[test]
fn contradictory_fields_of_a_pool_are_refused() {
    let at = |said: &str| format!("ringwell.toml:9: ring_pool[0].{said}\n");
    check_pool(
        "lifetime_seconds = 1800",
        &at("lifetime_seconds: conflicts with lifetime; remove one of them"),
    );
    check_pool(
        "next_ring_pool_key = \"key-of-16\"",
        &at("next_ring_pool_key: is the same as ring_pool_key"),
    );
    check_pool(
        "tracking_url = \"http://a.example/\"",
        &at("tracking_url: has no effect without destination_url; write both, or neither"),
    );
    check_pool(
        "destination_url = \"http://a.example/\"",
        &at("destination_url: has no effect without tracking_url; write both, or neither"),
    );
    check_pool(
        "allow_overflow = false",
        "ringwell.toml:8: ring_pool[0].overflow_number: is set although allow_overflow is false; remove one of them\n",
    );
}

#[test]
fn seconds_make_a_lifetime_too() {
    let with = |seconds: &str| {
        let line = format!("lifetime_seconds = {seconds}");
        let toml = GOOD.replace("lifetime = \"30m\"", &line);
        let loaded = load_files(&toml, "", &[], Overrides::default());
        loaded
            .map(|(_, directory)| directory.pools().next().unwrap().lifetime())
            .map_err(|f| lines(&f))
    };
    assert_eq!(with("1_800"), Ok(Millis(1_800_000)));
    assert_eq!(with("0.01"), Ok(Millis(10)));
    let said = |text| Err(format!("ringwell.toml:6: ring_pool[0].lifetime_seconds: {text}\n"));
    assert_eq!(with("0"), said("must be at least 1 ms and at most 400 days; write e.g. 1800"));
    let form = "must be a number of seconds with at most three decimals; write e.g. 1800";
    assert_eq!(with("-1"), said(form));
    assert_eq!(with("0.0001"), said(form));
    assert_eq!(with("\"30m\""), said("must be a number, is text; write e.g. 1800"));
}

#[test]
fn faults_between_pools_are_reported_at_the_later_one() {
    let pool = GOOD.replace("\ndata = \"/data\"", "").replace("8885550199", "8885550149");
    check(
        &format!("{GOOD}{pool}"),
        "ringwell.toml:15: ring_pool[1].overflow_number: 8885550149 is also in the pool's \
         rotation, so calls to it would be attributed to one visitor\n",
    );
    let pool = GOOD.replace("\ndata = \"/data\"", "");
    check(
        &format!("{GOOD}{pool}"),
        "\
ringwell.toml:11: ring_pool[1].id: another pool already has the id 16; give each pool a different id
ringwell.toml:14: ring_pool[1].numbers: 8885550100 is in ring pool 16 too; a number can be in one pool only
ringwell.toml:14: ring_pool[1].numbers: 8885550160 is in ring pool 16 too; a number can be in one pool only
",
    );
}
