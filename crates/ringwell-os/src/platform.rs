//! Features that exist only on Linux: writes that bypass the page cache, advice to the kernel about
//! that cache, and the identification of file systems and their mounts.
//!
//! Servers run on Linux. The engine in the Ruby gem also runs on macOS. There, a journal is flushed
//! after each write, and no file system is reported as doubtful.

use std::fs::File;
use std::io;
use std::path::Path;

/// The flags for `open` that make each write reach the disk before the write returns; `None` if the
/// operating system has no such flags.
#[cfg(target_os = "linux")]
pub(crate) const DIRECT: Option<i32> = {
    use rustix::fs::OFlags;
    Some(OFlags::DIRECT.union(OFlags::DSYNC).bits().cast_signed())
};
#[cfg(not(target_os = "linux"))]
pub(crate) const DIRECT: Option<i32> = None;

/// Asks the kernel to read a file's bytes from the disk rather than from the cache. If the file
/// system ignores this advice, the bytes in the cache are read.
#[cfg(target_os = "linux")]
pub(crate) fn read_past_cache(file: &File) {
    use rustix::fs::{Advice, fadvise};
    let _ = fadvise(file, 0, None, Advice::DontNeed);
    let _ = fadvise(file, 0, None, Advice::Sequential);
}
#[cfg(not(target_os = "linux"))]
pub(crate) fn read_past_cache(_: &File) {}

/// Returns the inode of the sysfs directory for the file system that contains `path`. The kernel
/// creates this directory when the file system is mounted, and removes it when the file system is
/// unmounted. It numbers sysfs inodes in order of creation, so a later mount has a different inode.
/// Source: docs/decisions/051-a-file-system-that-is-mounted-again.md.
#[cfg(target_os = "linux")]
pub(crate) fn mount_of(path: &Path) -> Option<u64> {
    use std::fs::metadata;
    use std::os::unix::fs::MetadataExt;
    let device = metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let of_device = || {
        let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        let name = link.file_name()?;
        ["ext4", "xfs", "f2fs"]
            .iter()
            .find_map(|kind| metadata(Path::new("/sys/fs").join(kind).join(name)).ok())
    };
    // Applies to network file systems and FUSE, which have no block device.
    let of_no_device = || metadata(format!("/sys/class/bdi/{major}:{minor}")).ok();
    let found = if major > 0 { of_device() } else { of_btrfs(path).or_else(of_no_device) };
    Some(found?.ino())
}
#[cfg(not(target_os = "linux"))]
pub(crate) fn mount_of(_: &Path) -> Option<u64> {
    None
}

/// Returns the metadata of a btrfs file system's directory in sysfs. The name of the directory is
/// the file system's UUID. `statvfs` does not report the UUID itself. The lower half of the id that
/// it reports is the XOR of the UUID's first and third words.
#[cfg(target_os = "linux")]
fn of_btrfs(path: &Path) -> Option<std::fs::Metadata> {
    const BTRFS: rustix::fs::FsWord = 0x9123_683e;
    if rustix::fs::statfs(path).ok()?.f_type != BTRFS {
        return None;
    }
    let reported = rustix::fs::statvfs(path).ok()?.f_fsid & u64::from(u32::MAX);
    let word = |uuid: &str, at: usize| u32::from_str_radix(uuid.get(at..at + 8)?, 16).ok();
    let is_reported = |name: &std::ffi::OsString| {
        let uuid = name.to_str().unwrap_or_default().replace('-', "");
        let folded = word(&uuid, 0).zip(word(&uuid, 16)).map(|(first, third)| first ^ third);
        folded.is_some_and(|folded| u64::from(folded) == reported)
    };
    let mounted = std::fs::read_dir("/sys/fs/btrfs").ok()?.flatten();
    let name = mounted.map(|entry| entry.file_name()).find(is_reported)?;
    std::fs::metadata(Path::new("/sys/fs/btrfs").join(name)).ok()
}

/// Returns the name of the directory's file system, if it is one that may lose flushed data in a
/// power cut.
#[cfg(target_os = "linux")]
pub(crate) fn doubtful_file_system(directory: &Path) -> io::Result<Option<&'static str>> {
    use rustix::fs::FsWord;
    // The magic numbers are listed in statfs(2).
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
