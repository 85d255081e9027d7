//! Resolves links in paths, so that paths can be compared.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Returns the absolute form of `path`. Resolves symlinks as far as the path exists.
pub(super) fn place(path: &Path) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(found.pop()),
            part => found.push(part),
        }
        found = fs::canonicalize(&found).unwrap_or(found);
    }
    Ok(found)
}
