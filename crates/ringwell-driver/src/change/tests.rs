use super::*;

fn ranges(text: &str) -> Vec<NumberRange> {
    let number = |text: &str| PromoNumber::from_e164(18_885_550_000 + text.parse::<u64>().unwrap());
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let count = last.parse::<u32>().unwrap() - first.parse::<u32>().unwrap() + 1;
        NumberRange::new(number(first).unwrap(), count).unwrap()
    };
    text.split_whitespace().map(range).collect()
}

#[test]
fn the_common_part_of_two_lists_has_the_order_of_the_first() {
    let check =
        |one, other, wanted| assert_eq!(common(&ranges(one), &ranges(other)), ranges(wanted));
    check("0-9", "3-4", "3-4");
    check("0-9", "8-20 0-1", "0-1 8-9");
    check("30-39 0-9", "5-34", "30-34 5-9");
    check("0-4 5-9", "0-9", "0-4 5-9");
    check("0-9", "10-19", "");
    check("", "0-9", "");
}

#[test]
fn a_pool_that_gets_numbers_of_a_held_one_is_held_as_long() {
    let numbers = [("0-9", 5), ("20-29", 9), ("30-39", 7)]
        .into_iter()
        .flat_map(|(text, until)| ranges(text).into_iter().map(move |r| (r, Millis(until))))
        .collect();
    let check = |held: &CollectedHolds, numbers, wanted: Option<u64>| {
        let pool = PoolSpec { id: PoolId(1), lockout: Millis(1), numbers: ranges(numbers) };
        assert_eq!(until(held, &pool), wanted.map(Millis), "{numbers}");
    };
    let held = CollectedHolds { all: None, numbers };
    check(&held, "9-12", Some(5));
    check(&held, "5 25 35", Some(9));
    check(&held, "29-30", Some(9));
    check(&held, "10-20", Some(9));
    check(&held, "0-50", Some(9));
    check(&held, "10-19 40-50", None);
    let in_doubt = CollectedHolds { all: Some(Millis(6)), ..held };
    check(&in_doubt, "9-12", Some(6));
    check(&in_doubt, "0-50", Some(9));
    check(&in_doubt, "10-19 40-50", Some(6));
}
