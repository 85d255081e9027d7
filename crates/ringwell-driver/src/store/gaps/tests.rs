use ringwell_core::PoolId;
use ringwell_engine::PastAllocation;

use super::*;

fn held(allocated: u64, locked_until: u64) -> Past {
    let held = PastAllocation {
        pool: Some(PoolId(1)),
        allocated_at: Millis(allocated),
        allocated_wall: Millis(allocated),
        locked_until: Millis(locked_until),
        params: Vec::new(),
        next_allocated_at: None,
        keep_alives: None,
    };
    Past { held: Some(held), ..Past::default() }
}

/// The recorded times have no clocks, so any clocks will do.
const ANY: Dating<'_> =
    Dating { now: Clocks { boot: 1, shard_offset: 0, wall_offset: 0 }, noted: &[] };

/// The beginning of a 100 ms gap, and an earlier time. An allocation made at the earlier time
/// cannot have been undone in the gap.
const FROM: u64 = 10_000_000;
const LONG_BEFORE: u64 = FROM - UNDONE_MAX.0;

fn is_missing(past: Past, at: u64) -> bool {
    let mut gaps = Gaps::default();
    gaps.add(Millis(FROM), Millis(FROM + 100));
    gaps.judge(past, Moment::Wall(Millis(at)), ANY, (None, true)).missing == Some(Missing::NotKept)
}

#[test]
fn a_number_that_may_have_gone_out_in_the_gap_is_not_attributed() {
    for at in [FROM + 1, FROM + 50, FROM + 100, 2 * FROM] {
        assert!(is_missing(Past::default(), at), "no history, {at}");
        assert!(is_missing(held(LONG_BEFORE, FROM - 10), at), "free since before, {at}");
    }
    assert!(is_missing(held(LONG_BEFORE, FROM + 50), FROM + 51), "it became free in the gap");
    let unread = Past { missing: Some(Missing::TooLong), ..held(LONG_BEFORE, FROM - 10) };
    assert!(is_missing(unread, FROM + 50), "known without its record");
}

#[test]
fn an_allocation_that_the_gap_cannot_have_changed_is_named() {
    assert!(!is_missing(held(LONG_BEFORE, FROM - 10), FROM), "before the gap");
    assert!(!is_missing(Past::default(), FROM - 1), "before the gap");
    assert!(!is_missing(held(LONG_BEFORE, FROM + 50), FROM + 49), "its lockout ran");
    assert!(!is_missing(held(LONG_BEFORE, FROM + 101), 2 * FROM), "locked through the gap");
    assert!(!is_missing(held(FROM + 100, FROM + 110), 2 * FROM), "allocated after the gap");
}

/// The number may have been in a pool of a shard that is gone, but not during a lockout here.
#[test]
fn a_shard_that_is_gone_leaves_only_the_times_in_lockouts_known() {
    let mut gaps = Gaps::default();
    gaps.add_of_others(Millis(2 * FROM), BTreeSet::from([7]));
    let is_missing = |past, at, bucket| {
        let judged = gaps.judge(past, Moment::Wall(Millis(at)), ANY, (Some(bucket), true));
        judged.missing == Some(Missing::NotKept)
    };
    let locked = || held(LONG_BEFORE, FROM);
    assert!(!is_missing(locked(), FROM, 1), "its lockout ran");
    assert!(is_missing(locked(), FROM + 1, 1) && is_missing(locked(), 3 * FROM, 1));
    assert!(is_missing(Past::default(), FROM, 1), "another shard may have handed it out");
    assert!(!is_missing(held(2 * FROM, 3 * FROM), 4 * FROM, 1), "allocated afterwards");
    assert!(is_missing(locked(), FROM, 7), "the pool belonged to the shard that is gone");
}

/// The answer to a batch may have reached no client: the number then went to the next visitor.
#[test]
fn an_allocation_that_may_have_been_undone_in_the_gap_is_not_named() {
    let recent = || held(LONG_BEFORE + 1, 2 * FROM);
    assert!(!is_missing(recent(), FROM), "before the gap");
    assert!(is_missing(recent(), FROM + 1), "undone in the gap");
    assert!(is_missing(recent(), FROM + 5_000), "undone in the gap");
    let mut foreign = recent();
    foreign.held.as_mut().unwrap().pool = None;
    assert!(!is_missing(foreign, FROM + 5_000), "the shard that made it undoes it");
}

