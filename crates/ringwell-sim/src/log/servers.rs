//! The servers of the log. They store messages, and their answers may be late, wrong or missing.
//!
//! Owns each shard's messages, as stored by a majority of the servers, and the views of leaders
//! without a majority. Invariant: an acknowledged message is kept unless a fault loses it. Checks
//! that stored messages form a chain of groups. Source: docs/spec/log.md, "Appending".

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ringwell_driver::store::{FoundLog, LogNotes, NotAppended, Unreached};
use ringwell_journal::{Tip, continues, decode_message};

use super::fault::{LogFault, Loss, Strikes};
use super::snapshots::Snapshots;
use crate::model::Violation;
use crate::pace::{MS, SECOND};
use crate::random::Random;

/// The name that identifies a process in the log.
pub(super) type Incarnation = [u8; 16];

/// A stored message.
#[derive(Clone, Debug)]
struct Stored {
    bytes: Bytes,
    author: Incarnation,
    /// The tip of the chain after this message.
    tip: Tip,
    /// Whether another program wrote the message. In this case, `author` and `tip` are those of the
    /// preceding message.
    is_foreign: bool,
}

impl Stored {
    /// Returns the number of the message's group.
    fn group(&self) -> u64 {
        self.tip.next_n - 1
    }
}

/// A leader that was replaced, but that some machines still use.
#[derive(Debug)]
struct Stale {
    machines: BTreeSet<usize>,
    until: u64,
    /// The place of the first message in the former leader's log. That log has not changed since
    /// the leader was replaced.
    first: u64,
    messages: Vec<Stored>,
    proposals: u64,
}

impl Stale {
    fn end(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    fn message(&self, n: u64) -> Option<Bytes> {
        let at = usize::try_from(n.checked_sub(self.first)?).ok()?;
        self.messages.get(at).map(|stored| stored.bytes.clone())
    }
}

/// One shard's log.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The notes stored when the stream was created; `None` if the log does not exist.
    notes: Option<LogNotes>,
    /// The place of the first message that is kept.
    first: u64,
    messages: Vec<Stored>,
    /// The messages that a leader without a quorum has accepted.
    proposals: Vec<Bytes>,
    no_quorum_until: u64,
    are_proposals_stored: bool,
    stale: Option<Stale>,
    /// For each message that the leader has lost or damaged: the number of leader changes until a
    /// leader has it intact, and the current leader's version.
    bad: BTreeMap<u64, (u32, Option<Bytes>)>,
    /// The delayed requests, by the time when they arrive.
    late: BTreeMap<(u64, u64), (u64, Bytes)>,
    /// The authors of every group that was ever stored, including the groups that were lost.
    authors: BTreeMap<u64, Vec<Incarnation>>,
    /// The groups that were acknowledged and lost, with their authors.
    lost: BTreeSet<(u64, Incarnation)>,
    requests: u64,
    take_overs: u64,
    was_deleted: bool,
    #[cfg(canary)]
    ids: BTreeMap<String, u64>,
}

/// The reply to an append.
pub(super) enum AppendReply {
    Done(Result<(), NotAppended>),
    Silence,
}

/// The servers' reaction to a request for many messages. The result is only a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consumers {
    /// The servers refuse the request, as they do if the client has no permission for it.
    Refused,
    /// The leader delivers the messages.
    Leader,
    /// Another server delivers the messages, including those that the leader lacks.
    Elsewhere,
}

/// All servers.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) streams: Vec<Stream>,
    pub(super) snapshots: Vec<Snapshots>,
    pub(super) strikes: Strikes,
    random: Random,
    consumers: Consumers,
    ahead: Random,
    slow_until: u64,
    broken: Option<Violation>,
}

/// A handle to the servers.
pub(super) type Shared = Arc<Mutex<Servers>>;

