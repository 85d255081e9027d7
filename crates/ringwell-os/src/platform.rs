//! Calls that only Linux has: writes past the page cache, advice about it, magic numbers of file
//! systems.
//!
//! Servers run on Linux. The engine in a gem runs on macOS too: there a journal is flushed after
//! each write, and no file system is reported as doubtful.

use std::fs::File;
use std::io;
use std::path::Path;

/// Flags of `open` for writes that are on disk when they return; `None` if there are none.
#[cfg(target_os = "linux")]
pub(crate) const DIRECT: Option<i32> = {
    use rustix::fs::OFlags;
    Some(OFlags::DIRECT.union(OFlags::DSYNC).bits().cast_signed())
};
#[cfg(not(target_os = "linux"))]
pub(crate) const DIRECT: Option<i32> = None;

/// Asks for a file's bytes from the disk instead of the cache. If the file system ignores this
/// advice, cached bytes are read.
#[cfg(target_os = "linux")]
pub(crate) fn read_past_cache(file: &File) {
    use rustix::fs::{Advice, fadvise};
    let _ = fadvise(file, 0, None, Advice::DontNeed);
    let _ = fadvise(file, 0, None, Advice::Sequential);
}
#[cfg(not(target_os = "linux"))]
pub(crate) fn read_past_cache(_: &File) {}

/// Name of the directory's file system, if it is one that does not keep its promises.
#[cfg(target_os = "linux")]
pub(crate) fn doubtful_file_system(directory: &Path) -> io::Result<Option<&'static str>> {
    use rustix::fs::FsWord;
    // Magic numbers as in statfs(2).
    const KINDS: [(FsWord, &str); 4] = [
        (0x0102_1994, "tmpfs"),
        (0x8584_58f6, "ramfs"),
        (0x794c_7630, "overlayfs"),
        (0x6969, "NFS"),
    ];
    let kind = rustix::fs::statfs(directory)?.f_type;
    Ok(KINDS.iter().find(|(magic, _)| *magic == kind).map(|(_, name)| *name))
}
#[cfg(not(target_os = "linux"))]
#[allow(clippy::unnecessary_wraps)]
pub(crate) fn doubtful_file_system(_: &Path) -> io::Result<Option<&'static str>> {
    Ok(None)
}
