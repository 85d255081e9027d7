//! Compares runs with a list of single numbers.

use proptest::prelude::*;

use super::{RunSlot, Runs};
use crate::{NumberRange, PromoNumber};

const FIRST: u64 = 18_885_550_000;
const NUMBERS: u8 = 40;
/// The distance between the first slots of two consecutive runs.
const APART: u32 = 100;

fn number(at: u8) -> PromoNumber {
    PromoNumber::from_e164(FIRST + u64::from(at)).unwrap()
}

fn range(first: u8, count: u8) -> NumberRange {
    NumberRange::new(number(first), u32::from(count)).unwrap()
}

/// A number, its location and the first number of its run.
type Known = (PromoNumber, RunSlot, PromoNumber);

/// Builds runs in rising order. `wanted` contains, for each run, the gap before it, its length and
/// its pool.
fn runs(wanted: &[(u8, u8, u32)]) -> (Runs, Vec<Known>) {
    let (mut runs, mut all, mut next) = (Runs::default(), Vec::new(), 0);
    for (slot, &(gap, count, pool)) in (7..).step_by(APART as usize).zip(wanted) {
        let first = next + gap;
        next = first + count;
        if next > NUMBERS {
            break;
        }
        runs.insert(range(first, count), slot, pool);
        let places = (slot..).map(|slot| RunSlot { slot, pool });
        let known = (first..next).zip(places).map(|(at, place)| (number(at), place, number(first)));
        all.extend(known);
    }
    (runs, all)
}

fn wanted() -> impl Strategy<Value = Vec<(u8, u8, u32)>> {
    proptest::collection::vec((0..4_u8, 1..6_u8, 0..3_u32), 0..9)
}

proptest! {
    #[test]
    fn each_number_is_found_in_its_run_and_no_other_is(wanted in wanted()) {
        let (mut runs, all) = runs(&wanted);
        for at in 0..=NUMBERS {
            let known = all.iter().find(|known| known.0 == number(at));
            prop_assert_eq!(runs.find(number(at)), known.map(|known| known.1));
            let begins = all.iter().filter(|known| known.2 == number(at)).count();
            let run = runs.beginning(number(at)).map(|run| (run.first(), run.count() as usize));
            prop_assert_eq!(run, (begins > 0).then_some((number(at), begins)));
        }
        for known in &all {
            if runs.beginning(known.2).is_some() {
                runs.remove(known.2);
            }
            prop_assert_eq!(runs.find(known.0), None);
        }
    }

    #[test]
    fn a_range_meets_exactly_the_numbers_that_are_in_it(
        wanted in wanted(), first in 0..NUMBERS, count in 1..12_u8, pool in 0..4_u32
    ) {
        let (runs, all) = runs(&wanted);
        let range = range(first, count);
        let inside: Vec<&Known> = all.iter().filter(|known| range.contains(known.0)).collect();
        let shared = runs.overlaps(range).flat_map(|(shared, slot)| shared.iter().zip(slot..));
        let met = inside.iter().map(|known| (known.0, known.1.slot));
        prop_assert_eq!(shared.collect::<Vec<_>>(), met.collect::<Vec<_>>());
        let taken = inside.iter().find(|known| known.1.pool != pool).map(|known| known.0);
        prop_assert_eq!(runs.taken(range, pool), taken);
    }
}

#[test]
#[should_panic(expected = "a number is in two pools")]
fn a_number_cannot_come_into_a_second_pool() {
    let mut runs = Runs::default();
    runs.insert(range(0, 5), 0, 0);
    runs.insert(range(4, 2), 5, 1);
}
