//! Planted bugs. The simulator must find each of these bugs, which shows that it can find real
//! ones.
//!
//! This module is compiled only with `--cfg canary`. Source: docs/spec/simulation.md, "Planted
//! bugs".

use core::sync::atomic::{AtomicU8, Ordering};

use crate::Millis;

/// A mistake that a developer could make in the crates without I/O.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the enum of the same name in ringwell-driver describes each")]
pub enum Bug {
    LockCompare = 1,
    NotFifo,
    UndoneReplaces,
    RotationIgnored,
    TwoOfAPool,
    DoubtsIgnored,
    UndoneEndsDoubt,
    LeftUndone,
}

static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants `bug` in this process; it replaces the previous one.
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |bug| bug as u8), Ordering::SeqCst);
}

impl Bug {
    /// Whether this bug is planted.
    #[must_use]
    pub fn is_planted(self) -> bool {
        PLANTED.load(Ordering::SeqCst) == self as u8
    }
}

pub(crate) fn now(now: Millis) -> Millis {
    if Bug::LockCompare.is_planted() { now + Millis(1) } else { now }
}

/// The place of the number to hand out, if the last free number is at `last`.
pub(crate) fn place(place: u32, last: Option<usize>) -> u32 {
    let last = last.and_then(|last| u32::try_from(last).ok());
    last.filter(|_| Bug::NotFifo.is_planted()).unwrap_or(place)
}
