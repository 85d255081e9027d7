//! Buckets that move between running shards, with their lockouts.
//!
//! The current owner's node, called the giver, controls the move. It first records that it has
//! released the buckets, and stops serving them. Then it sends the state of the buckets' numbers to
//! the next owner. Once that state is durable there, the giver hands the buckets over. Between the
//! release and this handover, rows of these buckets overflow. An interrupted move continues where
//! it was interrupted, even after a restart. Invariant: a node serves a bucket only while the
//! newest map on its disk assigns the bucket to it, and only if it has all previous owners'
//! lockouts. Source: docs/spec/cluster.md, "Moving buckets".

mod announce;
mod error;
mod give;
mod newer;
mod owner_exchange;
mod owners;
mod payload;
mod take;
mod versions;

pub use self::announce::announce_to_former;
pub(crate) use self::announce::wait_for_newer;
pub use self::error::MoveError;
pub use self::give::MoveReport;
pub use self::give::{abort, give, resume};
pub use self::newer::watch as watch_versions;
pub(crate) use self::owner_exchange::ask_owners;
pub use self::owner_exchange::{Learnt, announce_owners, copy as copy_owners, learn, learn_from};
pub use self::payload::{
    Adopted, AnswerWord, HoldWord, NumberWord, OwnersCopy, Prepare, Prepared, Take, answer_word,
    hold_word, in_time_of, number_word, read_answer, read_hold, read_number,
};
pub use self::take::{abandon, adopt, adopt_here, prepare, take};
pub use crate::platform::to_its_end;
