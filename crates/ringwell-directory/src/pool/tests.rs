//! Tests the rules for one pool.

use super::*;

fn number(value: u64) -> PromoNumber {
    PromoNumber::from_e164(value).unwrap()
}

fn range(first: u64, count: u32) -> NumberRange {
    NumberRange::new(number(first), count).unwrap()
}

fn good() -> PoolFields {
    PoolFields {
        id: PoolId(16),
        name: Some("Spring".to_owned()),
        key: RingPoolKey::parse("key-of-16").unwrap(),
        next_key: None,
        lifetime: Millis(1_800_000),
        numbers: vec![range(18_885_550_100, 50), range(18_885_550_200, 1)],
        overflow: Some(number(18_885_550_199)),
        tracking: None,
    }
}

/// Applies `change` to the fields from `good`, and returns the faults, one per line.
fn check(change: impl FnOnce(&mut PoolFields)) -> String {
    let mut fields = good();
    change(&mut fields);
    let faults = RingPool::new(fields).err().unwrap_or_default();
    let line = |fault: &PoolFault| format!("{}: {fault}\n", fault.field());
    faults.iter().map(line).collect()
}

#[test]
fn a_name_has_no_spaces_around_it() {
    let fields = PoolFields { name: Some("  Spring sale\t".to_owned()), ..good() };
    assert_eq!(RingPool::new(fields).unwrap().name(), Some("Spring sale"));
}

#[test]
fn a_valid_pool_has_the_settings_that_its_shard_needs() {
    let pool = RingPool::new(good()).unwrap();
    assert_eq!(pool.number_count(), 51);
    assert_eq!(
        pool.spec(),
        PoolSpec { id: PoolId(16), lockout: Millis(1_800_000), numbers: good().numbers }
    );
}

#[test]
fn a_lifetime_is_one_millisecond_to_400_days() {
    let fault = "lifetime: must be at least 1 ms and at most 400 days\n";
    assert_eq!(check(|pool| pool.lifetime = Millis(0)), fault);
    assert_eq!(check(|pool| pool.lifetime = Millis(1)), "");
    assert_eq!(check(|pool| pool.lifetime = RingPool::LIFETIME_MAX), "");
    assert_eq!(check(|pool| pool.lifetime = RingPool::LIFETIME_MAX + Millis(1)), fault);
}

#[test]
fn a_pool_has_1_to_100_000_numbers() {
    let first = 12_000_000_000;
    assert_eq!(check(|p| p.numbers.clear()), "numbers: must be 1 to 100,000 numbers, not 0\n");
    assert_eq!(check(|p| p.numbers = vec![range(first, 100_000)]), "");
    assert_eq!(
        check(|p| p.numbers = vec![range(first, 100_000), range(first + 200_000, 1)]),
        "numbers: must be 1 to 100,000 numbers, not 100001\n"
    );
}

#[test]
fn a_number_is_in_rotation_once() {
    assert_eq!(
        check(|p| p.numbers = vec![range(18_885_550_120, 9), range(18_885_550_100, 21)]),
        "numbers: 8885550120 occurs twice\n"
    );
}

#[test]
fn an_overflow_number_is_not_in_rotation() {
    assert_eq!(
        check(|p| p.overflow = Some(number(18_885_550_149))),
        "overflow_number: 8885550149 is also in the pool's rotation, so calls to it would be \
         attributed to one visitor\n"
    );
    assert_eq!(check(|p| p.overflow = None), "");
}

#[test]
fn two_keys_differ() {
    assert_eq!(
        check(|p| p.next_key = Some(p.key)),
        "next_ring_pool_key: is the same as ring_pool_key\n"
    );
}

#[test]
fn tracking_urls_are_urls() {
    let with = |base: &str, destination: &str| {
        let (base_url, destination_url) = (base.to_owned(), destination.to_owned());
        check(|p| p.tracking = Some(Arc::new(Tracking { base_url, destination_url })))
    };
    let rule = "must be a URL that starts with http:// or https://, of at most 2,048 bytes\n";
    assert_eq!(with("http://example.org/c/1/2-3-4", "https://example.org/?a=b"), "");
    assert_eq!(
        with("ftp://example.org/", "https://"),
        format!("tracking_url: {rule}destination_url: {rule}")
    );
    let long = format!("http://example.org/{}", "x".repeat(2048));
    assert_eq!(with("http://exa mple.org", &long).lines().count(), 2);
}

#[test]
fn every_broken_rule_is_reported() {
    let broken = check(|p| {
        p.lifetime = Millis(0);
        p.numbers.clear();
    });
    assert_eq!(broken.lines().count(), 2);
}