pub(super) fn lock(servers: &Shared) -> MutexGuard<'_, Servers> {
    servers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    fn new() -> Self {
        Self { first: 1, ..Self::default() }
    }

    /// Returns the places of the messages that are kept.
    pub(super) fn ends(&self) -> Range<u64> {
        self.first..self.end()
    }

    /// Returns the place after the last message.
    pub(super) fn end(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    pub(super) fn check_exists(&self) -> Result<(), Unreached> {
        let missing = || Unreached("there is no such stream".to_owned());
        self.notes.as_ref().map(drop).ok_or_else(missing)
    }

    /// Returns the number of the next group.
    pub(super) fn groups_end(&self) -> u64 {
        self.messages.last().map_or(1, |last| last.tip.next_n)
    }

    fn get(&self, n: u64) -> Option<&Stored> {
        self.messages.get(usize::try_from(n.checked_sub(self.first)?).ok()?)
    }

    /// Whether the servers have ever stored group `n` from the author `author`.
    pub(super) fn has_stored(&self, n: u64, author: &Incarnation) -> bool {
        self.authors.get(&n).is_some_and(|authors| authors.contains(author))
    }

    /// Whether anything that was acknowledged has ever been lost.
    pub(super) fn has_ever_lost(&self) -> bool {
        !self.lost.is_empty() || self.was_deleted
    }

    /// Returns the number of take-overs of the shard, including those whose messages were lost.
    pub(super) fn take_overs(&self) -> u64 {
        self.take_overs
    }

    /// Returns the author of the newest message, and its epoch.
    pub(super) fn owner(&self) -> Option<(Incarnation, u64)> {
        self.messages.last().map(|last| (last.author, last.tip.epoch))
    }

    pub(super) fn message(&self, n: u64) -> Option<Bytes> {
        self.get(n).map(|stored| stored.bytes.clone())
    }

    /// Returns message `n` as the leader has it.
    pub(super) fn leaders_message(&self, n: u64) -> Option<Bytes> {
        self.bad.get(&n).map_or_else(|| self.message(n), |(_, has)| has.clone())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.messages.iter().map(|stored| stored.bytes.len() as u64).sum()
    }

    /// Whether group `n` of the author `author` was acknowledged and lost.
    pub(super) fn has_lost(&self, n: u64, author: &Incarnation) -> bool {
        self.lost.contains(&(n, *author))
    }

    /// Deletes the log, including all its messages.
    fn delete(&mut self) {
        let all = self.authors.iter().flat_map(|(n, authors)| authors.iter().map(|it| (*n, *it)));
        self.lost.extend(all);
        let deleted = std::mem::replace(self, Self::new());
        (self.authors, self.lost, self.was_deleted) = (deleted.authors, deleted.lost, true);
        (self.requests, self.take_overs) = (deleted.requests, deleted.take_overs);
        #[cfg(canary)]
        {
            self.ids = deleted.ids;
        }
    }

    /// Appends a message to the log. If the message breaks a rule, returns an error.
    fn store(&mut self, bytes: Bytes) -> Result<(), String> {
        let n = self.end();
        let (author, group) = decode_message(&bytes).map_err(|fault| format!("{n}: {fault}"))?;
        let judged = self.judge(n, &author.incarnation, &group);
        let tip = Tip::after(&group.header);
        let author = author.incarnation;
        self.take_overs += u64::from(self.owner().is_none_or(|(before, _)| before != author));
        self.authors.entry(group.header.n).or_default().push(author);
        self.messages.push(Stored { bytes, author, tip, is_foreign: false });
        judged
    }

    /// Appends another program's message, unless the log is empty: a copy of the message `copied`
    /// places before the last one, or `bytes` if there is none. These may be another shard's group.
    fn store_foreign(&mut self, copied: Option<usize>, bytes: Bytes) {
        let Some(&Stored { author, tip, .. }) = self.messages.last() else { return };
        let copied = copied.and_then(|back| self.messages.iter().nth_back(back));
        let bytes = copied.map_or(bytes, |copied| copied.bytes.clone());
        self.messages.push(Stored { bytes, author, tip, is_foreign: true });
    }

    /// Whether group `n` directly follows a message from another program.
    pub(super) fn follows_foreign(&self, n: u64) -> bool {
        self.messages.windows(2).any(|two| two[0].is_foreign && two[1].group() == n)
    }

    fn judge(
        &self,
        n: u64,
        author: &Incarnation,
        group: &ringwell_journal::Group,
    ) -> Result<(), String> {
        let Some(last) = self.messages.last() else { return Ok(()) };
        continues(&last.tip, &group.header).map_err(|fault| format!("message {n}: {fault}"))?;
        let (before, epoch) = (last.tip.epoch, group.header.epoch);
        if (last.author == *author) == (before == epoch) {
            return Ok(());
        }
        Err(format!("message {n}: epoch {epoch} after {before}, but each owner has its own epoch"))
    }

    /// Resolves the proposals, the stale leader and the delayed requests that are due by `now`.
    fn settle(&mut self, now: u64) -> Result<(), String> {
        if self.no_quorum_until <= now {
            let proposals = std::mem::take(&mut self.proposals);
            let stored = proposals.into_iter().filter(|_| self.are_proposals_stored);
            for bytes in stored.collect::<Vec<_>>() {
                self.store(bytes)?;
            }
        }
        self.stale.take_if(|stale| stale.until <= now);
        while let Some(entry) = self.late.first_entry().filter(|entry| entry.key().0 <= now) {
            let (n, bytes) = entry.remove();
            if n == self.end() && self.no_quorum_until <= now {
                self.store(bytes)?;
            }
        }
        Ok(())
    }

    /// Loses up to `count` of the newest messages.
    fn lose(&mut self, count: u64) -> Option<Range<u64>> {
        let end = self.end();
        let count = count.min(self.messages.len() as u64 / 2);
        if count == 0 {
            return None;
        }
        let kept = self.messages.len() - usize::try_from(count).unwrap_or(0);
        let lost = self.messages.drain(kept..).filter(|stored| !stored.is_foreign);
        self.lost.extend(lost.map(|stored| (stored.group(), stored.author)));
        self.proposals.clear();
        self.bad.clear();
        self.late.clear();
        self.stale = None;
        Some(end - count..end)
    }
}

