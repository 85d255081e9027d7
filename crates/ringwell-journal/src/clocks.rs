//! A machine's clocks, which are recorded together with shard time when a group is sealed.
//!
//! Shard time never goes back, and never jumps while the shard serves requests, so it may differ
//! from the calendar time. Each group therefore also contains the time since the machine booted and
//! the wall clock. The time since boot advances evenly, but an operator or a time server may set
//! the wall clock at any time. Source: docs/spec/journal.md, "Clocks".

use ringwell_core::Millis;

/// The size of the clocks in bytes, in a frame and in a segment's head.
pub(crate) const CLOCKS_BYTES: usize = 24;

/// The offsets between shard time, the time since boot and the wall clock, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// Identifies the machine's boot; never zero. Two times since boot can be compared only if they
    /// belong to the same boot.
    pub boot: u64,
    /// Shard time minus the time since boot.
    pub shard_offset: i64,
    /// The wall clock minus the time since boot.
    pub wall_offset: i64,
}

impl Clocks {
    /// Returns the time since boot at the shard time `at`.
    #[must_use]
    pub fn since_boot(&self, at: Millis) -> Millis {
        shifted(at, self.shard_offset.saturating_neg())
    }

    /// Returns the shard time at the time since boot `since_boot`.
    #[must_use]
    pub fn shard(&self, since_boot: Millis) -> Millis {
        shifted(since_boot, self.shard_offset)
    }

    /// Returns the wall clock minus shard time.
    #[must_use]
    pub fn wall_less_shard(&self) -> i64 {
        self.wall_offset.saturating_sub(self.shard_offset)
    }

    /// Returns the wall-clock time at the shard time `at`.
    #[must_use]
    pub fn wall(&self, at: Millis) -> Millis {
        shifted(at, self.wall_less_shard())
    }

    /// Whether the machine booted after the shard time `at`.
    fn began_after(&self, at: Millis) -> bool {
        i128::from(self.shard_offset) > i128::from(at.0)
    }

    pub(crate) fn encode(&self) -> [u8; CLOCKS_BYTES] {
        let mut out = [0; CLOCKS_BYTES];
        out[..8].copy_from_slice(&self.boot.to_le_bytes());
        out[8..16].copy_from_slice(&self.shard_offset.to_le_bytes());
        out[16..].copy_from_slice(&self.wall_offset.to_le_bytes());
        out
    }

    /// Reads the clocks back. Returns `None` if the boot is zero, which means that no clocks were
    /// recorded.
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

/// Returns `at`, moved by `by` milliseconds.
#[must_use]
pub fn shifted(at: Millis, by: i64) -> Millis {
    Millis(at.0.saturating_add_signed(by))
}

/// The clocks that were recorded at the end of a segment, at the shard time `at`. They were valid
/// up to that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The shard time.
    pub at: Millis,
    /// The clocks.
    pub clocks: Clocks,
}

/// Returns the wall clock minus shard time at the moment when a group with the clocks `then` was
/// sealed. If the wall clock was set again later in the same boot, its last setting applies to all
/// events of this boot. `now` contains the current clocks. A group of format 1 has no clocks. For
/// such a group, shard time is used as the wall-clock time.
///
/// For an earlier boot, this difference between the clocks counts as wrong if it is more than
/// [`CLOCK_DIFFERENCE_MAX`] away from the current difference, but a difference that was recorded
/// before that boot is not. The current difference is then returned instead.
pub fn wall_less_shard(
    then: Option<Clocks>,
    now: Option<Clocks>,
    noted: impl Iterator<Item = Noted> + Clone,
) -> i64 {
    let Some(then) = then else { return 0 };
    if let Some(now) = now.filter(|now| now.boot == then.boot) {
        return now.wall_offset.saturating_sub(then.shard_offset);
    }
    let here = noted.clone().filter(|noted| noted.clocks.boot == then.boot);
    let last = here.clone().max_by_key(|noted| noted.at).map_or(then, |noted| noted.clocks);
    let lead = last.wall_offset.saturating_sub(then.shard_offset);
    let Some(current) = now.map(|now| now.wall_less_shard()) else { return lead };
    let is_far = |lead: i64| lead.abs_diff(current) > CLOCK_DIFFERENCE_MAX.0;
    let first = here.map(|noted| noted.at).min().unwrap_or_default();
    let mut before = noted.filter(|noted| noted.at < first);
    let is_wrong = is_far(lead) && before.any(|noted| !is_far(noted.clocks.wall_less_shard()));
    if is_wrong { current } else { lead }
}

