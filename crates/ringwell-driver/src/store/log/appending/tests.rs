//! Owners that compete for a log. The log loses acknowledgements, stores messages late, and elects
//! leaders with fewer messages than the previous leader.

use proptest::prelude::*;
use ringwell_core::Millis;
use ringwell_journal::{Group, Record, Tip, Writer, encode_message};

use super::*;

/// A replicated log as its clients see it.
#[derive(Debug, Default)]
struct Fickle {
    stored: Vec<Bytes>,
    /// Messages that the leader has, but that do not have a quorum yet.
    proposed: Vec<Bytes>,
    has_quorum: bool,
    room: usize,
}

/// The next event.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// One of the owners takes its next step.
    Owner(usize),
    /// One of the owners takes its next step, but does not get the answer.
    Unheard(usize),
    LoseQuorum,
    /// The leader gets its quorum back, so its proposals are stored.
    Quorum,
    /// Another leader is elected, so the proposals of the previous leader are lost.
    Elect,
    /// From now on, the log has space for this many more messages.
    Room(usize),
}

impl Fickle {
    fn append(&mut self, n: u64, message: &Bytes) -> Result<(), NotAppended> {
        // As in JetStream, the leader counts its own proposals.
        if n != (self.stored.len() + self.proposed.len()) as u64 + 1 {
            return Err(NotAppended::Taken);
        }
        if self.room == 0 {
            return Err(NotAppended::Full);
        }
        self.room -= 1;
        if !self.has_quorum {
            self.proposed.push(message.clone());
            return Err(NotAppended::Unknown);
        }
        self.stored.push(message.clone());
        Ok(())
    }

    fn read(&self, n: u64) -> Option<Bytes> {
        self.stored.get(usize::try_from(n).unwrap() - 1).cloned()
    }
}

/// A process that owns the shard or tries to take it over.
struct Owner {
    author: Author,
    epoch: u64,
    tip: Tip,
    under_way: Option<(Appending, Ask, Bytes)>,
    stored: Vec<(u64, Bytes)>,
}

impl Owner {
    fn new(name: u8) -> Self {
        let author = Author { shard: 0, journal: [0; 16], incarnation: [name; 16] };
        Self { author, epoch: 0, tip: Tip::FIRST, under_way: None, stored: Vec::new() }
    }

    fn group(&self) -> Group {
        let mut writer = Writer::new(Tip { epoch: self.epoch, ..self.tip });
        writer.append(&Record::Tick { at: self.tip.last_at + Millis(1) });
        writer.seal(Vec::new()).unwrap()
    }

    /// Returns the origin of the group before the owner's next one.
    fn before(&self, is_old: bool) -> Before {
        let is_own = self.stored.last().is_some_and(|(n, _)| n + 1 == self.tip.next_n);
        if is_own { Before::Own { is_old } } else { Before::OfAnother }
    }

    /// Reads the log to its end in order to take the shard over.
    fn follow(&mut self, log: &Fickle) {
        self.tip = Tip::FIRST;
        for message in &log.stored {
            let (_, group) = decode_message(message).unwrap();
            ringwell_journal::continues(&self.tip, &group.header).expect("a chain");
            self.tip = Tip::after(&group.header);
        }
        self.epoch = self.tip.epoch + 1;
    }

    fn step(&mut self, log: &mut Fickle, is_heard: bool) {
        let (mut appending, ask, message) = self.under_way.take().unwrap_or_else(|| {
            if self.epoch == 0 {
                self.follow(log);
            }
            let message = Bytes::from(encode_message(&self.author, &self.group()));
            let (appending, _) = Appending::begin(self.author, self.tip.next_n, message.clone());
            let (appending, ask) = appending.after(self.tip.prev_hash, self.before(is_heard));
            (appending, ask, message)
        });
        let n = self.tip.next_n;
        let next = match ask {
            Ask::Append => {
                let answer = log.append(n, &message);
                appending.appended(if is_heard { answer } else { Err(NotAppended::Unknown) })
            }
            Ask::Read if is_heard => appending.read(Ok(log.read(n))),
            Ask::Read => appending.read(Err(Unreached("a test".to_owned()))),
            Ask::ReadBefore if is_heard => appending.before(Ok(log.read(n - 1))),
            Ask::ReadBefore => appending.before(Err(Unreached("a test".to_owned()))),
            Ask::ReadEnds => appending.ends(Ok(1..log.stored.len() as u64 + 1)),
            Ask::ChangeLeader => appending.changed_leader(Ok(())),
            Ask::Pause(_) => appending.paused(),
            Ask::Done(_) => unreachable!(),
        };
        match next {
            Ask::Done(Fate::Stored) => {
                assert_eq!(log.read(n), Some(message.clone()), "acknowledged, and not there");
                let (_, group) = decode_message(&message).unwrap();
                self.tip = Tip::after(&group.header);
                self.stored.push((n, message));
            }
            Ask::Done(Fate::Taken { epoch }) => {
                let there = log.read(n).expect("somebody has it");
                assert_ne!(there, message, "fenced by its own message");
                assert_eq!(decode_message(&there).unwrap().1.header.epoch, epoch);
                // The owner tries to take the shard over again.
                self.epoch = 0;
            }
            Ask::Done(Fate::Full) => {
                assert_ne!(log.read(n), Some(message), "there is no room, and it is there");
            }
            Ask::Done(Fate::Failed(why)) => panic!("{why}"),
            ask => self.under_way = Some((appending, ask, message)),
        }
    }
}

