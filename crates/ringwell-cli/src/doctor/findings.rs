//! The doctor's findings.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Grade {
    Ok,
    Note,
    Bad,
}

/// The result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) grade: Grade,
    /// The subject of the check, in one word.
    pub(super) about: &'static str,
    pub(super) text: String,
}

#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    fn add(&mut self, grade: Grade, about: &'static str, text: impl Into<String>) {
        self.0.push(Finding { grade, about, text: text.into() });
    }

    pub(super) fn ok(&mut self, about: &'static str, text: impl Into<String>) {
        self.add(Grade::Ok, about, text);
    }

    pub(super) fn note(&mut self, about: &'static str, text: impl Into<String>) {
        self.add(Grade::Note, about, text);
    }

    pub(super) fn bad(&mut self, about: &'static str, text: impl Into<String>) {
        self.add(Grade::Bad, about, text);
    }
}
