//! The clocks of a machine, as they stood beside shard time when a group was sealed.
//!
//! Shard time never falls and is never stepped, so it says little about the calendar. Each group
//! carries the time since the machine was booted, which runs evenly, and the wall clock, which an
//! operator or a time server may set at any moment. Source: docs/spec/journal.md, "Clocks".

use ringwell_core::Millis;

use crate::segment::SegmentHeader;

/// Bytes that the clocks take in a frame and in the head of a segment.
pub(crate) const CLOCKS_BYTES: usize = 24;

/// The relation of shard time, the time since boot and the wall clock to each other, in
/// milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// Identifies the boot of the machine; never zero. Times since boot can be compared only if
    /// they are of the same boot.
    pub boot: u64,
    /// Shard time less the time since boot.
    pub shard_offset: i64,
    /// The wall clock less the time since boot.
    pub wall_offset: i64,
}

impl Clocks {
    /// The time since boot at the shard time `at`.
    #[must_use]
    pub fn since_boot(&self, at: Millis) -> Millis {
        shifted(at, self.shard_offset.saturating_neg())
    }

    /// Shard time at this time since boot.
    #[must_use]
    pub fn shard(&self, since_boot: Millis) -> Millis {
        shifted(since_boot, self.shard_offset)
    }

    /// The wall clock less shard time.
    #[must_use]
    pub fn wall_less_shard(&self) -> i64 {
        self.wall_offset.saturating_sub(self.shard_offset)
    }

    /// The wall clock at the shard time `at`.
    #[must_use]
    pub fn wall(&self, at: Millis) -> Millis {
        shifted(at, self.wall_less_shard())
    }

    pub(crate) fn encode(&self) -> [u8; CLOCKS_BYTES] {
        let mut out = [0; CLOCKS_BYTES];
        out[..8].copy_from_slice(&self.boot.to_le_bytes());
        out[8..16].copy_from_slice(&self.shard_offset.to_le_bytes());
        out[16..].copy_from_slice(&self.wall_offset.to_le_bytes());
        out
    }

    /// Reads them back; `None` if they are of no boot, which stands for none.
    pub(crate) fn decode(bytes: [u8; CLOCKS_BYTES]) -> Option<Self> {
        let [boot, shard, wall] = [0, 8, 16].map(|at| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(field)
        });
        let (shard_offset, wall_offset) = (shard.cast_signed(), wall.cast_signed());
        (boot != 0).then_some(Self { boot, shard_offset, wall_offset })
    }
}

/// `at`, moved by this many milliseconds.
#[must_use]
pub fn shifted(at: Millis, by: i64) -> Millis {
    Millis(at.0.saturating_add_signed(by))
}

/// The wall clock's lead over shard time when a group with the clocks `then` was sealed, by present
/// knowledge: a wall clock that was corrected since counts as it was last set, for all events since
/// the machine was booted. `now` are the current clocks; `heads` are those of the journal's
/// segments, newest first: the first one of each boot carries the last one of the boot before. A
/// group of format 1 has no clocks: then shard time is taken for the wall clock.
pub fn wall_less_shard<'a>(
    then: Option<Clocks>,
    now: Option<Clocks>,
    heads: impl Iterator<Item = &'a SegmentHeader>,
) -> i64 {
    let Some(then) = then else { return 0 };
    let heads = heads.filter_map(|head| head.tip.clocks);
    let last = now.into_iter().chain(heads).find(|clocks| clocks.boot == then.boot);
    last.unwrap_or(then).wall_offset.saturating_sub(then.shard_offset)
}

/// As [`wall_less_shard`] of something that happened at the shard time `at`, which may have been in an
/// earlier boot than the group that records it: then the clocks of that boot count, if a head has them.
/// After another boot shard time may have leapt with a wall clock that was wrong.
pub fn wall_less_shard_at<'a>(
    at: Millis,
    then: Option<Clocks>,
    now: Option<Clocks>,
    heads: impl Iterator<Item = &'a SegmentHeader> + Clone,
) -> i64 {
    let is_since = |clocks: &Clocks| clocks.shard(Millis::ZERO) <= at;
    let noted = heads.clone().filter_map(|head| Some((head.tip.last_at, head.tip.clocks?)));
    let mut there = noted.filter(|(last_at, clocks)| is_since(clocks) && at <= *last_at);
    let earlier = if then.as_ref().is_none_or(is_since) { None } else { there.next() };
    wall_less_shard(earlier.map(|(_, clocks)| clocks).or(then), now, heads)
}

/// If a wall clock was set ahead, or was further ahead than this when the machine had been booted,
/// it counts for the age of history only after this time: dropped history does not come back.
pub const BELIEF: Millis = Millis(24 * 60 * 60 * 1000);

/// The wall clock at the shard time `now`, as far as it is trusted for the age of history. `clocks`
/// are the current ones; `heads` as for [`wall_less_shard`].
pub fn believed_wall<'a>(
    now: Millis,
    clocks: Clocks,
    heads: impl Iterator<Item = &'a SegmentHeader> + Clone,
) -> Millis {
    let since_boot = clocks.since_boot(now);
    let noted = heads.clone().filter_map(|head| Some((head.tip.last_at, head.tip.clocks?)));
    let here = noted.clone().filter(|(_, then)| then.boot == clocks.boot);
    // The newest, however old it is: nothing has been noted since.
    let recent = here.enumerate().filter(|(index, (last_at, then))| {
        *index == 0 || since_boot.since(then.since_boot(*last_at)) < BELIEF
    });
    let offset = recent.map(|(_, (_, then))| then.wall_offset).fold(clocks.wall_offset, i64::min);
    let wall = shifted(since_boot, offset);
    let mut before = noted.filter(|(_, then)| then.boot != clocks.boot);
    match before.next() {
        Some((last_at, then)) if since_boot < BELIEF => {
            let last = shifted(last_at, wall_less_shard(Some(then), Some(clocks), heads));
            wall.min(last + BELIEF + since_boot)
        }
        _ => wall,
    }
}

#[cfg(test)]
mod tests;
