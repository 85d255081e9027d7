//! One promo number of a shard, with its newest allocation.

use crate::{Millis, Position, PromoNumber};

/// A promo number in rotation, with its newest allocation and the end of its lockout.
///
/// Takes up 32 bytes, so that two slots fill a cache line and no slot spans two lines: a batch
/// reads one slot per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(32))]
pub struct Slot {
    /// The number itself.
    pub number: PromoNumber,
    /// The time of the newest allocation; zero if there has been none.
    pub allocated_at: Millis,
    /// The end of the lockout. From this time on, the number may go to another visitor.
    pub locked_until: Millis,
    /// The position of the newest record about the number.
    pub position: Position,
}

impl Slot {
    /// Returns a number that was never handed out.
    #[must_use]
    pub const fn new(number: PromoNumber) -> Self {
        Self {
            number,
            allocated_at: Millis::ZERO,
            locked_until: Millis::ZERO,
            position: Position::NONE,
        }
    }

    /// A vacant slot, which belongs to no pool.
    pub(crate) const VACANT: Self = Self::new(PromoNumber::NOBODY);

    /// Whether the number has any history.
    pub(crate) fn has_history(&self) -> bool {
        *self != Self::new(self.number)
    }

    /// Whether another visitor may get the number at `now`.
    #[must_use]
    pub fn is_free(&self, now: Millis) -> bool {
        is_over(self.locked_until, now)
    }

    /// The order in which a pool's numbers are chosen: the number that has been free longest comes
    /// first. Among numbers that became free at the same time, the one whose newest record is
    /// oldest comes first. Together with the number's place in the pool, this key defines a total
    /// order.
    pub(crate) fn turn(&self) -> (Millis, Position) {
        (self.locked_until, self.position)
    }
}

/// Whether a lockout or hold that ends at `until` is over at `now`. This rule applies to all
/// lockouts and holds.
#[inline]
pub(crate) fn is_over(until: Millis, now: Millis) -> bool {
    #[cfg(canary)]
    let now = crate::canary::now(now);
    until <= now
}
