//! Startups from data directories that no process has served.

use ringwell_config::Durability;
use ringwell_core::Millis;
use ringwell_directory::Directory;
use ringwell_driver::lists::Lists;
use ringwell_driver::node::Begun;
use ringwell_driver::store::LastOwner;
use ringwell_engine::Recorded;

use crate::arrivals::{ALL, Other, begun, longest, start};
use crate::open::{Data, LIFETIME, directory, hand_out, now, reading};
use crate::pair::{self, Pair};
use crate::support::Virtual;

const NO_LISTS: Option<fn(&Directory) -> Lists> = None;

/// At its first start, a node asks about all its numbers, which may be other nodes' numbers. It
/// does not wait for silent nodes, which may not have started yet.
#[test]
pub fn a_first_start_asks_for_all_numbers_but_waits_for_no_node() {
    for other in ALL {
        let platform = Virtual::default();
        let pair = Pair::with(&platform, pair::pools(), begun(NO_LISTS));
        platform.run(async {
            let (first, second, _) = start(&pair, other).await;
            let wanted = match other {
                Other::Free | Other::Silent | Other::Gone => (None, None),
                Other::Locked | Other::LockedElsewhere => (Some(7_001), None),
                Other::Held => (Some(9_001), Some(9_001)),
                // The other node holds the pool that received the numbers.
                Other::HasIt => (Some(longest().0), Some(longest().0 + 1)),
            };
            assert_eq!((first, second), wanted, "{other:?}");
        });
    }
}

/// On another machine, a node continues from its logs. The list of pools may have changed since the
/// node served last, so silent nodes count as having handed the numbers out.
#[test]
pub fn a_node_that_continues_from_its_logs_on_another_machine_waits_for_silent_nodes() {
    for other in ALL {
        let platform = Virtual::default();
        let past = |directory: &Directory| Begun {
            has_past_in_log: has_past(3),
            ..begun(NO_LISTS)(directory)
        };
        let pair = Pair::with(&platform, pair::pools(), past);
        platform.run(async {
            let (first, second, _) = start(&pair, other).await;
            let wanted = match other {
                Other::Free => Some(0),
                Other::Locked | Other::LockedElsewhere => Some(7_001),
                Other::Held => Some(9_001),
                Other::HasIt | Other::Silent | Other::Gone => Some(longest().0),
            };
            assert_eq!(first, wanted, "{other:?}");
            assert!(second.is_some(), "{other:?}");
        });
    }
    assert!(!has_past(2), "the group of the take-over counts as an earlier process");
}

/// Returns whether the last of several startups finds the groups of an earlier process in its log.
/// Each startup writes one group. The startup itself wrote the newest group, to take over the log.
fn has_past(starts: u32) -> bool {
    let data = Data::new(Durability::Disk);
    let list = directory(1, LIFETIME);
    let mut has_past = false;
    for nth in 0..starts {
        let since = Millis(u64::from(nth) * 1_000);
        let recorded = Recorded { last_at: Millis::ZERO, clocks: None };
        let owner = LastOwner { recorded, epochs: Vec::new(), reached: Vec::new() };
        let mut begun = data.start_after(&list, reading(since), None, Some(&owner)).unwrap();
        has_past = begun.facts.has_past_in_log;
        let at = now(&begun, since);
        hand_out(&mut begun, &list, at, 1);
    }
    has_past
}
