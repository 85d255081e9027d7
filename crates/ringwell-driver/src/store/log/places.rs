//! The place of each group in a log to which another program may have published.
//!
//! A message that no version of Ringwell wrote has no number. It is skipped: the next group has the
//! place after it, and its number continues that of the group before. So a foreign message uses up
//! a place, but no group is missing. A reader finds the same places as the writer, because a
//! message that is stored never changes. Invariant: only messages without the mark of any version
//! are skipped. Source: docs/spec/log.md, "Foreign messages".

use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ringwell_journal::{decode_message, is_foreign_message, message_number};
use tokio::sync::mpsc;

use super::{Log, NotAppended, Unreached};
use crate::canary::{Bug, planted};

/// One append passes at most this many foreign messages; the next attempt passes further ones.
const PASSED_MAX: usize = 1_024;

/// The number of bytes of a foreign message that the log line shows.
const SHOWN_BYTES: usize = 48;

/// The places of groups, shared by all that read or write one log.
#[derive(Clone, Debug, Default)]
pub struct Places(Arc<Mutex<Known>>);

/// The foreign messages that are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    /// The count of those before the first message that the log still has.
    before: u64,
    /// For each later one, the number of the group that follows it, in order.
    next: Vec<u64>,
}

impl Known {
    fn place(&self, n: u64) -> u64 {
        n + self.before + self.next.partition_point(|next| *next <= n) as u64
    }