impl Servers {
    pub(super) fn new(seed: u64, shards: usize, strikes: Strikes) -> Self {
        let mut ahead = Random::new(seed, 1_006);
        let all = [Consumers::Refused, Consumers::Leader, Consumers::Elsewhere];
        let consumers = all[ahead.index(all.len())];
        Self {
            consumers,
            ahead,
            streams: (0..shards).map(|_| Stream::new()).collect(),
            snapshots: (0..shards).map(|_| Snapshots::default()).collect(),
            strikes,
            random: Random::new(seed, 1_002),
            slow_until: 0,
            broken: None,
        }
    }

    pub(super) fn take_broken(&mut self) -> Option<Violation> {
        self.broken.take()
    }

    fn settle(&mut self, shard: usize, now: u64) {
        if let Err(text) = self.streams[shard].settle(now) {
            self.object(shard, text);
        }
    }

    fn object(&mut self, shard: usize, text: String) {
        let shard = u16::try_from(shard).unwrap_or(u16::MAX);
        self.broken.get_or_insert(Violation { rule: "broken chain", text, number: 0, shard });
    }

    pub(super) fn latency(&mut self, now: u64) -> u64 {
        if self.slow_until > now {
            return self.random.between(20 * MS, 900 * MS);
        }
        self.random.between(200, 4 * MS)
    }

    pub(super) fn append(
        &mut self,
        of: (usize, usize),
        n: u64,
        message: Bytes,
        now: u64,
    ) -> AppendReply {
        let (shard, machine) = of;
        self.settle(shard, now);
        let stream = &mut self.streams[shard];
        if stream.notes.is_none() {
            return AppendReply::Done(Err(NotAppended::Unknown));
        }
        stream.requests += 1;
        if let Some(stale) = stream.stale.as_mut().filter(|it| it.machines.contains(&machine)) {
            if n == stale.end() + stale.proposals {
                stale.proposals += 1;
                return AppendReply::Silence;
            }
            return AppendReply::Done(Err(NotAppended::Taken));
        }
        if stream.no_quorum_until > now {
            if n == stream.end() + stream.proposals.len() as u64 {
                stream.proposals.push(message);
                return AppendReply::Silence;
            }
            return AppendReply::Done(Err(NotAppended::Taken));
        }
        if self.strikes.strikes(LogFault::Full) {
            return AppendReply::Done(Err(NotAppended::Full));
        }
        let stream = &mut self.streams[shard];
        if self.strikes.strikes(LogFault::Late) {
            let after = self.strikes.stream(LogFault::Late).between(10 * MS, 12 * SECOND);
            stream.late.insert((now + after, stream.requests), (n, message));
            return AppendReply::Silence;
        }
        if n != stream.end() {
            return AppendReply::Done(Err(NotAppended::Taken));
        }
        if let Err(text) = stream.store(message) {
            self.object(shard, text);
        }
        if self.strikes.strikes(LogFault::AckLost) {
            return AppendReply::Silence;
        }
        AppendReply::Done(Ok(()))
    }