#[test]
fn a_holder_that_is_unknown_for_another_reason_is_also_lost() {
    let mut gaps = Gaps::default();
    gaps.add(Millis(100), Millis(200));
    let judge = |later| {
        let past = Past { missing: Some(Missing::Damaged), later, ..Past::default() };
        gaps.judge(past, Moment::Wall(Millis(5_000)), ANY, (None, true))
    };
    let judged = judge(Some(Millis(50)));
    assert_eq!((judged.missing, judged.later), (Some(Missing::Damaged), Some(Millis(50))));
    assert_eq!(judged.lost_until, Some(Millis(200)));
    // Without `later`, the end of the gap is not recorded. Otherwise, all allocations after the gap
    // would count as known.
    assert_eq!(judge(None).lost_until, None);
    // An allocation that followed the gap is still known.
    let past = Past { later: Some(Millis(300)), ..Past::default() };
    let judged = gaps.judge(past, Moment::Wall(Millis(5_000)), ANY, (None, true));
    assert_eq!((judged.later, judged.is_later_sure), (Some(Millis(300)), true));
    assert_eq!((judged.missing, judged.lost_until), (Some(Missing::NotKept), Some(Millis(200))));
}

#[test]
fn gaps_are_bounded_and_the_oldest_are_merged() {
    let mut gaps = Gaps::default();
    for n in 0..300 {
        gaps.add(Millis(10 * n), Millis(10 * n + 1));
    }
    let gap = |from, to| Gap {
        from: Millis(from).into(),
        to: Millis(to).into(),
        buckets: None,
        is_of_others: false,
    };
    assert_eq!(gaps.0.len(), GAPS_MAX);
    assert_eq!(gaps.0[0], gap(0, 2001));
    assert_eq!(gaps.0[1], gap(2010, 2011));
}

#[test]
fn gaps_are_read_from_their_text_and_merged_without_repetition() {
    let mut gaps = Gaps::default();
    gaps.add(Millis(50), Millis(70));
    gaps.add(Millis(10), Millis(20));
    let read = Gaps::parse(&gaps.to_text());
    gaps.merge(&read);
    assert_eq!(gaps, read, "the same gaps, oldest first");
    assert_eq!(gaps.to_text(), "10-20,50-70");
    for junk in ["", "5", "a-b", "1-"] {
        assert_eq!(Gaps::parse(junk), Gaps::default(), "{junk}");
    }
}

