//! The owner of each bucket, and the count of the bucket's moves.
//!
//! Every node has its own copy of this data, and copies may differ for a while. If two copies
//! contain different entries for a bucket, the entry with the greater count is right. Only the
//! present owner starts the next move, so each count belongs to exactly one owner. Independent of
//! the links between nodes. Source: docs/spec/cluster.md, "Moving buckets".

use serde::{Deserialize, Serialize};

use crate::Placement;
use crate::placement::{BUCKETS, SHARDS_MAX};

/// The maximum count of moves that another node may report; a greater count is invalid, because it
/// would leave too little room for further moves.
const MOVES_MAX: u64 = 1 << 48;

/// A bucket's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The count of the bucket's moves under the present version of the map.
    pub moves: u64,
    /// The shard.
    pub shard: u16,
}

/// The owners of all buckets. Initially, these are the owners in the placement of the cluster file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Plain", into = "Plain")]
pub struct Owners {
    version: u64,
    of: Box<[Owner]>,
    shards: u16,
}

/// The owners in their stored and transmitted form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    version: u64,
    shards: u16,
    /// Each bucket's count of moves, and its shard.
    buckets: Vec<(u64, u16)>,
}

impl From<Owners> for Plain {
    fn from(owners: Owners) -> Self {
        let Owners { version, of, shards } = owners;
        Self { version, shards, buckets: of.iter().map(|o| (o.moves, o.shard)).collect() }
    }
}

impl TryFrom<Plain> for Owners {
    type Error = &'static str;

    fn try_from(plain: Plain) -> Result<Self, Self::Error> {
        let Plain { version, shards, buckets } = plain;
        if buckets.len() != usize::from(BUCKETS) {
            return Err("there must be 1,024 buckets");
        }
        if shards > SHARDS_MAX {
            return Err("there are more than 256 shards");
        }
        if buckets.iter().any(|(moves, _)| *moves > MOVES_MAX) {
            return Err("a bucket's count of moves is too large");
        }
        if buckets.iter().any(|(_, shard)| *shard >= shards) {
            return Err("a bucket is owned by a shard that does not exist");
        }
        let of = buckets.into_iter().map(|(moves, shard)| Owner { moves, shard }).collect();
        Ok(Self { version, of, shards })
    }
}

impl Owners {
    /// The owners according to a cluster file of this version, before any move.
    #[must_use]
    pub fn at_first(version: u64, placement: &Placement) -> Self {
        let of = |bucket| Owner { moves: 0, shard: placement.of_bucket(bucket) };
        Self { version, of: (0..BUCKETS).map(of).collect(), shards: placement.shards() }
    }

    /// The version of the cluster file whose placement was in effect before the first move.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The count of shards.
    #[must_use]
    pub const fn shards(&self) -> u16 {
        self.shards
    }

    /// The bucket's owner; `None` if there is no such bucket.
    #[must_use]
    pub fn get(&self, bucket: u16) -> Option<Owner> {
        self.of.get(usize::from(bucket)).copied()
    }

