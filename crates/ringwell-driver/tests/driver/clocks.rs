//! Gaps and periods that were recorded while the wall clock was wrong. Look-ups must be right once
//! the clock is corrected.

use std::time::Duration;

use ringwell_config::{Durability, demo_pools};
use ringwell_core::Millis;
use ringwell_directory::{Directory, PoolFields, RingPool};
use ringwell_driver::holder::holder;
use ringwell_driver::node::{Begun as Facts, Phase};
use ringwell_driver::open::{Begun, StartError};
use ringwell_driver::store::{Dating, Gaps, OverflowPeriods, mark_restored, unmark_restored};
use ringwell_driver::{Platform, partial_change, witness};
use ringwell_engine::{Clocks, Missing, Past, Reading, observed};
use ringwell_os::OsFiles;

use crate::journals::exchange;
use crate::moves::hand_out;
use crate::open::{Data, LIFETIME, START, directory, hand_out as hand_out_of, reading};
use crate::pair::{self, Pair, Side};
use crate::support::Virtual;

const HOUR: i64 = 3_600_000;

/// Returns the clocks that a startup uses to date gaps.
pub(crate) fn dating(begun: &Begun<OsFiles>) -> Dating<'_> {
    Dating { now: begun.clocks, noted: &begun.facts.noted }
}

/// Returns a machine's clocks at the time `since` after [`START`]. The wall clock is ahead by
/// `ahead`.
fn off(since: Millis, boot: u64, ahead: i64) -> Reading {
    let right = reading(since);
    Reading { boot, wall: Millis(right.wall.0.saturating_add_signed(ahead)), ..right }
}

/// Returns `clocks` after the wall clock has been corrected.
fn corrected(clocks: Clocks) -> Clocks {
    observed(clocks, (START.0 - 1_000_000).cast_signed())
}

const BACKUP: Millis = Millis(0);
const LOST: Millis = Millis(10_000);
const RESTORED: Millis = Millis(30_000);
const LATER: Millis = Millis(50_000);

/// Numbers are handed out at `BACKUP`, and the data is restored at `RESTORED`. The wall clock is
/// ahead by `before` and then by `after`, and is then corrected. The machine may be rebooted before
/// the second startup, and after the correction.
fn restored_with(before: i64, after: i64, boot: u64) -> Result<(), StartError> {
    let (data, one) = (Data::new(Durability::Disk), directory(1, LIFETIME));
    let case = format!("{before} {after} {boot}");
    let mut begun = data.start_as(&one, off(BACKUP, 1, before), None)?;
    let at = begun.clocks.shard(reading(BACKUP).since_boot);
    hand_out_of(&mut begun, &one, at, 1);
    drop(begun);
    mark_restored(&OsFiles, &data.settings.data).unwrap();
    let restored = off(RESTORED, boot, after);
    let mut begun = data.start_as(&one, restored, None)?;
    unmark_restored(&OsFiles, &data.settings.data).unwrap();
    begun.clocks = corrected(begun.clocks);
    let check = |gaps: &Gaps, dating: Dating<'_>| {
        let lost = [BACKUP, LOST, RESTORED, LATER].map(|at| gaps.contain(START + at, dating));
        assert_eq!(lost, [false, true, true, false], "{case}");
    };
    check(&begun.facts.gaps, dating(&begun));
    // The corrected clock is recorded in the journal.
    let at = begun.clocks.shard(restored.since_boot);
    hand_out_of(&mut begun, &one, at, 2);
    drop(begun);
    let begun = data.start_as(&one, off(LATER, 3, 0), None)?;
    check(&begun.facts.gaps, dating(&begun));
    // The clocks that the journal has recorded may be dropped with old history.
    let read = Gaps::read(&OsFiles, &data.settings.data).unwrap();
    check(&read, Dating { now: begun.clocks, noted: &[] });
    Ok(())
}

#[test]
pub(crate) fn the_gap_before_a_startup_is_known_after_the_wall_clock_is_corrected() {
    for after in [0, HOUR, -HOUR] {
        for before in [0, HOUR, -HOUR] {
            restored_with(before, after, 1).unwrap();
        }
        restored_with(0, after, 2).unwrap();
    }
}

fn wall(platform: &impl Platform) -> u64 {
    u64::try_from(platform.wall().as_millis()).unwrap()
}

