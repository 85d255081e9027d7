//! Writes the demo's files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;

/// Writes a file atomically: after a crash, it contains either the old or the new contents.
pub(super) fn write_whole(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    let attempt = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(mode);
        let mut out = BufWriter::new(options.open(&new)?);
        write(&mut out)?;
        out.into_inner()?.sync_all()?;
        fs::rename(&new, path)
    };
    attempt().with_context(|| format!("cannot write {}", path.display()))
}
