//! The servers of the log: the messages that they store, and their answers, which may be late,
//! wrong or missing.
//!
//! Owns each shard's messages as stored by a majority, and the views of leaders without a majority.
//! Invariant: an acknowledged message is kept, unless a fault loses it. Judges each message that is
//! stored: it must continue the chain. Source: docs/spec/log.md, "Appending".

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ringwell_driver::store::{Log, NotAppended, Unreached};
use ringwell_journal::{Tip, continues, decode_message};

use super::fault::{LogFault, Strikes};
use super::machine::Watched;
use super::shelf::Snapshots;
use crate::model::Violation;
use crate::random::Random;
use crate::world::{MS, SECOND};

/// A request without an answer is abandoned after this.
const APPEND_MAX_US: u64 = 2 * SECOND;
const ANSWER_MAX_US: u64 = 3 * SECOND;

/// The name of a process for the log.
pub(super) type Incarnation = [u8; 16];

/// A message that is stored.
#[derive(Clone, Debug)]
struct Stored {
    bytes: Bytes,
    author: Incarnation,
    /// Of the chain, after it.
    tip: Tip,
    /// Another program wrote it: the author and the tip are those of the message before.
    is_foreign: bool,
}

impl Stored {
    /// The number of its group.
    fn group(&self) -> u64 {
        self.tip.next_n - 1
    }
}

/// A leader that some machines still use, though it has been replaced.
#[derive(Debug)]
struct Stale {
    machines: BTreeSet<usize>,
    until: u64,
    /// Its log at the time when it was replaced, which begins with this message.
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
    /// The place of the first message that is kept.
    first: u64,
    messages: Vec<Stored>,
    /// Messages that a leader without a quorum has taken.
    proposals: Vec<Bytes>,
    no_quorum_until: u64,
    are_proposals_stored: bool,
    stale: Option<Stale>,
    /// The message that the leader has in place of another, and the changes of leader until one has it.
    bad: BTreeMap<u64, (u32, Option<Bytes>)>,
    /// Requests in transit, by their time of arrival.
    late: BTreeMap<(u64, u64), (u64, Bytes)>,
    /// The writer of each group that was ever stored, also of those that were lost.
    authors: BTreeMap<u64, Vec<Incarnation>>,
    /// Groups that were acknowledged and lost, with their writers.
    lost: BTreeSet<(u64, Incarnation)>,
    requests: u64,
    #[cfg(canary)]
    ids: BTreeMap<String, u64>,
}

/// The answer to an append.
enum AppendReply {
    Done(Result<(), NotAppended>),
    Silence,
}

/// All servers.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) streams: Vec<Stream>,
    pub(super) snapshots: Vec<Snapshots>,
    pub(super) strikes: Strikes,
    random: Random,
    slow_until: u64,
    broken: Option<Violation>,
}

/// A handle on them.
pub(super) type Shared = Arc<Mutex<Servers>>;

