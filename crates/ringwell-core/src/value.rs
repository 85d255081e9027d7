//! Small values used throughout the program.

use core::fmt;
use core::ops::{Add, Sub};

/// Milliseconds: a duration, or a shard time, which is counted from 1970-01-01 UTC.
///
/// Shard time never goes backwards, even across restarts. Source: docs/spec/allocation.md, "Time".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// Zero: no time at all, or the start of 1970.
    pub const ZERO: Self = Self(0);

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Millis {
    type Output = Self;

    /// Saturates at the maximum, so a lockout that would end after the maximum never ends.
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl Sub for Millis {
    type Output = Self;

    /// Saturates at zero.
    fn sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Identifies a ring pool in the published API: the number in `ring_pools/<id>/allocate_number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u64);

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The position of a record in its shard's journal. Later records have greater positions.
///
/// The journal defines the meaning of the bits; the allocation rules only compare positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// The position before every record, for a number that was never allocated.
    pub const NONE: Self = Self(0);
}

/// Identifies a visitor who asks to keep a number: a digest of the name that the client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VisitorId(pub [u8; 16]);

#[cfg(test)]
mod tests;
