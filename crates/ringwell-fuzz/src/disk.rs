//! Damages a journal as a disk may, and checks the result of its recovery.
//!
//! The result must be a true prefix of the journal, or a refusal. No frame whose answers were sent
//! may be dropped silently, unless the damage left no trace of the frame.

mod damage;
mod files;
mod sample;

pub use damage::Damage;
pub use files::Files;
pub use sample::{Frame, Sample, sample};

use std::convert::Infallible;

use ringwell_journal::{
    BLOCK_BYTES, Group, RecoverError, Recovered, RecoveryPlan, SnapshotMark, Verdict, recover,
};

/// The length of a block's stamp, which precedes a frame's header.
pub const STAMP_BYTES: usize = 8;
/// The length of a frame's header.
pub const HEADER_BYTES: usize = 64;

/// The result of recovering a damaged journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// All frames were recovered.
    Whole,
    /// Frames at the end are lost, and nothing on the disk shows that they existed.
    Cut,
    /// Frames at the end may be lost. Recovery reported this, so the shard holds its numbers.
    Doubted,
    /// Recovery refused the journal, so the shard does not start.
    Refused,
}

/// Checks any damage to a good journal; `bytes` contains six bytes for each fault. See
/// [`Damage::read`].
pub fn journal(bytes: &[u8]) {
    let (faults, _) = bytes.as_chunks();
    let faults: Vec<_> = faults.iter().take(16).map(Damage::read).collect();
    let _ = judge(&sample(), &faults);
}

/// Applies `faults` to `sample`, recovers the journal and panics if recovery broke a rule.
#[must_use]
pub fn judge(sample: &Sample, faults: &[Damage]) -> Outcome {
    let mut files = sample.files.clone();
    let mut is_forged = false;
    for fault in faults {
        fault.strike(&mut files);
        is_forged |= matches!(fault, Damage::Forge { .. });
    }
    let plan = RecoveryPlan { shard: sample::SHARD, from: 1, snapshot: None };
    let outcome = match recovered(&files, &plan) {
        // A disk cannot produce a frame with corrected checksums, so for such frames the test only
        // requires that nothing panics.
        _ if is_forged => return Outcome::Refused,
        Ok((recovered, seen)) => judge_prefix(sample, &files, &recovered, &seen),
        Err(_) => {
            assert_ne!(files, sample.files, "an undamaged journal was refused");
            Outcome::Refused
        }
    };
    judge_with_snapshot(sample, &files);
    outcome
}

fn recovered(
    files: &Files,
    plan: &RecoveryPlan,
) -> Result<(Recovered, Vec<Group>), RecoverError<Infallible>> {
    let mut seen = Vec::new();
    let recovered = recover(files, plan, |header, body| {
        let group = Group { header: *header, body: body.to_vec() };
        group.records().try_for_each(|record| record.map(|_| ()))?;
        seen.push(group);
        Ok(())
    })?;
    Ok((recovered, seen))
}

fn judge_prefix(sample: &Sample, files: &Files, recovered: &Recovered, seen: &[Group]) -> Outcome {
    assert!(sample.groups.starts_with(seen), "no true prefix");
    assert_eq!(recovered.frames, seen.len() as u64);
    assert_eq!(recovered.tip.next_n, seen.len() as u64 + 1);
    let (cut, lost) = match &sample.frames[seen.len()..] {
        [] => return Outcome::Whole,
        [cut, lost @ ..] => (cut, lost),
    };
    if recovered.is_in_doubt() {
        return Outcome::Doubted;
    }
    let is_cut = |(segno, file): (&u64, &Vec<u8>)| {
        files.0.get(segno).is_some_and(|there| there.len() < file.len())
    };
    let shortened = sample.files.0.iter().filter(|(segno, _)| **segno >= cut.segno).any(is_cut);
    assert!(!shortened, "{cut:?} was dropped, although a file is shorter than when it was created");
    let (old, new) = (cut.blocks(&sample.files), cut.blocks(files));
    assert!(is_torn(&old, &new), "{cut:?} was dropped, but all of it had been written");
    for frame in lost {
        let (old, new) = (frame.blocks(&sample.files), frame.blocks(files));
        assert!(!has_header(old[0], new[0]), "{frame:?} was dropped, but its header is there");
    }
    if recovered.verdict == Verdict::Clean {
        let is_stamped = |(old, new): (&&[u8], &&[u8])| has_stamp(old, new);
        assert!(!old.iter().zip(&new).any(is_stamped), "{cut:?} was begun");
    }
    Outcome::Cut
}

/// Whether recovery may assume that the frame was never completely written. It may do so if the
/// file ends within the frame, if the first block has neither stamp nor header, or if another block
/// has no stamp.
fn is_torn(old: &[&[u8]], new: &[&[u8]]) -> bool {
    if new.iter().any(|block| block.len() < BLOCK_BYTES) {
        return true;
    }
    if !has_header(old[0], new[0]) {
        return !has_stamp(old[0], new[0]);
    }
    old.iter().zip(new).skip(1).any(|(old, new)| !has_stamp(old, new))
}

fn has_stamp(old: &[u8], new: &[u8]) -> bool {
    new.len() == BLOCK_BYTES && old[..STAMP_BYTES] == new[..STAMP_BYTES]
}

fn has_header(old: &[u8], new: &[u8]) -> bool {
    let header = STAMP_BYTES..STAMP_BYTES + HEADER_BYTES;
    new.len() == BLOCK_BYTES && old[header.clone()] == new[header]
}

/// Recovers the journal with a snapshot that covers all frames. No frame may then be dropped, even
/// if the damage left no trace of it.
fn judge_with_snapshot(sample: &Sample, files: &Files) {
    let through = sample.groups.len() as u64;
    let mark = SnapshotMark { journal: sample::JOURNAL, prev_hash: 0, through };
    let plan = RecoveryPlan { shard: sample::SHARD, from: 1, snapshot: Some(mark) };
    if let Ok((_, seen)) = recovered(files, &plan) {
        assert!(seen == sample.groups, "a snapshot did not protect the frames that it covers");
    }
}