pub(super) fn lock(servers: &Shared) -> MutexGuard<'_, Servers> {
    servers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    fn new() -> Self {
        Self { first: 1, ..Self::default() }
    }

    /// The messages that are kept.
    pub(super) fn ends(&self) -> Range<u64> {
        self.first..self.end()
    }

    /// The place after the last message.
    pub(super) fn end(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    fn get(&self, n: u64) -> Option<&Stored> {
        self.messages.get(usize::try_from(n.checked_sub(self.first)?).ok()?)
    }

    /// Whether `author` wrote group `n`, as far as the servers ever stored it.
    pub(super) fn has_stored(&self, n: u64, author: &Incarnation) -> bool {
        self.authors.get(&n).is_some_and(|authors| authors.contains(author))
    }

    /// Whether anything was lost that was acknowledged.
    pub(super) fn has_ever_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The newest writer, and its epoch.
    pub(super) fn owner(&self) -> Option<(Incarnation, u64)> {
        self.messages.last().map(|last| (last.author, last.tip.epoch))
    }

    pub(super) fn message(&self, n: u64) -> Option<Bytes> {
        self.get(n).map(|stored| stored.bytes.clone())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.messages.iter().map(|stored| stored.bytes.len() as u64).sum()
    }

    /// Whether group `n` of `author` was acknowledged and lost.
    pub(super) fn has_lost(&self, n: u64, author: &Incarnation) -> bool {
        self.lost.contains(&(n, *author))
    }

    /// Stores a message at the end; returns the rule that it breaks.
    fn store(&mut self, bytes: Bytes) -> Result<(), String> {
        let n = self.end();
        let (author, group) = decode_message(&bytes).map_err(|fault| format!("{n}: {fault}"))?;
        let judged = self.judge(n, &author.incarnation, &group);
        let tip = Tip::after(&group.header);
        let author = author.incarnation;
        self.authors.entry(group.header.n).or_default().push(author);
        self.messages.push(Stored { bytes, author, tip, is_foreign: false });
        judged
    }

    /// Stores a message of another program, if the log is not empty.
    fn store_foreign(&mut self, bytes: Bytes) {
        let Some(&Stored { author, tip, .. }) = self.messages.last() else { return };
        self.messages.push(Stored { bytes, author, tip, is_foreign: true });
    }

    /// Whether group `n` directly follows a message of another program.
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
        Err(format!("message {n} has epoch {epoch} after {before}, and each owner has one epoch"))
    }

    /// Processes everything that has happened until now.
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

    /// The newest messages are lost, at most `count` of them.
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
        Self {
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

    fn latency(&mut self, now: u64) -> u64 {
        if self.slow_until > now {
            return self.random.between(20 * MS, 900 * MS);
        }
        self.random.between(200, 4 * MS)
    }

    fn append(&mut self, of: (usize, usize), n: u64, message: Bytes, now: u64) -> AppendReply {
        let (shard, machine) = of;
        self.settle(shard, now);
        let stream = &mut self.streams[shard];
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

    /// Like the server, which looks for a message's id before it checks the place.
    #[cfg(canary)]
    fn append_named(
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

    fn read(
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
        if let Some((_, has)) = stream.bad.get(&n) {
            return Ok(has.clone());
        }
        Ok(stream.message(n))
    }

    fn ends(&mut self, (shard, machine): (usize, usize), now: u64) -> Range<u64> {
        self.settle(shard, now);
        let stream = &self.streams[shard];
        let stale = stream.stale.as_ref().filter(|it| it.machines.contains(&machine));
        stale.map_or(stream.first..stream.end(), |stale| stale.first..stale.end())
    }

    fn trim(&mut self, (shard, _): (usize, usize), before: u64, now: u64) -> Result<(), Unreached> {
        self.settle(shard, now);
        let stream = &mut self.streams[shard];
        if stream.no_quorum_until > now {
            return Err(Unreached("no quorum".to_owned()));
        }
        let before = before.min(stream.end());
        let drop = usize::try_from(before.saturating_sub(stream.first)).unwrap_or(0);
        stream.messages.drain(..drop);
        stream.first = stream.first.max(before);
        Ok(())
    }

    fn change_leader(&mut self, (shard, _): (usize, usize)) {
        let stream = &mut self.streams[shard];
        stream.bad.values_mut().for_each(|(changes, _)| *changes -= 1);
        stream.bad.retain(|_, (changes, _)| *changes > 0);
    }

    /// Runs each second: faults of the servers. Returns lines for the report, and the shards that
    /// have lost messages.
    pub(super) fn inject(&mut self, now: u64, machines: usize) -> (Vec<String>, Vec<u16>) {
        let (mut lines, mut lost) = (Vec::new(), Vec::new());
        if self.strikes.strikes(LogFault::Slow) {
            self.slow_until = now + self.strikes.stream(LogFault::Slow).between(SECOND, 8 * SECOND);
            lines.push("the servers are slow".to_owned());
        }
        for shard in 0..self.streams.len() {
            self.settle(shard, now);
            if self.inject_into(shard, now, machines, &mut lines) {
                lost.extend(u16::try_from(shard));
            }
        }
        (lines, lost)
    }

    /// Returns whether messages were lost.
    fn inject_into(
        &mut self,
        shard: usize,
        now: u64,
        machines: usize,
        lines: &mut Vec<String>,
    ) -> bool {
        let mut has_lost = false;
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
                lines.push(format!("the log of shard {shard} loses {lost:?}"));
                has_lost = true;
            }
        }
        let stream = &mut self.streams[shard];
        // Not in the places of lost groups: a delayed message would find its place there by accident.
        let is_whole = stream.no_quorum_until <= now && !stream.has_ever_lost();
        if is_whole && self.strikes.strikes(LogFault::Foreign) {
            let random = self.strikes.stream(LogFault::Foreign);
            for _ in 0..random.between(1, 3) {
                let length = usize::try_from(random.below(200)).unwrap_or(0);
                stream.store_foreign(vec![b'x'; length].into());
            }
            lines.push(format!("another program publishes to the log of shard {shard}"));
        }
        if self.strikes.strikes(LogFault::Rot) {
            self.snapshots[shard].rot(self.strikes.stream(LogFault::Rot));
        }
        has_lost
    }

    /// The last fault has been.
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

/// The message with a bit of its body changed.
fn damaged(message: Option<Bytes>) -> Bytes {
    let mut bytes = message.unwrap_or_default().to_vec();
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    bytes.into()
}

/// One shard's log as one machine reaches it.
#[derive(Clone, Debug)]
pub(super) struct SimLog {
    pub(super) platform: Watched,
    pub(super) servers: Shared,
    pub(super) shard: usize,
}

impl SimLog {
    fn of(&self) -> (usize, usize) {
        (self.shard, self.platform.machine())
    }

    /// Completes when the request has arrived there.
    fn way(&self) -> impl Future<Output = ()> + 'static {
        let takes = lock(&self.servers).latency(self.platform.now_us());
        self.platform.after_us(takes)
    }

    fn appended(
        &self,
        send: impl FnOnce(&mut Servers, u64) -> AppendReply + 'static,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        let log = self.clone();
        async move {
            log.way().await;
            let answer = send(&mut lock(&log.servers), log.platform.now_us());
            match answer {
                AppendReply::Done(answered) => {
                    log.way().await;
                    answered
                }
                AppendReply::Silence => {
                    log.platform.after_us(APPEND_MAX_US).await;
                    Err(NotAppended::Unknown)
                }
            }
        }
    }
}

