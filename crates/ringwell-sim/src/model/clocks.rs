//! The effects of clocks on lockouts, as the model sees them.

use super::values::{Holding, Model, Recovery};

/// The largest jump of a clock that is accepted. A jump of up to a day could be due to a long
/// downtime.
pub(super) const BELIEVED_MS: i64 = 24 * 60 * 60 * 1000;

/// The setting `clock_skew_max`.
pub(crate) const SKEW_MAX_MS: u64 = 2_000;

/// The time by which lockouts from before a boot are lengthened, unless the boot itself took
/// longer. The clock may have been behind before the boot, and be ahead after it.
pub(crate) const LENGTHENED_MS: u64 = 2 * SKEW_MAX_MS;

/// The most that shard time may gain on true time between two starts without a reboot.
const SLEWED_MS: i64 = 100;

/// Returns how much shard time must pass before a lifetime has certainly passed in true time,
/// because shard time may gain on true time.
pub(super) fn lockout_ms(lifetime_ms: u64) -> u64 {
    lifetime_ms + lifetime_ms.div_ceil(2_000) + 1
}

/// Returns the true time that has certainly passed after this much shard time. This is the inverse
/// of [`lockout_ms`].
pub(super) fn lifetime_ms(lockout_ms: u64) -> u64 {
    lockout_ms.saturating_sub(1) * 2_000 / 2_001
}

impl Model {
    /// Records how far a shard's clock was ahead of true time at a restart, if this was not
    /// detected.
    pub(super) fn believe(&mut self, recovery: &Recovery) {
        let shard = self.shards.entry(recovery.shard).or_default();
        let offset = recovery.now_ms.cast_signed() - (recovery.now_us / 1000).cast_signed();
        let jump = offset - shard.offset_ms.unwrap_or(offset);
        // Without a reboot, the downtime is known exactly. After a reboot, lockouts are lengthened.
        let is_booted = shard.boots != recovery.boots;
        shard.boots = recovery.boots;
        let jump = if is_booted { jump } else { jump.min(SLEWED_MS) };
        let believed = jump - LENGTHENED_MS.cast_signed();
        if is_booted && (1..=BELIEVED_MS).contains(&jump) {
            shard.believed_ms += believed.max(0);
        }
        shard.offset_ms = Some(offset);
        if jump > 0 {
            self.leaps.push((recovery.now_us, recovery.shard, jump));
        }
        for held in self.held.values_mut().flatten().filter(|h| h.keeper == recovery.shard) {
            held.leap(jump);
        }
    }
}

impl Holding {
    /// Records that the clock of the number's current shard has leapt.
    pub(super) fn leap(&mut self, jump_ms: i64) {
        if (1..=BELIEVED_MS).contains(&jump_ms) {
            let believed = jump_ms.unsigned_abs().saturating_sub(LENGTHENED_MS);
            self.believed_us += believed * 1000;
        }
        self.leapt_ms += jump_ms.max(0);
    }
}
