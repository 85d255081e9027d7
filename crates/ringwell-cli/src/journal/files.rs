//! Finds journal files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use ringwell_core::Millis;
use ringwell_journal::{SEGMENT_HEADER_BYTES, SegmentHeader, Segments};
use ringwell_node::disk::{OsFiles, SegmentFiles, list_snapshots};

/// The name of the file that lists a backup's files.
pub(crate) const BACKUP_LIST: &str = "backup.json";

/// The files of one shard.
#[derive(Debug)]
pub(super) struct ShardFiles {
    pub(super) directory: PathBuf,
    pub(super) shard: u32,
    /// The shard whose journal a server expects in this directory, if it is in a data directory.
    pub(super) expected: Option<u32>,
    pub(super) segments: SegmentFiles,
}

/// Lists the shards in a data directory, or the one shard whose directory is `path`.
pub(super) fn shards_in(path: &Path) -> anyhow::Result<Vec<ShardFiles>> {
    fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut directories = Vec::new();
    for parent in [path.join("journal"), path.to_owned()] {
        if directories.is_empty() && parent.is_dir() {
            directories = numbered_directories(&parent)?;
        }
    }
    let is_in_data = !directories.is_empty();
    if !is_in_data {
        directories.push(path.to_owned());
    }
    let shards: Vec<_> = directories.iter().map(|it| shard(it, is_in_data)).collect();
    let mut found: Vec<ShardFiles> =
        shards.into_iter().collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect();
    if found.is_empty() {
        bail!(
            "{} contains no journal: specify a data directory (`data` in the configuration)",
            path.display()
        );
    }
    found.sort_by_key(|files| files.shard);
    Ok(found)
}

fn numbered_directories(parent: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let cannot_list = || format!("cannot list {}", parent.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(parent).with_context(cannot_list)? {
        let path = entry.with_context(cannot_list)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.parse::<u32>().is_ok()) {
            ensure!(path.is_dir(), "{} is not a directory: move it away", path.display());
            found.push(path);
        }
    }
    Ok(found)
}

/// Finds a shard's files. Returns `None` if the directory has no segments. The shard's number is
/// read from the first segment, because the directory may be a renamed copy.
fn shard(directory: &Path, is_in_data: bool) -> anyhow::Result<Option<ShardFiles>> {
    let segments = SegmentFiles::new(OsFiles, directory.to_owned());
    let Some(first) = segments.list()?.into_iter().min_by_key(|file| file.segno) else {
        let has_snapshots = !list_snapshots(&OsFiles, directory)?.is_empty();
        ensure!(
            !has_snapshots,
            "{} contains snapshots but no segments: restore the segments from a copy",
            directory.display()
        );
        return Ok(None);
    };
    let mut block = [0; SEGMENT_HEADER_BYTES];
    let got = segments.read_at(first.segno, 0, &mut block)?;
    let name: Option<u32> =
        directory.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
    let shard = SegmentHeader::decode(&block[..got]).map_or_else(
        // A damaged header is ignored here, and reported when the segment is read later.
        |_| name.unwrap_or(0),
        |header| header.shard,
    );
    let expected = name.filter(|_| is_in_data);
    Ok(Some(ShardFiles { directory: directory.to_owned(), shard, expected, segments }))
}

/// Formats a time for people: in UTC, or as milliseconds if the time is outside the calendar's
/// range.
pub(super) fn readable(time: Millis) -> String {
    let millis = i64::try_from(time.0).ok();
    let stamp = millis.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    stamp.map_or_else(|| time.to_string(), |stamp| format!("{stamp:.3}"))
}
