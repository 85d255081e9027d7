//! Planted bugs that the simulator must find; this shows that it can.
//!
//! This module exists only if the build has `--cfg canary`. Source: docs/spec/simulation.md,
//! "Planted bugs".

use core::sync::atomic::{AtomicU8, Ordering};

use crate::Millis;
use crate::slot::Slot;

/// Treats a number as free one millisecond before its lockout ends.
pub const LOCK_COMPARE: u8 = 1;
/// Hands out the last of a pool's free numbers instead of the first.
pub const NOT_FIFO: u8 = 2;

static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants one of the bugs in this process; zero plants none.
pub fn plant(which: u8) {
    PLANTED.store(which, Ordering::SeqCst);
}

fn is_planted(which: u8) -> bool {
    PLANTED.load(Ordering::SeqCst) == which
}

pub(crate) fn now(now: Millis) -> Millis {
    if is_planted(LOCK_COMPARE) { now + Millis(1) } else { now }
}

pub(crate) fn place(place: u32, slots: &[Slot], now: Millis) -> u32 {
    let last = slots.iter().rposition(|slot| slot.is_free(now));
    let last = last.and_then(|last| u32::try_from(last).ok());
    last.filter(|_| is_planted(NOT_FIFO)).unwrap_or(place)
}
