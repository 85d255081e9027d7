//! The durability of a record at the time when its answer is sent.

use std::fmt;
use std::str::FromStr;

/// The condition that a group must meet before its answers may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On the disk: survives a power failure.
    #[default]
    Disk,
    /// Stored by the operating system: survives the end of the process, but not a crash of the
    /// machine.
    Os,
    /// Only in the process: survives nothing. For benchmarks and tests only.
    Memory,
}

/// The error for a text that is not the name of a durability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown durability {0:?}: use disk, os or memory")]
pub struct UnknownDurability(pub String);

impl FromStr for Durability {
    type Err = UnknownDurability;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "disk" => Ok(Self::Disk),
            "os" => Ok(Self::Os),
            "memory" => Ok(Self::Memory),
            other => Err(UnknownDurability(other.to_owned())),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "disk",
            Self::Os => "os",
            Self::Memory => "memory",
        })
    }
}

#[cfg(test)]
mod tests;
