use std::collections::BTreeMap;

use super::*;

fn served(version: u64, buckets: impl IntoIterator<Item = u16>) -> ServedMap {
    ServedMap {
        version,
        buckets: buckets.into_iter().collect(),
        owners: None,
        leaving: Vec::new(),
        holds: BucketHolds::default(),
        stale: BTreeSet::new(),
        abandoned: BTreeMap::new(),
        lists: None,
        served_at: None,
        lifetimes: None,
    }
}

#[test]
fn buckets_are_new_if_another_node_may_have_served_them_last() {
    let placement = Placement::even(4).unwrap();
    let all: BTreeSet<u16> = (0..512).collect();
    let check = |version, served: Option<ServedMap>, wanted: &BTreeSet<u16>| {
        let new = new_buckets(&placement, version, &[0, 1], served.as_ref());
        assert_eq!(new.as_ref(), Ok(wanted), "version {version}, {served:?}");
    };
    let (half, none) = ((256..512).collect(), BTreeSet::new());
    check(1, None, &none);
    check(2, None, &all);
    for version in [7, 8] {
        check(version, Some(served(7, 0..256)), &half);
        check(version, Some(served(7, 0..600)), &none);
    }
    // Maps were missed.
    check(9, Some(served(7, 0..600)), &all);
    let old = new_buckets(&placement, 6, &[0, 1], Some(&served(7, 0..600)));
    assert_eq!(old, Err(OldMap { version: 6, served: 7 }));
}
