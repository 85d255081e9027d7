//! A store of one of two kinds.
//!
//! The code that runs a shard is generic over its store. With one type for all kinds of store, this
//! code is compiled only once.

use std::ops::Range;
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_journal::{Clocks, Group, Noted};

use super::files::FileError;
use super::interface::{Appended, Damage, Draft, Part, Reader, Store};
use super::read_error::ReadError;
use super::stats::Stats;

/// A store, a reader or a draft of one of two kinds.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the two type parameters explain the variants")]
pub enum Either<A, B> {
    Left(A),
    Right(B),
}

/// Evaluates `$with` for the value in either variant.
macro_rules! both {
    ($either:expr, $it:ident => $with:expr) => {
        match $either {
            Either::Left($it) => $with,
            Either::Right($it) => $with,
        }
    };
}

impl<A: Store, B: Store> Store for Either<A, B> {
    type Reader = Either<A::Reader, B::Reader>;
    type Draft = Either<A::Draft, B::Draft>;

    async fn append(&self, group: Group) -> Appended {
        both!(self, store => store.append(group).await)
    }

    fn wait_max(&self) -> Option<Duration> {
        both!(self, store => store.wait_max())
    }

    fn reader(&self) -> Self::Reader {
        match self {
            Self::Left(store) => Either::Left(store.reader()),
            Self::Right(store) => Either::Right(store.reader()),
        }
    }

    fn expired(&self, now: Millis, clocks: Clocks) -> Option<Part> {
        both!(self, store => store.expired(now, clocks))
    }

    fn waits_for_snapshot(&self) -> bool {
        both!(self, store => store.waits_for_snapshot())
    }

    async fn drop_part(&self, part: Part) -> Result<(), FileError> {
        both!(self, store => store.drop_part(part).await)
    }

    fn take_oldest(&self) -> Option<Group> {
        both!(self, store => store.take_oldest())
    }

    fn keep_more(&self, bytes: u64) {
        both!(self, store => store.keep_more(bytes));
    }

    fn draft(&self, replay_from: u64) -> Result<Self::Draft, FileError> {
        match self {
            Self::Left(store) => store.draft(replay_from).map(Either::Left),
            Self::Right(store) => store.draft(replay_from).map(Either::Right),
        }
    }

    fn identity(&self) -> [u8; 16] {
        both!(self, store => store.identity())
    }

    fn stats(&self) -> Stats {
        both!(self, store => store.stats())
    }

    fn close(self) -> Result<(), String> {
        both!(self, store => store.close())
    }
}

impl<A: Reader, B: Reader> Reader for Either<A, B> {
    fn read(&self, n: u64) -> Result<Group, ReadError> {
        both!(self, reader => reader.read(n))
    }

    fn noted(&self) -> Vec<Noted> {
        both!(self, reader => reader.noted())
    }

    fn is_shared(&self) -> bool {
        both!(self, reader => reader.is_shared())
    }

    fn is_followed(&self, newest: u64) -> Result<bool, ReadError> {
        both!(self, reader => reader.is_followed(newest))
    }

    fn unread(&self) -> Range<u64> {
        both!(self, reader => reader.unread())
    }

    fn check(&self, groups: Range<u64>) -> Result<(), Damage> {
        both!(self, reader => reader.check(groups))
    }
}

impl<A: Draft, B: Draft> Draft for Either<A, B> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        both!(self, draft => draft.write(bytes))
    }

    fn publish(self, through: u64) -> Result<(), FileError> {
        both!(self, draft => draft.publish(through))
    }

    fn stored(&self) -> u64 {
        both!(self, draft => draft.stored())
    }
}
