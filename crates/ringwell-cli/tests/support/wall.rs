//! The wall clock of one process, which a test sets with libfaketime.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A wall clock that a test can set.
#[derive(Debug)]
pub(crate) struct Wall {
    library: PathBuf,
    file: PathBuf,
}

impl Wall {
    /// Creates a clock that processes read from `file`. Prints a message and returns `None` if
    /// libfaketime is missing.
    pub(crate) fn new(file: PathBuf) -> Option<Self> {
        let folders = fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
        let library = folders.map(|it| it.path().join("faketime/libfaketimeMT.so.1"));
        let Some(library) = library.into_iter().find(|it| it.exists()) else {
            println!("SKIPPED: no libfaketime here, which sets the clock of one process");
            return None;
        };
        let wall = Self { library, file };
        wall.set(0);
        Some(wall)
    }

    /// Sets the clock `ahead` seconds ahead of the real clock.
    pub(crate) fn set(&self, ahead: i64) {
        // Replaces the file atomically, so that no reader sees an incomplete file.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{ahead:+}\n")).unwrap();
        fs::rename(new, &self.file).unwrap();
    }

    pub(crate) fn shown_to(&self, mut command: Command) -> Command {
        command.env("LD_PRELOAD", &self.library).env("FAKETIME_TIMESTAMP_FILE", &self.file);
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        command
    }
}
