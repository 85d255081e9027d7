//! The storage of snapshots on the simulated servers.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::random::Random;

/// One shard's snapshots, as stored on the servers.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    pub(super) parts: BTreeMap<u64, Bytes>,
    pub(super) newest_index: Option<u64>,
    pub(super) added: u64,
    /// Whether a part has ever been damaged.
    pub(super) has_rotted: bool,
}

impl Snapshots {
    pub(super) fn add(&mut self, part: Bytes, is_index: bool) -> u64 {
        self.added += 1;
        self.parts.insert(self.added, part);
        if is_index {
            self.newest_index = Some(self.added);
        }
        self.added
    }

    /// Flips one bit of a part.
    pub(super) fn rot(&mut self, random: &mut Random) {
        let at = random.index(self.parts.len().max(1));
        let part = self.parts.iter_mut().nth(at).filter(|(_, part)| !part.is_empty());
        let Some((_, part)) = part else { return };
        self.has_rotted = true;
        let mut bytes = part.to_vec();
        let place = random.index(bytes.len());
        bytes[place] ^= 1 << random.below(8);
        *part = bytes.into();
    }
}
