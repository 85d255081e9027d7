//! The place of each group in a log that another program may also have published to.
//!
//! A message that no version of Ringwell wrote has no number. Another shard's group has no number
//! in this log. Both are foreign messages, which are skipped. The next group is at the place after
//! the skipped message, and its number follows the previous group's number. So a foreign message
//! occupies a place, but no group is missing. Readers find the same places as the writer, because a
//! stored message never changes. Invariant: only foreign messages and copies of earlier groups are
//! skipped. Source: docs/spec/log.md, "Foreign messages".

use std::future::Future;
use std::ops::Range;

use bytes::Bytes;
use ringwell_journal::{decode_message, is_foreign_message, message_number};
use tokio::sync::mpsc;

use super::error::{NotAppended, Unreached};
use super::interface::Log;
use super::places::{Known, Places};

/// The maximum number of foreign messages that one append skips. The next attempt skips more of
/// them.
const PASSED_MAX: usize = 1_024;

/// The number of bytes of a foreign message that are logged.
const SHOWN_BYTES: usize = 48;

/// A log that is addressed by the numbers of groups. The arguments and results of its [`Log`]
/// methods are group numbers, whereas those of the inner log are places.
#[derive(Clone, Debug)]
pub struct Numbered<L> {
    log: L,
    places: Places,
    shard: u16,
}

impl<L: Log + Clone> Numbered<L> {
    /// Wraps the log of `shard`.
    pub fn new(log: L, shard: u16) -> Self {
        Self { log, places: Places::default(), shard }
    }

    /// Awaits `sending`, which appends group `n` at the group's place. If there is a foreign
    /// message at that place, the next attempt skips it. This append is still refused, because
    /// nothing may be sent again before the previous group has been read.
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
                Ok(Some(there)) if is_skipped(&there, self.shard.into(), n) => {
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
            place = places.start,
            messages = places.end - places.start,
            bytes = first.len(),
            begins = %shown,
            origin = self.log.origin(places.start).await,
            "another program has published to the journal's stream: that program's messages are \
             skipped, and nothing is lost. The servers do not record which program it was: allow \
             only Ringwell to publish to the stream"
        );
    }

    /// Reads group `n`; returns `None` if it is missing or another group is at its place.
    async fn read_at(self, n: u64) -> Result<Option<Bytes>, Unreached> {
        let begun = self.places.place(n);
        let mut place = begun;
        while let Some(there) = self.log.read(place).await? {
            if is_skipped(&there, self.shard.into(), n) {
                place += 1;
                continue;
            }
            let number = message_number(&there);
            // A later group shows that the message before it was a damaged group, not a foreign
            // message.
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

    /// Returns the range from the number of the first group to the number after the last.
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
                    "the journal's stream has messages from another program, which are skipped"
                );
            }
            *known = found;
        }
        Ok(known.group_from(ends.start)..known.group_from(ends.end))
    }

    /// Finds all foreign messages; returns `None` if all of them are already known. The log must
    /// begin with a group or contain no copies.
    async fn survey(&self, ends: &Range<u64>) -> Result<Option<Known>, Unreached> {
        let (last, trailing) = self.first_group(ends.clone().rev()).await?;
        let Some(last) = last else {
            let are_foreign = trailing > 0 && trailing == ends.end - ends.start;
            let next = (0..trailing).map(|_| ends.start).collect();
            return Ok(are_foreign.then_some(Known { before: 0, next }));
        };
        // A damaged message after the last group has a number, too.
        let end_n = last.1 + (ends.end - last.0) - trailing;
        {
            let known = self.places.known();
            if known.place(last.1) == last.0 && known.place(end_n) == ends.end {
                return Ok(None);
            }
        }
        let (first, leading) = self.first_group(ends.start..last.0).await?;
        let found = match self.groups_between(first.unwrap_or(last), last).await? {
            Some(groups) => Known::of(&groups, (leading, trailing), ends),
            None => self.survey_all(ends).await?,
        };
        Ok(Some(found))
    }

    /// Returns the place and the number of the first group in `places`, and the count of foreign
    /// messages that precede this group in `places`.
    async fn first_group(
        &self,
        places: impl Iterator<Item = u64>,
    ) -> Result<(Option<(u64, u64)>, u64), Unreached> {
        let mut foreign = 0;
        for place in places {
            match self.look(place).await? {
                Kind::Foreign => foreign += 1,
                Kind::Unreadable => {}
                Kind::Group(n) => return Ok((Some((place, n)), foreign)),
            }
        }
        Ok((None, foreign))
    }

    /// Bisects the messages between two groups. Each of the two is given by its place and number.
    /// Stops where there are no foreign messages between two groups, or no readable group. Returns
    /// `None` if a group is out of order, which means that it is a copy.
    async fn groups_between(
        &self,
        first: (u64, u64),
        last: (u64, u64),
    ) -> Result<Option<Vec<(u64, u64)>>, Unreached> {
        let mut groups = vec![first];
        let mut parts = vec![(first, last)];
        parts.retain(|(from, to)| from != to);
        while let Some((from, to)) = parts.pop() {
            let places = to.0 - from.0;
            let numbers = to.1.saturating_sub(from.1);
            if !(1..=places).contains(&numbers) {
                return Ok(None);
            }
            if numbers == places {
                groups.push(to);
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
                Some(inner) => parts.extend([(inner, to), (from, inner)]),
                None => groups.push(to),
            }
        }
        Ok(Some(groups))
    }

    /// Reads all messages. A group is a copy if its number is not higher than an earlier group's
    /// number, or if there are fewer places than numbers between it and a later group.
    async fn survey_all(&self, ends: &Range<u64>) -> Result<Known, Unreached> {
        let (mut groups, mut foreign) = (Vec::<(u64, u64)>::new(), Vec::new());
        for place in ends.clone() {
            match self.look(place).await? {
                Kind::Foreign => foreign.push(place),
                Kind::Unreadable => {}
                Kind::Group(n) => {
                    let is_copy = |(at, before): &mut (u64, u64)| n > *before + (place - *at);
                    while let Some((at, _)) = groups.pop_if(is_copy) {
                        foreign.push(at);
                    }
                    if groups.last().is_some_and(|(_, before)| *before >= n) {
                        foreign.push(place);
                    } else {
                        groups.push((place, n));
                    }
                }
            }
        }
        let count = |is_there: &dyn Fn(u64) -> bool| {
            foreign.iter().filter(|place| is_there(**place)).count() as u64
        };
        let leading = count(&|place| groups.first().is_some_and(|(first, _)| place < *first));
        let trailing = count(&|place| groups.last().is_some_and(|(last, _)| place > *last));
        Ok(Known::of(&groups, (leading, trailing), ends))
    }

    async fn look(&self, place: u64) -> Result<Kind, Unreached> {
        let Some(message) = self.log.read(place).await? else { return Ok(Kind::Unreadable) };
        Ok(match decode_message(&message) {
            _ if is_foreign_message(&message, self.shard.into()) => Kind::Foreign,
            Ok((_, group)) => Kind::Group(group.header.n),
            Err(_) => Kind::Unreadable,
        })
    }
}

/// Whether a message at or after the place of group `n` is skipped, because it is foreign or a copy
/// of an earlier group.
pub(super) fn is_skipped(message: &[u8], shard: u32, n: u64) -> bool {
    is_foreign_message(message, shard) || message_number(message).is_some_and(|number| number < n)
}

/// The kind of a message and, for a group, its number.
enum Kind {
    Group(u64),
    Foreign,
    /// Missing or damaged, so it counts as a group and has a number.
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

    /// The returned messages include foreign ones.
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
