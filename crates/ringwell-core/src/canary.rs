//! Planted bugs. The simulator must find each of these bugs, which shows that it can find real
//! ones.
//!
//! This module is compiled only with `--cfg canary`. Source: docs/spec/simulation.md, "Planted
//! bugs".

use core::sync::atomic::{AtomicU8, Ordering};

use crate::Millis;

/// Treats a number as free one millisecond before its lockout ends.
pub const LOCK_COMPARE: u8 = 1;
/// Hands out the last of a pool's free numbers instead of the first.
pub const NOT_FIFO: u8 = 2;
/// Lets another shard's report of an undone allocation replace this shard's own allocation.
pub const UNDONE_REPLACES: u8 = 3;
/// Accepts another shard's answer to a row although the answer's number is in rotation in this
/// shard.
pub const ROTATION_IGNORED: u8 = 4;
/// Gives a repeated row its earlier number again although the row's visitor has another number.
pub const TWO_OF_A_POOL: u8 = 5;
/// Treats an allocation as the newest one although a hold has made that uncertain.
pub const DOUBTS_IGNORED: u8 = 6;
/// Treats the allocation before an undone one as certain although a hold has made it uncertain.
pub const UNDONE_ENDS_DOUBT: u8 = 7;
/// Undoes an allocation although its number has left the shard and come back since.
pub const LEFT_UNDONE: u8 = 8;

static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants bug `which` in this process, or no bug if `which` is zero.
pub fn plant(which: u8) {
    PLANTED.store(which, Ordering::SeqCst);
}

/// Whether bug `which` is planted.
#[must_use]
pub fn is_planted(which: u8) -> bool {
    PLANTED.load(Ordering::SeqCst) == which
}

pub(crate) fn now(now: Millis) -> Millis {
    if is_planted(LOCK_COMPARE) { now + Millis(1) } else { now }
}

/// The place of the number to hand out, if the last free number is at `last`.
pub(crate) fn place(place: u32, last: Option<usize>) -> u32 {
    let last = last.and_then(|last| u32::try_from(last).ok());
    last.filter(|_| is_planted(NOT_FIFO)).unwrap_or(place)
}
