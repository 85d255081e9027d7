//! Random numbers that are derived from a seed.
//!
//! There is one stream for each purpose. Disabling a fault or omitting a batch therefore does not
//! change what is drawn from the other streams.

/// Sebastiano Vigna's splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates the stream of `seed` for `purpose`.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut mixed = Self(seed ^ purpose.wrapping_mul(0xd134_2543_de82_ef95));
        mixed.next();
        mixed
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number from 0 up to but not including `end`, or 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }

    /// Returns a number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns an index below `len`, or 0 if `len` is 0.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// Returns `true` with the given probability, in parts per million.
    pub(crate) fn chance(&mut self, millionths: u64) -> bool {
        self.below(1_000_000) < millionths
    }
}

/// The output function of splitmix64, in which each output bit depends on all input bits.
pub(crate) fn mix(value: u64) -> u64 {
    let mut mixed = value;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