#[test]
fn gaps_of_buckets_that_came_from_another_node_concern_only_those() {
    let mut lost = Gaps::default();
    lost.add(Millis(100), Millis(200));
    let received = Gaps::from(lost.of(&[3, 4], ANY));
    let is_missing = |gaps: &Gaps, bucket| {
        let judged = gaps.judge(Past::default(), Moment::Wall(Millis(300)), ANY, (bucket, true));
        judged.missing == Some(Missing::NotKept)
    };
    assert!(is_missing(&received, Some(3)) && is_missing(&received, Some(4)));
    assert!(!is_missing(&received, Some(5)) && !is_missing(&received, None));
    assert!(is_missing(&lost, Some(5)));
    assert_eq!(received.of(&[5], ANY), [], "nothing is known of it");
    let again = Gaps::from(received.of(&[4, 5], ANY));
    assert!(is_missing(&again, Some(4)) && !is_missing(&again, Some(5)));
    let mut both = received.clone();
    both.merge(&again);
    both.merge(&again);
    assert_eq!(both.0.len(), 2);
    let stored = serde_json::to_string(&both).unwrap();
    assert_eq!(serde_json::from_str::<Gaps>(&stored).unwrap(), both);
    let older: Gaps = serde_json::from_str(r#"[{"from":100,"to":200}]"#).unwrap();
    assert_eq!(older, lost, "an older release has written it");
}

/// During a gap, a number may have come to the shard and been handed out there.
#[test]
fn a_gap_of_all_buckets_concerns_the_numbers_of_the_shard_and_those_it_owns() {
    let mut gaps = Gaps::default();
    gaps.add(Millis(100), Millis(200));
    for (is_here, missing) in [(true, Some(Missing::NotKept)), (false, None)] {
        let at = Moment::Wall(Millis(150));
        let judged = gaps.judge(Past::default(), at, ANY, (Some(7), is_here));
        assert_eq!((judged.missing, judged.lost_until), (missing, Some(Millis(200))));
    }
    assert!(!gaps.contain(Millis(100), ANY) && gaps.contain(Millis(200), ANY));
}

/// The shard has had a bucket since an earlier loss, and lost its disk afterwards.
#[test]
fn a_gap_of_the_number_s_bucket_hides_no_later_gap_of_all_buckets() {
    let [from, to] = [Millis::ZERO, Millis(100)].map(Dated::from);
    let of_bucket = Gap { from, to, buckets: Some([7].into()), is_of_others: false };
    let mut gaps = Gaps::from(vec![of_bucket]);
    gaps.add(Millis::ZERO, Millis(300));
    for past in [Past::default(), Past { later: Some(Millis(9)), ..Past::default() }] {
        let judged = gaps.judge(past, Moment::Wall(Millis(150)), ANY, (Some(7), false));
        assert_eq!(
            (judged.missing, judged.lost_until),
            (Some(Missing::NotKept), Some(Millis(300)))
        );
    }
}

const HOUR: u64 = 3_600_000;

/// Returns the shard time `at`, recorded while the wall clock was an hour ahead or was right, and
/// the clocks.
fn recorded(at: u64, boot: u64, is_ahead: bool) -> (Dated, Clocks) {
    let ahead = if is_ahead { HOUR.cast_signed() } else { 0 };
    let clocks = Clocks { boot, shard_offset: 0, wall_offset: ahead };
    (Dated::new(Millis(at), Some(clocks)), clocks)
}

#[test]
fn a_gap_moves_with_the_wall_clock_of_its_boot() {
    let dating = |now| Dating { now, noted: &[] };
    let [(from, wrong), (to, _)] = [FROM, FROM + 100].map(|at| recorded(at, 1, true));
    let (_, right) = recorded(FROM, 1, false);
    let mut gaps = Gaps::default();
    gaps.add(from, to);
    for (now, ahead) in [(wrong, HOUR), (right, 0)] {
        assert!(gaps.contain(Millis(FROM + ahead + 50), dating(now)));
        assert!(!gaps.contain(Millis(FROM + ahead + 150), dating(now)));
        let sent = Gaps::from(gaps.of(&[3], dating(now)));
        assert!(sent.contain(Millis(FROM + ahead + 50), ANY), "by the wall clock");
    }
    let text = gaps.to_text();
    let read = Gaps::parse(&text);
    assert_eq!(read, gaps, "{text}");
    // An earlier version reads only the parts without clocks.
    let plain: Vec<&str> = text.split(',').filter(|part| !part.contains('/')).collect();
    let mut older = Gaps::parse(&plain.join(","));
    assert_eq!(older.to_text(), plain.join(","));
    older.merge(&read);
    assert_eq!(older, gaps, "the clocks are known again");
    let stored = serde_json::to_string(&gaps).unwrap();
    assert_eq!(serde_json::from_str::<Gaps>(&stored).unwrap(), gaps, "{stored}");
}

/// The wall clock was right before the reboot and an hour behind after it, or an hour ahead before
/// the reboot and right after it. The length of the gap is then unknown.
#[test]
fn a_gap_that_seems_to_end_before_it_begins_hides_all_visitors_whose_lockouts_are_over() {
    let ((from, _), (to, now)) = (recorded(FROM, 1, true), recorded(FROM + 100, 2, false));
    let mut gaps = Gaps::default();
    gaps.add(from, to);
    let is_missing = |past: Past, at: u64| {
        let at = Moment::Wall(Millis(at));
        let judged = gaps.judge(past, at, Dating { now, noted: &[] }, (None, true));
        judged.missing == Some(Missing::NotKept)
    };
    let before = |locked_for| held(FROM + HOUR - 10, FROM + HOUR + locked_for);
    assert!(is_missing(held(1, 2), FROM + 200), "by the clock of the second boot");
    assert!(is_missing(before(50), FROM + HOUR + 60), "the lockout ended in the gap");
    assert!(!is_missing(held(LONG_BEFORE - HOUR, FROM + 50), FROM + 40), "its lockout ran");
    assert!(!is_missing(held(FROM + HOUR + 1, FROM + HOUR + 2), 2 * FROM + HOUR), "after the gap");
}