impl Log for SimLog {
    fn append(
        &self,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        let of = self.of();
        self.appended(move |servers, now| servers.append(of, n, message, now))
    }

    #[cfg(canary)]
    fn append_named(
        &self,
        id: String,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        let of = self.of();
        self.appended(move |servers, now| servers.append_named(of, id, n, message, now))
    }

    fn read(&self, n: u64) -> impl Future<Output = Result<Option<Bytes>, Unreached>> + 'static {
        let log = self.clone();
        async move {
            log.way().await;
            let read = lock(&log.servers).read(log.of(), n, log.platform.now_us());
            if read.is_err() {
                log.platform.after_us(ANSWER_MAX_US).await;
            }
            log.way().await;
            read
        }
    }

    fn ends(&self) -> impl Future<Output = Result<Range<u64>, Unreached>> + 'static {
        let log = self.clone();
        async move {
            log.way().await;
            let ends = lock(&log.servers).ends(log.of(), log.platform.now_us());
            log.way().await;
            Ok(ends)
        }
    }

    fn trim(&self, before: u64) -> impl Future<Output = Result<(), Unreached>> + 'static {
        let log = self.clone();
        async move {
            log.way().await;
            lock(&log.servers).trim(log.of(), before, log.platform.now_us())
        }
    }

    fn change_leader(&self) -> impl Future<Output = Result<(), Unreached>> + 'static {
        let log = self.clone();
        async move {
            log.way().await;
            lock(&log.servers).change_leader(log.of());
            Ok(())
        }
    }
}
