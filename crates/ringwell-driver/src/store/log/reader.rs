//! Reads groups from the copy on this machine, and older ones from the log.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use ringwell_journal::{Author, Group, Noted, decode_message};

use super::Unreached;
use super::places::Places;
use super::shelf::Shelf;
use crate::canary::{Bug, planted};
use crate::store::index::ReadError;
use crate::store::interface::{Damage, Reader};

/// Reads the groups of a log and of its copy.
#[derive(Clone, Debug)]
pub struct LogReader<R> {
    pub(super) mirror: R,
    pub(super) log: Option<Arc<dyn Shelf>>,
    pub(super) places: Places,
    pub(super) author: Author,
}

impl<R: Reader> Reader for LogReader<R> {
    fn read(&self, n: u64) -> Result<Group, ReadError> {
        match (self.mirror.read(n), &self.log) {
            (Err(ReadError::NotYet(n)), _) => Err(ReadError::NotYet(n)),
            // The copy is not flushed: a power cut may have torn a part that no start has to read.
            (Err(_), Some(log)) => self.read_log(&**log, n),
            (read, _) => read,
        }
    }

    fn noted(&self) -> Vec<Noted> {
        self.mirror.noted()
    }

    fn unread(&self) -> Range<u64> {
        self.mirror.unread()
    }

    fn check(&self, groups: Range<u64>) -> Result<(), Damage> {
        self.mirror.check(groups)
    }
}

impl<R> LogReader<R> {
    fn read_log(&self, log: &dyn Shelf, n: u64) -> Result<Group, ReadError> {
        let place = self.places.place(n);
        let lost = match self.group(n, log.message(place)) {
            Err(lost @ (ReadError::Gone(_) | ReadError::LogDamaged(_)))
                if !planted(Bug::OneServerAsked) =>
            {
                lost
            }
            read => return read,
        };
        match log.message_elsewhere(place) {
            Ok(None) => Err(lost),
            found => self.group(n, found),
        }
    }

    fn group(&self, n: u64, read: Result<Option<Bytes>, Unreached>) -> Result<Group, ReadError> {
        let message = read.map_err(ReadError::Log)?.ok_or(ReadError::Gone(n))?;
        match decode_message(&message) {
            Ok((Author { shard, journal, .. }, group))
                if (shard, journal) == (self.author.shard, self.author.journal)
                    && group.header.n == n =>
            {
                Ok(group)
            }
            Ok(_) | Err(_) => Err(ReadError::LogDamaged(n)),
        }
    }
}