/// Lets this many minutes pass.
async fn pass(platform: &Virtual, minutes: u64) {
    platform.sleep_until(platform.moment() + Duration::from_mins(minutes)).await;
}

/// Creates nodes whose pools have one number each. Node a's wall clock is `ahead` ahead of the
/// platform's clock; with [`RIGHT`], it shows the correct time.
fn pair_with_wrong_clock(platform: &Virtual, ahead: Duration) -> Pair {
    let pools = demo_pools(40, 1, pair::LIFETIME).unwrap();
    let pair = Pair::with(platform, pools, |_| Facts::default());
    pair.a.shard(0).platform.1.set(ahead);
    pair
}

async fn ask(side: &Side, number: ringwell_core::PromoNumber, at: u64) -> Past {
    holder(&side.node, &side.alone, number, Millis(at)).await.unwrap().past
}

const RIGHT: Duration = Duration::from_hours(1);

/// The gap is recorded because another node has recorded a longer journal than node a has.
#[test]
fn the_gap_that_another_node_knows_of_is_known_after_the_wall_clock_is_corrected() {
    for ahead in [Duration::ZERO, RIGHT, 2 * RIGHT] {
        let platform = Virtual::default();
        let pair = pair_with_wrong_clock(&platform, ahead);
        platform.run(async {
            let (a, b) = (&pair.a, &pair.b);
            let own = &a.shard(0).platform;
            let number = *hand_out(a, 0, 1).values().next().unwrap();
            pass(&platform, 3).await;
            exchange(b, serde_json::json!([]), serde_json::json!([[0, "old", 1]])).await.unwrap();
            a.node.enter(Phase::Starting);
            assert!(witness::begin(own, &a.node, &a.peers).await.is_empty());
            a.node.enter(Phase::Serving);
            for setting in [ahead, RIGHT] {
                own.1.set(setting);
                let judged = ask(a, number, wall(own)).await;
                let judged = (judged.held, judged.missing);
                assert_eq!(judged, (None, Some(Missing::NotKept)), "{ahead:?} {setting:?}");
            }
        });
    }
}

#[test]
pub(crate) fn an_overflow_period_is_known_after_the_wall_clock_is_corrected() {
    for ahead in [Duration::ZERO, RIGHT, 2 * RIGHT] {
        let platform = Virtual::default();
        let pair = pair_with_wrong_clock(&platform, ahead);
        platform.run(async {
            let a = &pair.a;
            let own = &a.shard(0).platform;
            let given = hand_out(a, 0, 1);
            let mut pools = given.into_iter();
            let ((from, number), (pool, _)) = (pools.next().unwrap(), pools.next().unwrap());
            let (began, since) = (platform.moment(), |setting: Duration| {
                own.1.set(setting);
                wall(own)
            });
            pass(&platform, 3).await;
            let change = async |overflow, gone: &[_]| {
                let gone = gone.to_vec();
                let make = move |before: &Directory| {
                    let fields = before.pool(pool).unwrap().fields().clone();
                    let pool = RingPool::new(PoolFields { overflow, ..fields }).unwrap();
                    before.change(vec![pool], &gone)
                };
                partial_change::apply(own, &a.node, &a.peers, make).await.unwrap();
            };
            change(Some(number), &[from]).await;
            pass(&platform, 3).await;
            let check = async |what: &str| {
                for setting in [ahead, RIGHT] {
                    let now = since(setting);
                    let passed = u64::try_from(platform.moment().since(began).as_millis()).unwrap();
                    let held = ask(a, number, now - passed + 10).await.held;
                    assert!(held.is_some(), "{what} {ahead:?} {setting:?}");
                    let unknown = ask(a, number, now).await;
                    let unknown = (unknown.held, unknown.missing);
                    assert_eq!(unknown, (None, Some(Missing::NotKept)), "{what} {ahead:?}");
                }
                since(ahead);
            };
            check("it lasts").await;
            change(None, &[]).await;
            pass(&platform, 3).await;
            check("it is over").await;
            let data = &a.node.config.data;
            let now = a.node.dated(own);
            let stored = OverflowPeriods::read(&OsFiles, data, now).unwrap();
            a.node.overflow_periods(|periods| assert_eq!(stored, *periods));
        });
    }
}