/// Executes the steps. Then delivers all answers until the fate of each owner's message is decided.
fn run(steps: &[Step]) -> usize {
    let mut log = Fickle { has_quorum: true, room: 1_000, ..Fickle::default() };
    let mut owners: Vec<Owner> = (0..3).map(Owner::new).collect();
    for step in steps {
        match *step {
            Step::Owner(owner) => owners[owner].step(&mut log, true),
            Step::Unheard(owner) => owners[owner].step(&mut log, false),
            Step::LoseQuorum => log.has_quorum = false,
            Step::Quorum => {
                log.has_quorum = true;
                let proposed = std::mem::take(&mut log.proposed);
                log.stored.extend(proposed);
            }
            Step::Elect => {
                log.has_quorum = true;
                log.proposed.clear();
            }
            Step::Room(room) => log.room = room,
        }
    }
    log.has_quorum = true;
    log.proposed.clear();
    log.room = 1_000;
    for owner in &mut owners {
        while owner.under_way.is_some() {
            owner.step(&mut log, true);
        }
        for (n, message) in &owner.stored {
            assert_eq!(log.read(*n).as_ref(), Some(message), "what was acknowledged stays");
        }
    }
    // Each message continues the one before it, whichever owner wrote that one.
    Owner::new(9).follow(&log);
    log.stored.len()
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3_usize).prop_map(Step::Owner),
        2 => (0..3_usize).prop_map(Step::Unheard),
        1 => Just(Step::LoseQuorum),
        1 => Just(Step::Quorum),
        1 => Just(Step::Elect),
        1 => (0..4_usize).prop_map(Step::Room),
    ]
}

proptest! {
    #[test]
    fn a_confirmed_append_is_stored_and_no_owner_fences_itself(
        steps in prop::collection::vec(step(), 0..200)
    ) {
        run(&steps);
    }
}

#[test]
fn a_refusal_without_a_quorum_proves_nothing() {
    let mut log = Fickle { room: 9, ..Fickle::default() };
    let mut owner = Owner::new(1);
    owner.step(&mut log, true);
    // The leader has the message but no quorum, and answers as if another client had written it.
    for _ in 0..6 {
        owner.step(&mut log, true);
        assert!(owner.under_way.is_some(), "its fate is not known yet");
    }
    log.stored.append(&mut log.proposed);
    while owner.under_way.is_some() {
        owner.step(&mut log, true);
    }
    assert_eq!(owner.stored.len(), 1);
}

#[test]
fn a_lost_message_is_sent_again_with_growing_pauses() {
    let author = Author { shard: 0, journal: [0; 16], incarnation: [1; 16] };
    let (mut appending, ask) = Appending::begin(author, 1, Bytes::from_static(b"message"));
    assert_eq!(ask, Ask::Append);
    let mut pauses = Vec::new();
    for _ in 0..7 {
        assert_eq!(appending.appended(Err(NotAppended::Unknown)), Ask::Read);
        let Ask::Pause(time) = appending.read(Ok(None)) else { panic!() };
        pauses.push(time.as_millis());
    }
    assert_eq!(pauses, [50, 100, 200, 250, 250, 250, 250]);
    // The message may have been stored before the log was full.
    assert_eq!(appending.appended(Err(NotAppended::Full)), Ask::Read);
    assert_eq!(appending.read(Ok(Some(Bytes::from_static(b"message")))), Ask::Done(Fate::Stored));
}

