//! Words that make a sentence read like a translation: they personify programs, or replace a
//! subject.
//!
//! Pages for users and the specification contain none of them, except for the list here, which only
//! gets shorter.

#![allow(clippy::unwrap_used, reason = "a test program")]

use std::fs;
use std::path::{Path, PathBuf};

const WORDS: [&str; 3] = ["told", "nobody", "whoever"];

/// The remaining ones.
const LEFT: [(&str, usize); 0] = [];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Pages for users, and of the specification.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/guides", "docs/spec", "ruby/ringwell"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if Path::new(&name).extension().is_some_and(|kind| kind == "md") {
                pages.push(format!("{folder}/{name}"));
            }
        }
    }
    pages.sort();
    pages
}

/// The count of the words in the prose of a page, without code.
fn count(page: &str) -> usize {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut is_code = false;
    let mut found = 0;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let prose = prose.to_lowercase();
        let words = prose.split(|c: char| !c.is_alphabetic());
        found += words.filter(|word| WORDS.contains(word)).count();
    }
    found
}

#[test]
fn pages_contain_no_words_that_read_like_a_translation() {
    let mut wrong = Vec::new();
    for page in pages() {
        let most = LEFT.iter().find(|(name, _)| *name == page).map_or(0, |(_, most)| *most);
        let found = count(&page);
        if found > most {
            wrong.push(format!("{page} has {found} of them, and may have {most}"));
        }
    }
    assert!(wrong.is_empty(), "{WORDS:?}:\n{}", wrong.join("\n"));
}
