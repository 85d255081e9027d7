//! Startups from a log: the messages that are accepted, the messages that are refused, and the
//! shard's owner afterwards.

use std::cell::{Cell, RefCell};
use std::future::{Future, ready};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use ringwell_config::Durability;
use ringwell_core::Millis;
use ringwell_driver::open::{self, Believed, CopySource, FollowError, Followed};
use ringwell_driver::store::{
    Appended, Log, LogEnd, LogStore, Memory, NotAppended, Numbered, Settings, SnapshotStore, Store,
    Unreached,
};
use ringwell_journal::{Author, Group, Record, Tip, Writer, decode_message, encode_message};
use ringwell_os::OsFiles;
use tempfile::TempDir;

use crate::support::Virtual;

/// The time for which startup looks for groups that its copy has but the log seems to lack.
const STALE_SECONDS: u64 = 25;

/// A log in memory that works correctly, except for the faults that a test injects.
#[derive(Clone, Debug, Default)]
struct Plain(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    messages: RefCell<Vec<Option<Bytes>>>,
    first: Cell<u64>,
    /// Messages of another process, which are added before the next append.
    between: RefCell<Vec<Bytes>>,
    /// A position in the log, and the message that the leader has there instead of the right one.
    /// `leaders_rotten` is the number of leader changes after which the log returns the right
    /// message.
    rotten: RefCell<Option<(u64, Option<Bytes>)>>,
    leaders_rotten: Cell<u32>,
    /// The number of unanswered read requests before each answered one.
    unanswered: Cell<u32>,
    unanswered_left: Cell<u32>,
    /// Whether no message can be read.
    is_unreadable: Cell<bool>,
    /// The number of times that a server without the last two groups answers a request for the ends
    /// of the log.
    lagging: Cell<u32>,
}

impl Log for Plain {
    fn append(
        &self,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        let mut messages = self.0.messages.borrow_mut();
        messages.extend(self.0.between.take().into_iter().map(Some));
        let fits = n == messages.len() as u64 + 1;
        if fits {
            messages.push(Some(message));
        }
        ready(if fits { Ok(()) } else { Err(NotAppended::Taken) })
    }

    fn read(&self, n: u64) -> impl Future<Output = Result<Option<Bytes>, Unreached>> + 'static {
        if self.is_silent() || self.0.is_unreadable.get() {
            return ready(Err(Unreached("no answer".to_owned())));
        }
        let messages = self.0.messages.borrow();
        if let Some((rotten, has)) = self.0.rotten.borrow().as_ref()
            && *rotten == n
        {
            return ready(Ok(has.clone()));
        }
        ready(Ok(messages.get(usize::try_from(n - 1).unwrap()).cloned().flatten()))
    }

    fn ends(&self) -> impl Future<Output = Result<Range<u64>, Unreached>> + 'static {
        if self.is_silent() {
            return ready(Err(Unreached("no answer".to_owned())));
        }
        let lagging = self.0.lagging.get();
        self.0.lagging.set(lagging.saturating_sub(1));
        let lacks = if lagging > 0 { 2 } else { 0 };
        ready(Ok(self.0.first.get().max(1)..self.0.messages.borrow().len() as u64 + 1 - lacks))
    }

    fn trim(&self, _: u64) -> impl Future<Output = Result<(), Unreached>> + 'static {
        ready(Ok(()))
    }

    fn change_leader(&self) -> impl Future<Output = Result<(), Unreached>> + 'static {
        let left = self.0.leaders_rotten.get();
        if left <= 1 {
            self.0.rotten.take();
        }
        self.0.leaders_rotten.set(left.saturating_sub(1));
        ready(Ok(()))
    }
}

/// No snapshots.
#[derive(Debug)]
struct Bare;

impl SnapshotStore for Bare {
    fn add(&self, _: Bytes) -> Result<u64, Unreached> {
        Err(Unreached("there are no snapshots".to_owned()))
    }

