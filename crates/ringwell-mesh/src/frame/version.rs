//! The versions of frames.

/// The highest version that this release writes and reads. The first byte of a frame is its
/// version.
pub const VERSION: u8 = 3;

/// The first version whose answers may contain numbers with a country code other than 1.
pub const NUMBERS_OF_THE_WORLD: u8 = 2;