/// If a log has lost its newest messages, another owner may be filling it up to the place of the
/// message that is to be sent. The log would then accept the message if only its place were
/// checked.
#[test]
fn nothing_is_sent_while_the_message_before_is_missing() {
    let author = Author { shard: 0, journal: [0; 16], incarnation: [1; 16] };
    let message = Bytes::from_static(b"message");
    let (appending, _) = Appending::begin(author, 9, message.clone());
    let (mut appending, mut ask) = appending.after(7, Before::Own { is_old: true });
    let mut waited = Duration::ZERO;
    while ask == Ask::ReadBefore {
        ask = appending.before(Ok(None));
        if ask == Ask::ReadEnds {
            let Ask::Pause(time) = appending.ends(Ok(1..6)) else { panic!("sent") };
            waited += time;
            ask = appending.paused();
        }
    }
    assert!(matches!(ask, Ask::Done(Fate::Failed(_))), "{ask:?}");
    assert!(waited >= STALE_MAX);
    // All messages before message 9 were dropped with old history.
    let (mut appending, _) =
        Appending::begin(author, 9, message).0.after(7, Before::Own { is_old: true });
    assert_eq!(appending.before(Ok(None)), Ask::ReadEnds);
    assert_eq!(appending.ends(Ok(9..9)), Ask::Append);
    assert_eq!(appending.appended(Ok(())), Ask::Done(Fate::Stored));
}

#[test]
fn a_foreign_message_is_never_followed() {
    let author = Author { shard: 0, journal: [0; 16], incarnation: [1; 16] };
    let mut writer = Writer::new(Tip::FIRST);
    writer.append(&Record::Tick { at: Millis(1) });
    let group = writer.seal(Vec::new()).unwrap();
    let other = Author { journal: [5; 16], incarnation: [2; 16], ..author };
    for there in [Bytes::from_static(b"junk"), encode_message(&other, &group).into()] {
        let (mut appending, _) = Appending::begin(author, 1, Bytes::from_static(b"message"));
        assert_eq!(appending.appended(Err(NotAppended::Taken)), Ask::Read);
        assert!(matches!(appending.read(Ok(Some(there))), Ask::Done(Fate::Failed(_))));
    }
}

#[cfg(canary)]
#[test]
fn an_owner_that_trusts_a_leader_s_refusal_is_detected() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    for bug in [Bug::TakenIsTheirs, Bug::TakenIsMine] {
        let mut fails = |_| {
            let steps = prop::collection::vec(step(), 200).new_tree(&mut runner).unwrap().current();
            crate::canary::plant(Some(bug));
            let failed = std::panic::catch_unwind(|| run(&steps)).is_err();
            crate::canary::plant(None);
            failed
        };
        assert!((0..400).any(&mut fails), "{bug:?}");
    }
}

#[test]
fn a_log_without_room_has_not_got_a_message_unless_an_earlier_answer_was_unclear() {
    let refused = || NotAppended::Refused("why".to_owned());
    let begin = || Appending::begin(Owner::new(1).author, 1, Bytes::from_static(b"message")).0;
    assert_eq!(begin().appended(Err(NotAppended::Full)), Ask::Done(Fate::Full));
    let failed = Ask::Done(Fate::Failed("why".to_owned()));
    assert_eq!(begin().appended(Err(refused())), failed);
    for unclear in [NotAppended::Unknown, NotAppended::Taken] {
        let mut appending = begin();
        assert_eq!(appending.appended(Err(unclear)), Ask::Read);
        assert_eq!(appending.appended(Err(NotAppended::Full)), Ask::Read);
        assert_eq!(appending.appended(Err(refused())), Ask::Read);
    }
}

#[test]
fn another_message_of_the_same_process_at_this_place_is_no_other_owner() {
    for (name, is_other) in [(1, false), (2, true)] {
        let (owner, there) = (Owner::new(1), Owner::new(name));
        let (mut appending, _) = Appending::begin(owner.author, 1, Bytes::from_static(b"message"));
        let there = encode_message(&there.author, &there.group());
        let Ask::Done(fate) = appending.read(Ok(Some(there.into()))) else { panic!("not done") };
        assert_eq!(matches!(fate, Fate::Taken { .. }), is_other, "{fate:?}");
        assert_eq!(matches!(fate, Fate::Failed(_)), !is_other, "{fate:?}");
    }
}