    fn add_index(&self, _: Bytes) -> Result<u64, Unreached> {
        Err(Unreached("there are no snapshots".to_owned()))
    }

    fn newest_index(&self) -> Result<Option<(u64, Bytes)>, Unreached> {
        Ok(None)
    }

    fn get(&self, _: u64) -> Result<Option<Bytes>, Unreached> {
        Ok(None)
    }

    fn trim(&self, _: u64) -> Result<(), Unreached> {
        Ok(())
    }

    fn message(&self, _: u64) -> Result<Option<Bytes>, Unreached> {
        Ok(None)
    }

    fn log_bytes(&self) -> Result<u64, Unreached> {
        Ok(0)
    }
}

impl Plain {
    fn is_silent(&self) -> bool {
        let left = self.0.unanswered_left.get();
        self.0.unanswered_left.set(left.checked_sub(1).unwrap_or(self.0.unanswered.get()));
        left > 0
    }

    fn change(&self, n: usize, with: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>) {
        let message = &mut self.0.messages.borrow_mut()[n - 1];
        *message = with(message.take().unwrap().to_vec()).map(Bytes::from);
    }
}

/// Starts the shard with the files in `data`.
fn start(platform: &Virtual, log: &Plain, data: &Path) -> Result<Followed<OsFiles>, FollowError> {
    start_found(platform, log, data, 1)
}

/// Starts the shard with the files in `data`, after the log was found to end at `end`.
fn start_found(
    platform: &Virtual,
    log: &Plain,
    data: &Path,
    end: u64,
) -> Result<Followed<OsFiles>, FollowError> {
    start_after(platform, log, data, end, Default::default())
}