/// Like [`wall_less_shard`], but for an event that happened at the shard time `at` and was recorded
/// at `recorded_at`, in a group with the clocks `then`. `noted` contains the clocks recorded by all
/// of the node's shards. If the event belongs to an earlier boot than the group, the clocks of the
/// earlier boot apply. When a boot begins, shard time is later than any time recorded in earlier
/// boots. The event therefore belongs to a boot that began at or before `at`. Returns `None` if the
/// clocks of the event's boot were dropped with old history. Later clocks cannot replace them,
/// because shard time may have jumped by any amount since.
pub fn wall_less_shard_at(
    (at, recorded_at): (Millis, Millis),
    then: Option<Clocks>,
    now: Option<Clocks>,
    noted: impl Iterator<Item = Noted> + Clone,
) -> Option<i64> {
    let after = clocks_after((at, recorded_at), then, noted.clone());
    let began_later = after.is_some_and(|clocks| clocks.began_after(at));
    let before = noted.clone().filter(|noted| noted.at < at).max_by_key(|noted| noted.at);
    let clocks = if began_later { Some(before?.clocks) } else { after };
    Some(wall_less_shard(clocks, now, noted))
}

/// Finds the first clocks that were recorded after an event at the shard time `at`. If the boot of
/// these clocks began after the event, returns the wall-clock time at which it began. The arguments
/// are those of [`wall_less_shard_at`].
pub fn wall_before(
    (at, recorded_at): (Millis, Millis),
    then: Option<Clocks>,
    now: Option<Clocks>,
    noted: impl Iterator<Item = Noted> + Clone,
) -> Option<Millis> {
    let after = clocks_after((at, recorded_at), then, noted.clone())?;
    let began = Millis(u64::try_from(after.shard_offset).ok()?);
    let shift = wall_less_shard(Some(after), now, noted);
    after.began_after(at).then(|| shifted(began, shift))
}

/// Returns the first clocks that were recorded after an event at the shard time `at` and before
/// `recorded_at`. If there are none, returns `then`, the clocks of the group that contains the
/// event.
fn clocks_after(
    (at, recorded_at): (Millis, Millis),
    then: Option<Clocks>,
    noted: impl Iterator<Item = Noted>,
) -> Option<Clocks> {
    let between = noted.filter(|noted| at <= noted.at && noted.at < recorded_at);
    between.min_by_key(|noted| noted.at).map(|noted| noted.clocks).or(then)
}

/// The delay after which a wall clock that jumped forward is used to compute the age of history.
/// The clock counts as jumped if it was set forward while the machine was running. It also counts
/// as jumped if it was ahead of the last recorded time by more than this delay when the machine
/// booted. The delay is needed because dropped history cannot be restored.
pub const CLOCK_DIFFERENCE_MAX: Millis = Millis(24 * 60 * 60 * 1000);

/// Returns the wall-clock time at the shard time `now`, corrected to a time that is trusted for
/// computing the age of history. `clocks` contains the current clocks, and `noted` the recorded
/// ones, newest first.
///
/// # Panics
/// Panics only if an invariant of the journal is broken.
pub fn believed_wall(
    now: Millis,
    clocks: Clocks,
    noted: impl Iterator<Item = Noted> + Clone,
) -> Millis {
    let since_boot = clocks.since_boot(now);
    let here = noted.clone().filter(|noted| noted.clocks.boot == clocks.boot);
    // The newest recorded clocks are used regardless of their age, because no clocks have been
    // recorded since.
    let recent = here.enumerate().filter(|(index, then)| {
        *index == 0 || since_boot.since(then.clocks.since_boot(then.at)) < CLOCK_DIFFERENCE_MAX
    });
    let offsets = recent.map(|(_, then)| then.clocks.wall_offset);
    let offset = offsets.fold(clocks.wall_offset, i64::min);
    let wall = shifted(since_boot, offset);
    assert!(offset <= clocks.wall_offset, "the offset used is larger than the wall clock's");
    let mut before = noted.clone().filter(|noted| noted.clocks.boot != clocks.boot);
    match before.next() {
        Some(then) if since_boot < CLOCK_DIFFERENCE_MAX => {
            let last = wall_less_shard(Some(then.clocks), Some(clocks), noted);
            let last = shifted(then.at, last);
            wall.min(last + CLOCK_DIFFERENCE_MAX + since_boot)
        }
        _ => wall,
    }
}

#[cfg(test)]
mod tests;
