//! The identity of this data directory, and whether its data was restored from a copy.
//!
//! A journal alone cannot prove that it is the one that was served last. An empty journal looks
//! like the journal of a first startup. A copy looks like the original at the time of copying. Each
//! data directory therefore has a random name, which other nodes record. Source:
//! docs/spec/cluster.md, "A lost disk".

use std::collections::BTreeMap;
use std::path::Path;

use ringwell_journal::SegmentHeader;
use serde::{Deserialize, Serialize};

use super::files::{FileError, Files, read_json, remove, write_json};
use crate::canary::{Bug, planted};

const FILE: &str = "identity.json";
/// The file that marks data as restored from a copy.
pub const RESTORED: &str = "RESTORED";

/// The name of a data directory, and the journals that it must contain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// 32 hexadecimal digits.
    pub id: String,
    /// The last written journal of each shard; empty in data of earlier releases.
    #[serde(default)]
    pub journals: BTreeMap<u16, WrittenJournal>,
}

/// A shard's journal, as the last startup left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Form")]
pub struct WrittenJournal {
    /// The journal's name: 32 hexadecimal digits.
    pub name: String,
    /// The number of the last startup; see [`SegmentHeader::start`]. A copy made before that
    /// startup contains no segment with this number. If that startup served a copy, the original
    /// contains no such segment either. `None` in data of earlier releases.
    pub start: Option<u64>,
}

/// All forms in which a [`WrittenJournal`] has ever been stored.
#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Name(String),
    Whole { name: String, start: Option<u64> },
}

impl From<Form> for WrittenJournal {
    fn from(form: Form) -> Self {
        match form {
            Form::Name(name) => Self { name, start: None },
            Form::Whole { name, start } => Self { name, start },
        }
    }
}

/// A journal as it was found on the disk.
#[derive(Debug)]
pub struct FoundJournal {
    name: String,
    /// The numbers of the startups that began the journal's segments, in segment order.
    starts: Vec<u64>,
}

impl FoundJournal {
    /// Returns the journal whose segments begin with `heads`, which must be in order. Returns
    /// `None` if `heads` is empty.
    pub fn of<'a>(heads: impl Iterator<Item = &'a SegmentHeader>) -> Option<Self> {
        let heads: Vec<_> = heads.collect();
        let name = Identity::journal_name(heads.last()?.journal);
        Some(Self { name, starts: heads.into_iter().map(SegmentHeader::start).collect() })
    }

    /// Returns this journal's entry for `identity.json`. If the last startup failed before the
    /// process began to serve, the file does not contain this entry.
    #[must_use]
    pub fn written(&self) -> WrittenJournal {
        WrittenJournal { name: self.name.clone(), start: self.starts.last().copied() }
    }

    /// Whether this is the journal `written`, or a continuation of it.
    #[must_use]
    pub fn continues(&self, written: &WrittenJournal) -> bool {
        let has = |start| self.starts.contains(&start) || planted(Bug::OlderJournalIgnored);
        self.name == written.name && written.start.is_none_or(has)
    }
}

impl Identity {
    /// Returns the stored form of a journal's name.
    #[must_use]
    pub fn journal_name(id: [u8; 16]) -> String {
        format!("{:032x}", u128::from_le_bytes(id))
    }

    /// Reads the identity. Returns `None` if this data directory has no name yet, because it is new
    /// or has been used only by releases without names.
    ///
    /// # Errors
    /// Returns [`FileError`] if the file exists but cannot be read or parsed.
    pub fn read(files: &impl Files, data: &Path) -> Result<Option<Self>, FileError> {
        read_json(files, &data.join(FILE))
    }

    /// Reads the name, or chooses a random one if there is none. Durably records `journals` as the
    /// journals of this data. If the disk is full and only the numbers of the startups have
    /// changed, the old record is kept.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn read_or_draw(
        files: &impl Files,
        data: &Path,
        journals: BTreeMap<u16, WrittenJournal>,
    ) -> Result<Self, FileError> {
        match Self::read(files, data)? {
            None => Self::draw(files, data, journals),
            Some(known) if known.journals == journals => Ok(known),
            Some(known) => {
                let names = |all: &BTreeMap<u16, WrittenJournal>| -> Vec<(u16, String)> {
                    all.iter().map(|(shard, it)| (*shard, it.name.clone())).collect()
                };
                let is_same = names(&known.journals) == names(&journals);
                let new = Self { journals, ..known.clone() };
                match new.write(files, data) {
                    Err(error) if error.is_full() && is_same => Ok(known),
                    written => written,
                }
            }
        }
    }

    /// Chooses a new random name and stores it durably. Used for data that is a copy: the other
    /// nodes then detect any copy that still has the old name. `journals` are recorded as the
    /// journals of this data.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn draw(
        files: &impl Files,
        data: &Path,
        journals: BTreeMap<u16, WrittenJournal>,
    ) -> Result<Self, FileError> {
        let id = Self::journal_name(files.random(&data.join(FILE))?);
        Self { id, journals }.write(files, data)
    }

    /// Like [`Self::draw`], but keeps the recorded journals.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn rename(files: &impl Files, data: &Path) -> Result<Self, FileError> {
        let known = Self::read(files, data)?;
        Self::draw(files, data, known.map(|known| known.journals).unwrap_or_default())
    }

    fn write(self, files: &impl Files, data: &Path) -> Result<Self, FileError> {
        write_json(files, data, FILE, &self)?;
        Ok(self)
    }
}

/// Records that `data` is a copy: the answers that were sent since the copy was made are missing
/// from it. The next startup holds all pools. Creates the directory if it does not exist.
///
/// # Errors
/// [`FileError`]
pub fn mark_restored(files: &impl Files, data: &Path) -> Result<(), FileError> {
    files.make_directory(data)?;
    if is_restored(files, data) {
        return Ok(());
    }
    files.flush(&files.create(&data.join(RESTORED))?)?;
    files.flush_names(data)
}

/// Whether the data was restored from a copy and no hold has been stored for that reason yet.
#[must_use]
pub fn is_restored(files: &impl Files, data: &Path) -> bool {
    files.exists(&data.join(RESTORED))
}

/// Records that the hold is durable, so that the next startup need not begin another.
///
/// # Errors
/// [`FileError`]
pub fn unmark_restored(files: &impl Files, data: &Path) -> Result<(), FileError> {
    if is_restored(files, data) { remove(files, &data.join(RESTORED)) } else { Ok(()) }
}