/// Starts the shard with the files in `data`, after the log was found to end at `end`. Another
/// process has reported the end that the log had reached, or noted where the log failed.
fn start_after(
    platform: &Virtual,
    log: &(impl Log + Clone + 'static),
    data: &Path,
    end: u64,
    (reached, failed_at): (LogEnd, LogEnd),
) -> Result<Followed<OsFiles>, FollowError> {
    let settings =
        Settings { segment_bytes: 128 << 10, ..Settings::new(data.to_owned(), Durability::Os) };
    let believed = Believed { answer_rows_max: 10, clock_skew_max: Millis(1_000), boot: 1 };
    let read = open::read_copy(&OsFiles, &settings, 0, &[], believed).unwrap();
    // Runs on a separate task, so that the same waker stays in use.
    let (task, log) = (platform.clone(), log.clone());
    let followed = async move {
        let source = CopySource {
            snapshots: &Bare,
            settings: &settings,
            specs: &[],
            believed,
            is_replacement: false,
            end,
            reached,
            failed_at,
        };
        open::follow(&task, &OsFiles, read, &log, &source).await
    };
    platform.run(ringwell_driver::Platform::task(platform, followed)).unwrap()
}

fn next(tip: &Tip) -> Group {
    let mut writer = Writer::new(*tip);
    writer.append(&Record::Tick { at: tip.last_at + Millis(1) });
    writer.seal(Vec::new()).unwrap()
}

/// Adds `count` groups to the log as `owner`.
fn serve(
    platform: &Virtual,
    log: &Plain,
    owner: &mut Followed<OsFiles>,
    count: u64,
) -> Vec<Appended> {
    let mirror = Memory::new([0; 16], u64::MAX);
    let store = LogStore::new(log.clone(), mirror, platform.clone(), owner.author);
    let tip = &mut owner.read.recovered.tip;
    let mut appended = Vec::new();
    for _ in 0..count {
        let group = next(tip);
        *tip = Tip::after(&group.header);
        appended.push(platform.run(store.append(group)));
    }
    appended
}

/// Returns a log to which one owner has added three groups after taking the shard over.
fn served(platform: &Virtual) -> (Plain, TempDir, Followed<OsFiles>) {
    let (log, data) = (Plain::default(), TempDir::new().unwrap());
    let mut owner = start(platform, &log, data.path()).unwrap();
    for appended in serve(platform, &log, &mut owner, 3) {
        assert!(matches!(appended, Appended::Stored { .. }), "{appended:?}");
    }
    (log, data, owner)
}

#[test]
fn a_shard_that_was_taken_over_is_fenced_wherever_the_other_started() {
    let platform = Virtual::default();
    let (log, data, first) = served(&platform);
    assert_eq!(first.read.recovered.tip.next_n, 5, "its take-over, and three");
    let elsewhere = TempDir::new().unwrap();
    let mut owners = vec![first];
    for place in [elsewhere.path(), data.path(), elsewhere.path()] {
        let owner = start(&platform, &log, place).unwrap();
        let (before, tip) = (owners.last().unwrap(), owner.read.recovered.tip);
        assert_eq!(tip.epoch, before.read.recovered.tip.epoch + 1);
        assert_eq!(tip.next_n, log.0.messages.borrow().len() as u64 + 1, "all was read");
        owners.push(owner);
    }
    let mut newest = owners.pop().unwrap();
    for owner in &mut owners {
        let own = owner.read.recovered.tip.epoch;
        // The fenced owner tries to append at the position after its own last group.
        let [Appended::Taken { epoch }] = &serve(&platform, &log, owner, 1)[..] else { panic!() };
        assert!(*epoch > own);
    }
    assert!(matches!(serve(&platform, &log, &mut newest, 2)[..], [Appended::Stored { .. }, _]));
}

#[test]
fn an_owner_whose_take_over_was_lost_does_not_mistake_the_next_one_for_its_own() {
    let platform = Virtual::default();
    let (log, _data, _first) = served(&platform);
    let [one, other] = [(); 2].map(|()| TempDir::new().unwrap());
    let mut second = start(&platform, &log, one.path()).unwrap();
    // The log loses the group that the second process added when it took the shard over. A third
    // process appends the same group at the same position.
    log.0.messages.borrow_mut().pop();
    let mut third = start(&platform, &log, other.path()).unwrap();
    assert_eq!(second.read.recovered.tip, third.read.recovered.tip);
    let epoch = third.read.recovered.tip.epoch;
    let appended = &serve(&platform, &log, &mut second, 1)[..];
    assert!(matches!(appended, [Appended::Taken { epoch: by }] if *by == epoch), "{appended:?}");
    assert!(matches!(serve(&platform, &log, &mut third, 2)[..], [Appended::Stored { .. }, _]));
}

#[test]
fn a_log_that_ends_earlier_than_when_it_was_found_is_in_doubt() {
    let platform = Virtual::default();
    let (log, _data, _owner) = served(&platform);
    for (end, is_in_doubt) in [(1, false), (6, false), (9, true)] {
        let elsewhere = TempDir::new().unwrap();
        let started = start_found(&platform, &log, elsewhere.path(), end).unwrap();
        assert_eq!(started.read.is_in_doubt, is_in_doubt, "{end}");
    }
}

#[test]
fn a_log_that_lacks_what_another_process_has_reported_is_in_doubt() {
    let none = LogEnd::default();
    // The log's previous owner had epoch 1 and stored groups 2 to 4.
    let reports = [(0, 0, false), (1, 0, false), (1, 4, false), (1, 5, true), (2, 4, true)];
    for (epoch, group, is_in_doubt) in reports {
        let platform = Virtual::default();
        let (log, _data, _owner) = served(&platform);
        let elsewhere = TempDir::new().unwrap();
        let reached = LogEnd { epoch, group };
        let started = start_after(&platform, &log, elsewhere.path(), 1, (reached, none)).unwrap();
        assert_eq!(started.read.is_in_doubt, is_in_doubt, "{reached:?}");
    }
    // The whole log is gone, so the epochs begin again.
    let (platform, elsewhere) = (Virtual::default(), TempDir::new().unwrap());
    let reached = LogEnd { epoch: 1, group: 0 };
    let log = Plain::default();
    let started = start_after(&platform, &log, elsewhere.path(), 1, (reached, none)).unwrap();
    assert!(started.read.is_in_doubt);
}

#[test]
fn a_log_that_a_process_has_found_to_have_lost_groups_is_in_doubt_once() {
    // In the last case, the failure was noted by an owner that another owner has replaced since.
    let failures = [(0, 0, false), (1, 4, false), (1, 5, true), (1, 90, true), (0, 90, false)];
    for (epoch, group, is_in_doubt) in failures {
        let platform = Virtual::default();
        let (log, _data, _owner) = served(&platform);
        let failed_at = LogEnd { epoch, group };
        for wanted in [is_in_doubt, false] {
            let elsewhere = TempDir::new().unwrap();
            let of = (LogEnd::default(), failed_at);
            let started = start_after(&platform, &log, elsewhere.path(), 1, of).unwrap();
            assert_eq!(started.read.is_in_doubt, wanted, "{failed_at:?}");
        }
    }
    // A failure of the log was noted, but not the group at which the log failed.
    let (platform, elsewhere) = (Virtual::default(), TempDir::new().unwrap());
    let (log, _data, _owner) = served(&platform);
    let of = (LogEnd::default(), LogEnd { epoch: u64::MAX, group: u64::MAX });
    let started = start_after(&platform, &log, elsewhere.path(), 1, of).unwrap();
    assert!(started.read.is_in_doubt);
}

#[test]
fn groups_added_by_another_process_are_read_before_a_take_over() {
    let platform = Virtual::default();
    let (log, _data, first) = served(&platform);
    let mut tip = first.read.recovered.tip;
    for _ in 0..4 {
        let group = next(&tip);
        tip = Tip::after(&group.header);
        log.0.between.borrow_mut().push(encode_message(&first.author, &group).into());
    }
    let second = start(&platform, &log, TempDir::new().unwrap().path()).unwrap();
    assert_eq!(second.read.recovered.tip.next_n, 10, "1 + 3, 4 more, and its own");
    assert_eq!(second.read.recovered.tip.epoch, tip.epoch + 1);
}

#[test]
fn missing_damaged_or_foreign_messages_are_never_skipped() {
    let refused = |change: &dyn Fn(&Plain)| {
        let platform = Virtual::default();
        let (log, _data, _owner) = served(&platform);
        change(&log);
        let before = log.0.messages.borrow().clone();
        let error = start(&platform, &log, TempDir::new().unwrap().path()).unwrap_err();
        assert_eq!(*log.0.messages.borrow(), before, "nothing was added");
        error
    };
    let error = refused(&|log| log.change(3, |_| None));
    assert!(matches!(error, FollowError::Hole { n: 3, .. }), "{error}");
    let flip = |mut message: Vec<u8>| {
        *message.last_mut().unwrap() ^= 1;
        Some(message)
    };
    let error = refused(&|log| log.change(2, flip));
    assert!(matches!(error, FollowError::Message { n: 2, .. }), "{error}");
    let error = refused(&|log| log.change(4, |_| Some(b"junk".to_vec())));
    assert!(matches!(error, FollowError::Message { n: 4, .. }), "{error}");
    let other = |message: Vec<u8>| {
        let (author, group) = decode_message(&message).unwrap();
        Some(encode_message(&Author { journal: [9; 16], ..author }, &group))
    };
    let error = refused(&|log| log.change(3, other));
    assert!(matches!(error, FollowError::Foreign { n: 3, .. }), "{error}");
    let fork = |message: Vec<u8>| {
        let (author, mut group) = decode_message(&message).unwrap();
        group.header.prev_hash ^= 1;
        Some(encode_message(&author, &group))
    };
    let error = refused(&|log| log.change(3, fork));
    assert!(matches!(error, FollowError::Chain { n: 3, .. }), "{error}");
    // A group's second byte contains the flags of its first record.
    let newer = |message: Vec<u8>| {
        let (author, mut group) = decode_message(&message).unwrap();
        group.body[1] |= 1 << 7;
        group.header.body_crc = crc32c::crc32c(&group.body);
        Some(encode_message(&author, &group))
    };
    let error = refused(&|log| log.change(3, newer));
    assert!(matches!(error, FollowError::Record { n: 3, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("unknown flags"), "{text}");
    assert!(text.contains("a newer version of Ringwell has served this shard, start"), "{text}");
    // All messages were removed.
    let error = refused(&|log| log.0.first.set(5));
    assert!(matches!(error, FollowError::LostHead { begins: 5, wanted: 1, .. }), "{error}");
}

#[test]
fn a_log_without_its_beginning_and_without_a_snapshot_is_continued_in_doubt() {
    let platform = Virtual::default();
    let (log, data, _first) = served(&platform);
    start(&platform, &log, data.path()).unwrap();
    log.0.first.set(3);
    let (elsewhere, before) = (TempDir::new().unwrap(), platform.0.now());
    let owner = start(&platform, &log, elsewhere.path()).unwrap();
    assert!(owner.read.is_in_doubt);
    assert!(owner.read.unknown_before.is_some(), "look-ups must not say that there was no call");
    // The log's owner might have stored a snapshot, so startup waits.
    assert!(platform.0.now().since(before).as_secs() >= STALE_SECONDS);
    assert_eq!(owner.read.recovered.tip.next_n, 7, "groups 3 to 5, and its own");
    // The copy that the first startup made has no snapshot either.
    assert!(start(&platform, &log, elsewhere.path()).unwrap().read.is_in_doubt);
    // If the copy contains the beginning of the log, the history is not in doubt.
    assert!(!start(&platform, &log, data.path()).unwrap().read.is_in_doubt);
}

#[test]
fn a_copy_is_continued_although_the_log_no_longer_has_its_last_group_intact() {
    for is_trimmed in [true, false] {
        let platform = Virtual::default();
        let (log, data, _first) = served(&platform);
        start(&platform, &log, data.path()).unwrap();
        let mut second = start(&platform, &log, TempDir::new().unwrap().path()).unwrap();
        serve(&platform, &log, &mut second, 2);
        // The copy ends with group 5.
        if is_trimmed {
            log.0.first.set(6);
        } else {
            log.change(5, |_| None);
        }
        let third = start(&platform, &log, data.path()).unwrap();
        assert!(!third.read.is_in_doubt, "{is_trimmed}");
        assert_eq!(third.read.recovered.tip.next_n, 10, "all was read");
    }
}

#[test]
fn a_log_that_ends_with_a_message_of_another_program_is_in_doubt() {
    let platform = Virtual::default();
    let (log, _data, _first) = served(&platform);
    let start = || {
        let (numbered, elsewhere) = (Numbered::new(log.clone(), 0), TempDir::new().unwrap());
        start_after(&platform, &numbered, elsewhere.path(), 1, Default::default()).unwrap()
    };
    assert!(!start().read.is_in_doubt);
    log.0.messages.borrow_mut().push(Some(Bytes::from_static(b"hello")));
    assert!(start().read.is_in_doubt);
    assert!(!start().read.is_in_doubt, "a group follows it now");
}

#[test]
fn a_copy_of_lost_groups_is_detected_although_the_leader_lacks_the_message() {
    for has_damaged in [false, true] {
        let platform = Virtual::default();
        let (log, data, _first) = served(&platform);
        start(&platform, &log, data.path()).unwrap();
        // The log loses its newest groups, and another process appends different ones.
        log.0.messages.borrow_mut().truncate(2);
        let elsewhere = TempDir::new().unwrap();
        let mut second = start(&platform, &log, elsewhere.path()).unwrap();
        serve(&platform, &log, &mut second, 3);
        let mut damaged = log.0.messages.borrow()[4].clone().unwrap().to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        *log.0.rotten.borrow_mut() = Some((5, has_damaged.then(|| damaged.into())));
        log.0.leaders_rotten.set(2);
        let third = start(&platform, &log, data.path()).unwrap();
        assert!(third.read.is_in_doubt);
    }
}

#[test]
fn a_message_lost_by_one_server_is_read_from_another() {
    for leaders in 1..5 {
        for has in [None, Some(Bytes::new())] {
            let platform = Virtual::default();
            let (log, _data, first) = served(&platform);
            // Returns the third message with a changed byte in its body.
            let damaged = |_| {
                let mut message = log.0.messages.borrow()[2].clone().unwrap().to_vec();
                *message.last_mut().unwrap() ^= 1;
                message.into()
            };
            *log.0.rotten.borrow_mut() = Some((3, has.map(damaged)));
            log.0.leaders_rotten.set(leaders);
            let second = start(&platform, &log, TempDir::new().unwrap().path()).unwrap();
            assert_eq!(second.read.recovered.tip.next_n, first.read.recovered.tip.next_n + 1);
        }
    }
}

#[test]
fn a_shard_whose_log_lost_groups_of_the_copy_continues_in_doubt() {
    let platform = Virtual::default();
    let (log, data, _first) = served(&platform);
    // After this startup, the copy has all four groups and the startup's own group.
    drop(start(&platform, &log, data.path()).unwrap());
    log.0.messages.borrow_mut().truncate(3);
    let before = platform.0.now();
    let owner = start(&platform, &log, data.path()).unwrap();
    assert!(owner.read.is_in_doubt);
    // Another of the log's servers might still have the missing groups, so startup waits.
    let took = platform.0.now().since(before).as_secs();
    assert!((STALE_SECONDS..STALE_SECONDS + 2).contains(&took), "it took {took} s");
    assert_eq!(owner.read.recovered.tip.next_n, 5, "three, and its own");
    // A machine without this copy does not notice the loss until other processes report it.
    let elsewhere = start(&platform, &log, TempDir::new().unwrap().path()).unwrap();
    assert!(!elsewhere.read.is_in_doubt);
}

#[test]
fn requests_that_get_no_answer_are_repeated_for_a_minute() {
    for begins in [0, 3] {
        let platform = Virtual::default();
        let (log, data, _first) = served(&platform);
        drop(start(&platform, &log, data.path()).unwrap());
        log.0.first.set(begins);
        let elsewhere = TempDir::new().unwrap();
        log.0.unanswered.set(7);
        for (place, next_n) in [(data.path(), 7), (elsewhere.path(), 8)] {
            let owner = start(&platform, &log, place).unwrap();
            assert_eq!(owner.read.recovered.tip.next_n, next_n, "all was read");
        }
        log.0.unanswered.set(0);
        for is_unreadable in [true, false] {
            log.0.is_unreadable.set(is_unreadable);
            log.0.unanswered_left.set(if is_unreadable { 0 } else { u32::MAX });
            let before = platform.0.now();
            let error = start(&platform, &log, TempDir::new().unwrap().path()).err();
            assert!(matches!(error, Some(FollowError::Unreached(_))), "{error:?}");
            let took = platform.0.now().since(before).as_secs();
            // The upper limit includes the time for which startup may first have waited for another
            // leader.
            assert!((60..90).contains(&took), "it took {took} s");
        }
    }
}

#[test]
fn groups_that_a_new_leader_does_not_show_at_once_are_not_lost() {
    for requests in [0, 1, 20, 90] {
        let platform = Virtual::default();
        let (log, data, _first) = served(&platform);
        drop(start(&platform, &log, data.path()).unwrap());
        log.0.lagging.set(requests);
        let before = platform.0.now();
        let owner = start(&platform, &log, data.path()).unwrap();
        assert!(!owner.read.is_in_doubt);
        assert_eq!(owner.read.recovered.tip.next_n, 7, "all was read");
        let took = platform.0.now().since(before).as_millis();
        assert_eq!(took, u128::from(requests) * 250, "it asks four times a second");
    }
}