    /// The total number of moves, summed over all buckets.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.of.iter().map(|owner| owner.moves).sum()
    }

    /// The owners without the move counts.
    #[must_use]
    pub fn placement(&self) -> Placement {
        let mut owners = [0; BUCKETS as usize];
        for (place, owner) in owners.iter_mut().zip(&self.of) {
            *place = owner.shard;
        }
        // Each owner is an existing shard: this is checked whenever owners are read or received.
        Placement::from_owners(&owners, self.shards).unwrap_or_else(|| unreachable!("bad owners"))
    }

    /// Records a move of the bucket to `shard`. Only the node of the present owner may call this.
    /// Does nothing if there is no such bucket or shard.
    pub fn give(&mut self, bucket: u16, shard: u16) {
        if let Some(owner) = self.of.get_mut(usize::from(bucket)).filter(|_| shard < self.shards) {
            *owner = Owner { moves: owner.moves + 1, shard };
        }
    }

    /// Merges newer entries from another copy, except for those that move a bucket to a shard of
    /// this node (one for which `is_own` is true). This node gets a bucket only together with the
    /// bucket's lockouts. Returns whether any entry was merged.
    pub fn learn(&mut self, other: &Self, is_own: impl Fn(u16) -> bool) -> bool {
        let mut has_learnt = false;
        if (other.version, other.shards) != (self.version, self.shards) {
            return false;
        }
        for (known, received) in self.of.iter_mut().zip(&other.of) {
            // The present owner has the greatest count of moves, unless its data was restored from
            // a backup.
            let is_same = received.shard == known.shard;
            if received.moves > known.moves && (is_same || !is_own(received.shard)) {
                *known = *received;
                has_learnt = true;
            }
        }
        has_learnt
    }

    /// Gives up the buckets of this node that, according to `newer`, belong to other nodes. `newer`
    /// is a copy from a newer version of the map. `stays` returns whether a shard of this node also
    /// belongs to this node in that version. Returns whether there were any such buckets.
    pub fn give_way(
        &mut self,
        newer: &Self,
        is_own: impl Fn(u16) -> bool,
        stays: impl Fn(u16) -> bool,
    ) -> bool {
        let Some(any) = (0..self.shards).find(|shard| !is_own(*shard)) else { return false };
        let mut has_given = false;
        for (known, received) in self.of.iter_mut().zip(&newer.of) {
            let is_known = received.shard < self.shards;
            let is_own_there = is_known && is_own(received.shard);
            if is_own(known.shard) && !(is_own_there && stays(received.shard)) {
                let is_named = is_known && !is_own_there;
                let shard = if is_named { received.shard } else { any };
                *known = Owner { moves: known.moves + 1, shard };
                has_given = true;
            }
        }
        has_given
    }

    /// A copy in which the buckets of the lost shards belong to one of the other shards. If there is
    /// no other shard, they belong to a shard that does not exist.
    #[must_use]
    pub fn without(mut self, is_lost: impl Fn(u16) -> bool) -> Self {
        let other = (0..u16::MAX).find(|shard| !is_lost(*shard)).unwrap_or_default();
        for owner in self.of.iter_mut().filter(|owner| is_lost(owner.shard)) {
            owner.shard = other;
            self.shards = self.shards.max(other + 1);
        }
        self
    }

    /// The buckets that belonged to this node in `before` and now belong to other nodes.
    #[must_use]
    pub fn lost_since(&self, before: &Self, is_own: impl Fn(u16) -> bool) -> Vec<u16> {
        let both = before.of.iter().zip(&self.of);
        let is_lost = |(before, now): (&Owner, &Owner)| is_own(before.shard) && !is_own(now.shard);
        (0..).zip(both).filter(|(_, owner)| is_lost(*owner)).map(|(bucket, _)| bucket).collect()
    }

    /// This node's buckets that have, according to another node, moved away and back since
    /// `before`.
    #[must_use]
    pub fn returned_since(&self, before: &Self, is_own: impl Fn(u16) -> bool) -> Vec<u16> {
        let both = before.of.iter().zip(&self.of);
        let is_back = |(before, now): (&Owner, &Owner)| {
            now.moves > before.moves && is_own(before.shard) && is_own(now.shard)
        };
        (0..).zip(both).filter(|(_, owner)| is_back(*owner)).map(|(bucket, _)| bucket).collect()
    }

    /// The buckets that moved to this node according to `other` but not according to this copy. For
    /// these buckets, this copy is older than the move.
    #[must_use]
    pub fn claimed_by(&self, other: &Self, is_own: impl Fn(u16) -> bool) -> Vec<u16> {
        let is_comparable = (other.version, other.shards) == (self.version, self.shards);
        let both = self.of.iter().zip(&other.of).filter(|_| is_comparable);
        let is_claimed = |(known, received): &(&Owner, &Owner)| {
            received.moves > known.moves && is_own(received.shard) && !is_own(known.shard)
        };
        (0..).zip(both).filter(|(_, owner)| is_claimed(owner)).map(|(bucket, _)| bucket).collect()
    }

    /// Records that a bucket arrived together with its lockouts. Returns `false` if this move or a
    /// later one has already been recorded.
    pub fn take(&mut self, bucket: u16, owner: Owner) -> bool {
        let is_right = owner.shard < self.shards && owner.moves <= MOVES_MAX;
        let known = self.of.get_mut(usize::from(bucket)).filter(|_| is_right);
        let Some(known) = known.filter(|known| known.moves < owner.moves) else { return false };
        *known = owner;
        true
    }
}

#[cfg(test)]
mod tests;