    /// Appends a message. Like the real server, checks the message's id before its place.
    #[cfg(canary)]
    pub(super) fn append_named(
        &mut self,
        of: (usize, usize),
        id: String,
        n: u64,
        message: Bytes,
        now: u64,
    ) -> AppendReply {
        if self.streams[of.0].ids.contains_key(&id) {
            return AppendReply::Done(Ok(()));
        }
        let answer = self.append(of, n, message, now);
        if matches!(answer, AppendReply::Done(Ok(()))) {
            self.streams[of.0].ids.insert(id, n);
        }
        answer
    }

    pub(super) fn read(
        &mut self,
        (shard, machine): (usize, usize),
        n: u64,
        now: u64,
    ) -> Result<Option<Bytes>, Unreached> {
        self.settle(shard, now);
        let is_away = self.streams[shard].no_quorum_until > now && self.random.chance(300_000);
        let stream = &self.streams[shard];
        if let Some(stale) = stream.stale.as_ref().filter(|it| it.machines.contains(&machine)) {
            return Ok(stale.message(n));
        }
        if is_away {
            return Err(Unreached("no leader".to_owned()));
        }
        Ok(stream.leaders_message(n))
    }

    /// Reads a message through a consumer, which may fail at any message.
    pub(super) fn read_ahead(
        &mut self,
        of: (usize, usize),
        n: u64,
        now: u64,
    ) -> Result<Option<Bytes>, Unreached> {
        let leaders = self.read(of, n, now)?;
        match self.consumers {
            _ if self.ahead.chance(5_000) => Err(Unreached("it has ended".to_owned())),
            Consumers::Refused => Err(Unreached("it is refused".to_owned())),
            Consumers::Leader => Ok(leaders),
            Consumers::Elsewhere => Ok(self.streams[of.0].message(n)),
        }
    }

    pub(super) fn ends(&mut self, (shard, machine): (usize, usize), now: u64) -> Range<u64> {
        self.settle(shard, now);
        let stream = &self.streams[shard];
        let stale = stream.stale.as_ref().filter(|it| it.machines.contains(&machine));
        stale.map_or(stream.first..stream.end(), |stale| stale.first..stale.end())
    }

    /// Returns the state of a log before a process uses it.
    pub(super) fn find(&self, shard: usize) -> FoundLog {
        let stream = &self.streams[shard];
        let found = |notes: &LogNotes| FoundLog::Found { notes: notes.clone(), end: stream.end() };
        stream.notes.as_ref().map_or(FoundLog::Missing, found)
    }

    /// Creates a log if it does not exist, and returns its notes.
    pub(super) fn create(&mut self, shard: usize, notes: LogNotes) -> LogNotes {
        self.streams[shard].notes.get_or_insert(notes).clone()
    }

    pub(super) fn trim(
        &mut self,
        (shard, _): (usize, usize),
        before: u64,
        now: u64,
    ) -> Result<(), Unreached> {
        self.settle(shard, now);
        let stream = &mut self.streams[shard];
        stream.check_exists()?;
        if stream.no_quorum_until > now {
            return Err(Unreached("no quorum".to_owned()));
        }
        let before = before.min(stream.end());
        let drop = usize::try_from(before.saturating_sub(stream.first)).unwrap_or(0);
        stream.messages.drain(..drop);
        stream.first = stream.first.max(before);
        Ok(())
    }

    pub(super) fn change_leader(&mut self, shard: usize) {
        let stream = &mut self.streams[shard];
        stream.bad.values_mut().for_each(|(changes, _)| *changes -= 1);
        stream.bad.retain(|_, (changes, _)| *changes > 0);
    }

    /// Injects one second of server faults. Returns lines for the run's story, and the shards that
    /// have lost messages, each with the kind of loss.
    pub(super) fn inject(&mut self, now: u64, machines: usize) -> (Vec<String>, Vec<(u16, Loss)>) {
        let (mut lines, mut losses) = (Vec::new(), Vec::new());
        if self.strikes.strikes(LogFault::Slow) {
            self.slow_until = now + self.strikes.stream(LogFault::Slow).between(SECOND, 8 * SECOND);
            lines.push("the servers are slow".to_owned());
        }
        if self.streams.iter().any(|it| it.end() > 1) && self.strikes.strikes(LogFault::LostStreams)
        {
            for shard in 0..self.streams.len() {
                self.delete(shard);
                losses.extend(u16::try_from(shard).map(|shard| (shard, Loss::Streams)));
            }
            lines.push("all logs and their snapshots are deleted".to_owned());
            return (lines, losses);
        }
        for shard in 0..self.streams.len() {
            self.settle(shard, now);
            let loss = self.inject_into(shard, now, machines, &mut lines);
            if loss != Loss::Nothing {
                losses.extend(u16::try_from(shard).map(|shard| (shard, loss)));
            }
        }
        (lines, losses)
    }

