//! The owner of each bucket, as written in a cluster file.

use ringwell_directory::{BUCKETS, Placement, SHARDS_MAX};

use crate::fields::whole;
use crate::limits;
use crate::section::Section;
use crate::values::ValueError;

/// The owner of each bucket; `None` for buckets that have not been listed yet.
type Owners = [Option<u16>; BUCKETS as usize];

/// Reads `[[buckets]]`. Without such a table, the buckets are divided equally among all shards.
/// `shards` is the count of shards, or `None` if it is unknown.
pub(super) fn read(file: &mut Section<'_, '_>, shards: Option<usize>) -> Option<Placement> {
    let sections = file.sections("buckets");
    let shards = shards.and_then(|shards| u16::try_from(shards).ok());
    if !file.has("buckets") {
        return Placement::even(shards?);
    }
    let mut owners: Owners = [None; BUCKETS as usize];
    let mut is_whole = true;
    for section in sections {
        is_whole &= read_run(section, shards, &mut owners).is_some();
    }
    if !is_whole {
        // A bucket that seems to be missing may be in a range that could not be read.
        return None;
    }
    let Some(owners) = complete(&owners) else {
        let missing = (0..BUCKETS).zip(owners).filter(|(_, owner)| owner.is_none());
        let missing: Vec<_> = missing.map(|(bucket, _)| bucket).collect();
        let runs: Vec<_> = missing.chunk_by(|a, b| a + 1 == *b).map(describe_run).collect();
        let error = ValueError::new(format!("leave {} without a shard", runs.join(", ")));
        let hint = "assign every bucket from 0 to 1023 to a shard; if the file has no [[buckets]], \
                    all buckets are assigned evenly";
        file.fault("buckets", error.hint(hint));
        return None;
    };
    Placement::from_owners(&owners, shards?)
}

/// Records one range of buckets in `owners`; `None` if the range is invalid.
fn read_run(mut section: Section<'_, '_>, shards: Option<u16>, owners: &mut Owners) -> Option<()> {
    let first = section.require("first", "write e.g. first = 0", whole(&limits::BUCKET));
    let last = section.require("last", "write e.g. last = 1023", whole(&limits::BUCKET));
    let shard: Option<u16> =
        section.require("shard", "write e.g. shard = 0", whole(&limits::SHARD));
    let shards = shards.unwrap_or(SHARDS_MAX);
    let is_known = shard.is_some_and(|shard| shard < shards);
    if let Some(shard) = shard.filter(|_| !is_known) {
        let message = format!("is {shard}, but no node has this shard");
        section.fault(
            "shard",
            ValueError::new(message).hint("write the number of a shard that a node has"),
        );
    }
    let run = first.zip(last).and_then(|(first, last): (u16, u16)| {
        if last < first {
            section.fault("last", ValueError::new("must not be less than first"));
            return None;
        }
        Some((first, owners.get_mut(usize::from(first)..=usize::from(last))?))
    });
    let twice = run.as_ref().and_then(|(first, run)| {
        (*first..).zip(run.iter()).find(|(_, owner)| owner.is_some()).map(|(bucket, _)| bucket)
    });
    if let Some(bucket) = twice {
        let message = format!("bucket {bucket} is already listed");
        section
            .fault("first", ValueError::new(message).hint("assign each bucket to only one shard"));
    }
    section.finish();
    run?.1.fill(Some(shard?));
    (is_known && twice.is_none()).then_some(())
}

/// The owner of each bucket as an array; `None` unless every bucket has an owner.
fn complete(owners: &Owners) -> Option<[u16; BUCKETS as usize]> {
    let owners: Option<Vec<u16>> = owners.iter().copied().collect();
    owners?.try_into().ok()
}

fn describe_run(run: &[u16]) -> String {
    match run {
        [first, .., last] => format!("{first} to {last}"),
        _ => run.iter().map(u16::to_string).collect(),
    }
}
