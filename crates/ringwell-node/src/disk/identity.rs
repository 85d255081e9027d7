//! Which data directory this is, and whether it was put back from a copy.
//!
//! A journal cannot tell by itself that it is not the one that was served last: an empty one looks
//! like that of a first start, and a copy like the original was when it was made. So each data
//! directory has a name that is drawn once, for others to remember.
//! Source: docs/spec/cluster.md, "A lost disk".

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file::{Context, FileError, create, read_json, sync_directory, write_json};
use super::flusher::random;

const FILE: &str = "identity.json";
const RESTORED: &str = "RESTORED";

/// The name of a data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// 32 hexadecimal digits.
    pub id: String,
}

impl Identity {
    /// `None` if nothing has been served from here by a release that draws names.
    ///
    /// # Errors
    /// [`FileError`] if there is a file that cannot be read or understood.
    pub fn read(data: &Path) -> Result<Option<Self>, FileError> {
        read_json(&data.join(FILE))
    }

    /// Reads the name, or draws one and stores it durably.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn read_or_draw(data: &Path) -> Result<Self, FileError> {
        if let Some(known) = Self::read(data)? {
            return Ok(known);
        }
        let drawn: [u8; 16] = random().context("draw a name for", &data.join(FILE))?;
        let identity = Self { id: format!("{:032x}", u128::from_le_bytes(drawn)) };
        write_json(data, FILE, &identity)?;
        Ok(identity)
    }
}

/// Notes that what lies in `data` is a copy: what was answered since it was made is missing. The
/// next start holds all pools. Makes the directory if it is not there.
///
/// # Errors
/// [`FileError`]
pub fn mark_restored(data: &Path) -> Result<(), FileError> {
    super::file::create_directory(data)?;
    if is_restored(data) {
        return Ok(());
    }
    create(&data.join(RESTORED))?.sync_all().context("flush", &data.join(RESTORED))?;
    sync_directory(data)
}

/// Whether the data was put back from a copy, and no start has stored a hold because of it.
#[must_use]
pub fn is_restored(data: &Path) -> bool {
    data.join(RESTORED).exists()
}

/// A hold is durable: the next start need not begin another.
///
/// # Errors
/// [`FileError`]
pub fn unmark_restored(data: &Path) -> Result<(), FileError> {
    let path: PathBuf = data.join(RESTORED);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => {
            removed.context("remove", &path)?;
            sync_directory(data)
        }
    }
}

#[cfg(test)]
#[test]
fn a_data_directory_keeps_its_name_and_another_gets_another() {
    let [one, other] = [(); 2].map(|()| tempfile::TempDir::new().unwrap());
    assert_eq!(Identity::read(one.path()).unwrap(), None);
    let drawn = Identity::read_or_draw(one.path()).unwrap();
    assert_eq!(Identity::read_or_draw(one.path()).unwrap(), drawn);
    assert_ne!(Identity::read_or_draw(other.path()).unwrap(), drawn);
    mark_restored(one.path()).unwrap();
    mark_restored(one.path()).unwrap();
    assert!(is_restored(one.path()) && !is_restored(other.path()));
    unmark_restored(one.path()).unwrap();
    unmark_restored(one.path()).unwrap();
    assert!(!is_restored(one.path()));
}
