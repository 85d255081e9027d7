//! Reads groups from this machine's copy of the log, and older groups from the log itself.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use ringwell_journal::{Author, Group, Noted, decode_message};

use super::Unreached;
use super::interface::SnapshotStore;
use super::numbered::is_skipped;
use super::places::Places;
use crate::canary::{Bug, planted};
use crate::store::interface::{Damage, Reader};
use crate::store::read_error::ReadError;

/// Reads the groups in a log and in its copy.
#[derive(Clone, Debug)]
pub struct LogReader<R> {
    pub(super) mirror: R,
    pub(super) log: Option<Arc<dyn SnapshotStore>>,
    pub(super) places: Places,
    pub(super) author: Author,
}

impl<R: Reader> Reader for LogReader<R> {
    fn read(&self, n: u64) -> Result<Group, ReadError> {
        match (self.mirror.read(n), &self.log) {
            (Err(ReadError::NotYet(n)), _) => Err(ReadError::NotYet(n)),
            // The copy is not flushed, so a power cut may have torn a part that no startup needs to
            // read.
            (Err(_), Some(log)) => self.read_log(&**log, n),
            (read, _) => read,
        }
    }

    fn noted(&self) -> Vec<Noted> {
        self.mirror.noted()
    }

    fn is_shared(&self) -> bool {
        self.log.is_some()
    }

    fn is_followed(&self, newest: u64) -> Result<bool, ReadError> {
        let Some(log) = &self.log else { return Ok(false) };
        let next = log.message(self.places.place(newest + 1)).map_err(ReadError::Log)?;
        let Some(next) = next.filter(|next| !is_skipped(next, self.author.shard, newest + 1))
        else {
            return Ok(false);
        };
        let (author, _) = decode_message(&next).map_err(|_| ReadError::LogDamaged(newest + 1))?;
        Ok(author.incarnation != self.author.incarnation)
    }

    fn unread(&self) -> Range<u64> {
        self.mirror.unread()
    }

    fn check(&self, groups: Range<u64>) -> Result<(), Damage> {
        self.mirror.check(groups)
    }
}

impl<R> LogReader<R> {
    fn read_log(&self, log: &dyn SnapshotStore, n: u64) -> Result<Group, ReadError> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests report failures by panicking")]

    use std::sync::Mutex;

    use ringwell_core::Millis;
    use ringwell_journal::{Record, Tip, Writer, encode_message};

    use super::*;

    /// A copy that lacks some groups that it should have.
    #[derive(Clone, Debug)]
    struct Torn;

    impl Reader for Torn {
        fn read(&self, n: u64) -> Result<Group, ReadError> {
            Err(if n < 5 { ReadError::Gone(n) } else { ReadError::NotYet(n) })
        }

        fn noted(&self) -> Vec<Noted> {
            Vec::new()
        }

        fn unread(&self) -> Range<u64> {
            1..3
        }

        fn check(&self, groups: Range<u64>) -> Result<(), Damage> {
            Err(Damage { error: ReadError::Gone(groups.start), next_n: groups.end })
        }
    }

    /// The servers of a log. The first server has one message at every place, and all other servers
    /// have another one.
    #[derive(Debug)]
    struct Servers(Option<Bytes>, Option<Bytes>, Mutex<u32>);

    impl SnapshotStore for Servers {
        fn add(&self, _: Bytes) -> Result<u64, Unreached> {
            Err(Unreached("it is not written".to_owned()))
        }

        fn add_index(&self, bytes: Bytes) -> Result<u64, Unreached> {
            self.add(bytes)
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
            Ok(self.0.clone())
        }

        fn message_elsewhere(&self, _: u64) -> Result<Option<Bytes>, Unreached> {
            *self.2.lock().unwrap() += 1;
            Ok(self.1.clone())
        }

        fn log_bytes(&self) -> Result<u64, Unreached> {
            Ok(0)
        }
    }

    const AUTHOR: Author = Author { shard: 2, journal: [3; 16], incarnation: [4; 16] };

    fn message(author: Author, n: u64) -> Bytes {
        let mut writer = Writer::new(Tip { next_n: n, ..Tip::FIRST });
        writer.append(&Record::Tick { at: Millis(7) });
        encode_message(&author, &writer.seal(Vec::new()).unwrap()).into()
    }

    #[test]
    fn a_group_is_read_from_the_first_server_that_has_it_and_never_from_another_journal() {
        let right = Some(message(AUTHOR, 3));
        let other_shard = Some(message(Author { shard: 1, ..AUTHOR }, 3));
        let other_journal = Some(message(Author { journal: [9; 16], ..AUTHOR }, 3));
        let successor = Some(message(Author { incarnation: [8; 16], ..AUTHOR }, 3));
        let wrong = [other_shard, other_journal, Some(message(AUTHOR, 2)), Some(Bytes::new())];
        let read = |first: &Option<Bytes>, others: &Option<Bytes>| {
            let servers = Arc::new(Servers(first.clone(), others.clone(), Mutex::default()));
            let log: Arc<dyn SnapshotStore> = Arc::clone(&servers) as _;
            let places = Places::default();
            let reader = LogReader { mirror: Torn, log: Some(log), places, author: AUTHOR };
            let read = reader.read(3);
            (read.map(|group| group.header.n), *servers.2.lock().unwrap())
        };
        assert!(matches!(read(&right, &None), (Ok(3), 0)));
        assert!(matches!(read(&successor, &None), (Ok(3), 0)));
        assert!(matches!(read(&None, &right), (Ok(3), 1)));
        assert!(matches!(read(&None, &None), (Err(ReadError::Gone(3)), 1)));
        for wrong in &wrong {
            assert!(matches!(read(wrong, &right), (Ok(3), 1)));
            assert!(matches!(read(wrong, &None), (Err(ReadError::LogDamaged(3)), 1)));
            assert!(matches!(read(&None, wrong), (Err(ReadError::LogDamaged(3)), 1)));
        }
    }

    #[test]
    fn a_group_of_another_process_shows_that_this_one_was_replaced() {
        let is_followed = |next: Option<Bytes>| {
            let log = Arc::new(Servers(next, None, Mutex::default())) as Arc<dyn SnapshotStore>;
            let places = Places::default();
            LogReader { mirror: Torn, log: Some(log), places, author: AUTHOR }.is_followed(2)
        };
        let successor = Author { incarnation: [8; 16], ..AUTHOR };
        assert!(matches!(is_followed(None), Ok(false)));
        assert!(matches!(is_followed(Some(message(AUTHOR, 3))), Ok(false)), "its own next group");
        assert!(matches!(is_followed(Some(message(successor, 3))), Ok(true)));
        assert!(matches!(is_followed(Some(Bytes::from_static(b"hello"))), Ok(false)), "foreign");
    }

    #[test]
    fn the_copy_decides_what_is_stored_and_checked() {
        let servers = Arc::new(Servers(Some(message(AUTHOR, 5)), None, Mutex::default()));
        for log in [None, Some(servers as Arc<dyn SnapshotStore>)] {
            let reader = LogReader { mirror: Torn, log, places: Places::default(), author: AUTHOR };
            assert!(matches!(reader.read(5), Err(ReadError::NotYet(5))));
            assert!(matches!(reader.check(1..3), Err(Damage { next_n: 3, .. })));
            assert_eq!(reader.unread(), 1..3);
        }
    }
}
