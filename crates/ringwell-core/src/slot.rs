//! One promo number of a shard and its allocation.

use crate::{Millis, Position, PromoNumber};

/// A promo number in rotation: its newest allocation and until when it is locked out.
///
/// Thirty-two bytes, so that two fill a cache line and none spans two: a batch accesses one slot a
/// row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(32))]
pub struct Slot {
    /// The number itself.
    pub number: PromoNumber,
    /// The time when the newest allocation was made; zero if never.
    pub allocated_at: Millis,
    /// The time from which the number may go to another visitor.
    pub locked_until: Millis,
    /// The position of the newest record about the number.
    pub position: Position,
}

impl Slot {
    /// A number that was never handed out.
    #[must_use]
    pub const fn new(number: PromoNumber) -> Self {
        Self {
            number,
            allocated_at: Millis::ZERO,
            locked_until: Millis::ZERO,
            position: Position::NONE,
        }
    }

    /// A vacant slot, without a pool.
    pub(crate) const VACANT: Self = Self::new(PromoNumber::NOBODY);

    /// Whether there is any state of the number.
    pub(crate) fn has_history(&self) -> bool {
        *self != Self::new(self.number)
    }

    /// Whether another visitor may get the number at `now`.
    #[must_use]
    pub fn is_free(&self, now: Millis) -> bool {
        #[cfg(canary)]
        let now = crate::canary::now(now);
        self.locked_until <= now
    }

    /// The order of a pool's numbers: the number that has been free longest comes first; among
    /// equals, the number allocated first. Together with the place in the pool, this is a total
    /// order.
    pub(crate) fn turn(&self) -> (Millis, Position) {
        (self.locked_until, self.position)
    }
}