    /// The first group whose place is not before `place`.
    fn group_from(&self, place: u64) -> u64 {
        let most = place.saturating_sub(self.before);
        let (mut low, mut high) = (most.saturating_sub(self.next.len() as u64), most);
        while low < high {
            let middle = low.midpoint(high);
            if self.place(middle) < place {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Group `n` was found this many places further on. While groups cannot be read, a survey
    /// knows the count of foreign messages, but may assign them to a later group than the next one.
    fn found_later(&mut self, n: u64, places: u64) {
        for _ in 0..places {
            let at = self.next.partition_point(|next| *next <= n);
            match self.next.get_mut(at).filter(|_| !planted(Bug::ForeignCountedTwice)) {
                Some(next) => *next = n,
                None => self.next.insert(at, n),
            }
        }
    }
}

impl Places {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of group `n`, as far as foreign messages are known.
    #[must_use]
    pub fn place(&self, n: u64) -> u64 {
        self.known().place(n)
    }

    /// The count of foreign messages directly before group `n`.
    #[must_use]
    pub fn foreign_before(&self, n: u64) -> u64 {
        self.known().next.iter().rev().filter(|next| **next == n).count() as u64
    }
}

/// A log by the numbers of groups: [`Log`]'s arguments and results are numbers, and those of the log
/// within are places.
#[derive(Clone, Debug)]
pub struct Numbered<L> {
    log: L,
    places: Places,
    shard: u16,
}

impl<L: Log + Clone> Numbered<L> {
    /// The log of `shard`.
    pub fn new(log: L, shard: u16) -> Self {
        Self { log, places: Places::default(), shard }
    }

    /// Sends group `n` to its place. If a foreign message is there, it is skipped, and the append
    /// is still refused: nothing may be sent again before the previous group has been read.
    async fn append_at(
        self,
        n: u64,
        sending: impl Future<Output = Result<(), NotAppended>>,
    ) -> Result<(), NotAppended> {
        let appended = sending.await;
        if appended != Err(NotAppended::Taken) {
            return appended;
        }
        let begun = self.places.place(n);
        let mut first = None;
        for place in (begun..).take(PASSED_MAX) {
            match self.log.read(place).await {
                Ok(Some(there)) if is_foreign_message(&there) => {
                    self.places.known().found_later(n, 1);
                    first.get_or_insert(there);
                }
                _ => break,
            }
        }
        if let Some(first) = first {
            self.report(begun..self.places.place(n), &first).await;
        }
        appended
    }

    async fn report(&self, places: Range<u64>, first: &[u8]) {
        let shown = first[..first.len().min(SHOWN_BYTES)].escape_ascii();
        tracing::error!(
            shard = self.shard,
            message = places.start,
            messages = places.end - places.start,
            bytes = first.len(),
            begins = %shown,
            origin = self.log.origin(places.start).await,
            "another program has published to the journal's stream: its messages are skipped, and \
             nothing is lost. Allow only Ringwell to publish there: the servers do not record who \
             did"
        );
    }

    /// Group `n`; `None` if it is missing, or its place has another group.
    async fn read_at(self, n: u64) -> Result<Option<Bytes>, Unreached> {
        let begun = self.places.place(n);
        let mut place = begun;
        while let Some(there) = self.log.read(place).await? {
            let number = message_number(&there);
            if is_foreign_message(&there) || number.is_some_and(|number| number < n) {
                place += 1;
                continue;
            }
            // A later group shows that the message before it was a damaged group.
            if place > begun && number.is_some_and(|number| number > n) {
                return Ok(None);
            }
            let mut known = self.places.known();
            if number == Some(n) && known.place(n) == begun {
                known.found_later(n, place - begun);
            }
            return Ok(Some(there));
        }
        Ok(None)
    }

    /// The numbers of the first group, and of the one after the last.
    async fn range(self) -> Result<Range<u64>, Unreached> {
        let ends = self.log.ends().await?;
        let found = self.survey(&ends).await?;
        let mut known = self.places.known();
        if let Some(found) = found {
            if found != *known && found != Known::default() {
                let (shard, messages) = (self.shard, found.before + found.next.len() as u64);
                tracing::warn!(
                    shard,
                    messages,
                    "the journal's stream has messages of another program, which are skipped"
                );
            }
            *known = found;
        }
        Ok(known.group_from(ends.start)..known.group_from(ends.end))
    }

    /// Finds all foreign messages; `None` if all are already known.
    async fn survey(&self, ends: &Range<u64>) -> Result<Option<Known>, Unreached> {
        let mut trailing = 0;
        let mut last = None;
        for place in ends.clone().rev() {
            match self.look(place).await? {
                Kind::Foreign => trailing += 1,
                Kind::Unreadable => {}
                Kind::Group(n) => {
                    last = Some((place, n));
                    break;
                }
            }
        }
        let Some((last, last_n)) = last else {
            let are_foreign = trailing > 0 && trailing == ends.end - ends.start;
            let next = (0..trailing).map(|_| ends.start).collect();
            return Ok(are_foreign.then_some(Known { before: 0, next }));
        };
        // A damaged message after it has a number, too.
        let end_n = last_n + (ends.end - last) - trailing;
        {
            let known = self.places.known();
            if known.place(last_n) == last && known.place(end_n) == ends.end {
                return Ok(None);
            }
        }
        let mut found = Known { before: 0, next: (0..trailing).map(|_| end_n).collect() };
        if last == last_n {
            return Ok(Some(found));
        }
        let mut first = (last, last_n);
        let mut leading = 0;
        for place in ends.start..last {
            match self.look(place).await? {
                Kind::Foreign => leading += 1,
                Kind::Unreadable => {}
                Kind::Group(n) => {
                    first = (place, n);
                    break;
                }
            }
        }
        found.before = first.0.saturating_sub(first.1).saturating_sub(leading);
        found.next.extend((0..leading).map(|_| first.1));
        self.survey_between(first, (last, last_n), &mut found.next).await?;
        found.next.sort_unstable();
        Ok(Some(found))
    }

    /// Finds those between two groups, each with its place.
    async fn survey_between(
        &self,
        first: (u64, u64),
        last: (u64, u64),
        next: &mut Vec<u64>,
    ) -> Result<(), Unreached> {
        let mut parts = vec![(first, last)];
        while let Some((from, to)) = parts.pop() {
            let (places, groups) = (to.0 - from.0, to.1.saturating_sub(from.1));
            if places <= groups.max(1) {
                continue;
            }
            let middle = from.0.midpoint(to.0);
            let mut inner = None;
            for place in (middle..to.0).chain((from.0 + 1..middle).rev()) {
                if let Kind::Group(n) = self.look(place).await? {
                    inner = Some((place, n));
                    break;
                }
            }
            match inner {
                Some(inner) => parts.extend([(from, inner), (inner, to)]),
                // No number shows where between the groups they are: the next group directly
                // continues the one before.
                None => next.extend((groups..places).map(|_| to.1)),
            }
        }
        Ok(())
    }

    async fn look(&self, place: u64) -> Result<Kind, Unreached> {
        let Some(message) = self.log.read(place).await? else { return Ok(Kind::Unreadable) };
        Ok(match decode_message(&message) {
            Ok((_, group)) => Kind::Group(group.header.n),
            Err(_) if is_foreign_message(&message) => Kind::Foreign,
            Err(_) => Kind::Unreadable,
        })
    }
}

/// A message, by its number.
enum Kind {
    Group(u64),
    Foreign,
    /// Missing or damaged: it has a number.
    Unreadable,
}

impl<L: Log + Clone> Log for Numbered<L> {
    fn append(
        &self,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        let sending = self.log.append(self.places.place(n), message);
        self.clone().append_at(n, sending)
    }

    #[cfg(canary)]
    fn append_named(
        &self,
        id: String,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        let sending = self.log.append_named(id, self.places.place(n), message);
        self.clone().append_at(n, sending)
    }

    fn read(&self, n: u64) -> impl Future<Output = Result<Option<Bytes>, Unreached>> + 'static {
        self.clone().read_at(n)
    }

    /// Foreign messages are among them.
    fn read_ahead(&self, groups: Range<u64>) -> mpsc::Receiver<Bytes> {
        self.log.read_ahead(self.places.place(groups.start)..self.places.place(groups.end))
    }

    fn ends(&self) -> impl Future<Output = Result<Range<u64>, Unreached>> + 'static {
        self.clone().range()
    }

    fn trim(&self, before: u64) -> impl Future<Output = Result<(), Unreached>> + 'static {
        self.log.trim(self.places.place(before))
    }

    fn change_leader(&self) -> impl Future<Output = Result<(), Unreached>> + 'static {
        self.log.change_leader()
    }

    fn places(&self) -> Places {
        self.places.clone()
    }
}

#[cfg(test)]
mod tests;