    fn inject_into(
        &mut self,
        shard: usize,
        now: u64,
        machines: usize,
        lines: &mut Vec<String>,
    ) -> Loss {
        let mut loss = Loss::Nothing;
        let stream = &mut self.streams[shard];
        if stream.no_quorum_until <= now && self.strikes.strikes(LogFault::NoQuorum) {
            let random = self.strikes.stream(LogFault::NoQuorum);
            stream.no_quorum_until = now + random.between(300 * MS, 20 * SECOND);
            stream.are_proposals_stored = random.chance(500_000);
            lines.push(format!("the log of shard {shard} has no quorum"));
        }
        if stream.stale.is_none() && self.strikes.strikes(LogFault::StaleLeader) {
            let random = self.strikes.stream(LogFault::StaleLeader);
            let until = now + random.between(SECOND, 20 * SECOND);
            let of = (0..machines).filter(|_| random.chance(500_000)).collect();
            lines.push(format!("a former leader of shard {shard} answers machines {of:?}"));
            let (first, messages) = (stream.first, stream.messages.clone());
            stream.stale = Some(Stale { machines: of, until, first, messages, proposals: 0 });
        }
        if stream.messages.len() > 4
            && stream.bad.is_empty()
            && self.strikes.strikes(LogFault::Hole)
        {
            let random = self.strikes.stream(LogFault::Hole);
            let back = random.between(2, stream.messages.len().min(200) as u64 - 1);
            let (n, changes) = (stream.end() - back, u32::from(random.chance(500_000)) + 1);
            let has = random.chance(500_000).then(|| damaged(stream.message(n)));
            stream.bad.insert(n, (changes, has));
            lines.push(format!("the leader of shard {shard} lacks message {n}"));
        }
        if self.strikes.strikes(LogFault::LostTail) {
            let count = self.strikes.stream(LogFault::LostTail).between(1, 30);
            if let Some(lost) = stream.lose(count) {
                lines.push(format!("the log of shard {shard} loses messages {lost:?}"));
                loss = Loss::Tail;
            }
        }
        let is_beside = (0..self.streams.len()).any(|it| it != shard && self.streams[it].end() > 1);
        if is_beside
            && self.streams[shard].notes.is_some()
            && self.strikes.strikes(LogFault::LostStream)
        {
            self.delete(shard);
            lines.push(format!("the log of shard {shard} and its snapshots are deleted"));
            return Loss::Stream;
        }
        let mut others = self.streams.iter().enumerate().filter(|(it, _)| *it != shard);
        let of_other = others.find_map(|(_, it)| Some(it.messages.last()?.bytes.clone()));
        let stream = &mut self.streams[shard];
        // If a log has lost messages, a delayed message could happen to fit at its new end.
        let is_whole = stream.no_quorum_until <= now && !stream.has_ever_lost();
        if is_whole && self.strikes.strikes(LogFault::Foreign) {
            let random = self.strikes.stream(LogFault::Foreign);
            for _ in 0..random.between(1, 3) {
                let length = usize::try_from(random.below(200)).unwrap_or(0);
                let copied = (length % 2 == 1).then_some(length / 8);
                let of_other = of_other.clone().filter(|_| length % 4 == 0);
                stream.store_foreign(copied, of_other.unwrap_or(vec![b'x'; length].into()));
            }
            lines.push(format!("another program publishes to the log of shard {shard}"));
        }
        if self.strikes.strikes(LogFault::Rot) {
            self.snapshots[shard].rot(self.strikes.stream(LogFault::Rot));
        }
        loss
    }

    fn delete(&mut self, shard: usize) {
        self.streams[shard].delete();
        self.snapshots[shard] = Snapshots::default();
    }

    /// Stops all faults.
    pub(super) fn calm(&mut self, now: u64) {
        self.strikes.are_over = true;
        self.slow_until = 0;
        for stream in &mut self.streams {
            stream.no_quorum_until = stream.no_quorum_until.min(now + 1);
            if let Some(stale) = &mut stream.stale {
                stale.until = stale.until.min(now + 1);
            }
        }
    }
}

/// Returns the message with one bit changed.
fn damaged(message: Option<Bytes>) -> Bytes {
    let mut bytes = message.unwrap_or_default().to_vec();
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    bytes.into()
}
