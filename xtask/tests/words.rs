//! Tests that pages and comments avoid words and forms that make a sentence read like a
//! translation. Such words and forms personify programs, replace a subject, or begin a doc comment
//! with a clause instead of a noun or a verb.
//!
//! The lists are [`WORDS`] and [`CLAUSES`].

#![allow(clippy::unwrap_used, reason = "a test program")]

use std::fs;
use std::path::{Path, PathBuf};

const WORDS: [&str; 3] = ["told", "nobody", "whoever"];

/// A doc comment may begin with one of these words only if its first line contains a comma or is a
/// question.
const CLAUSES: [&str; 7] = ["What", "Who", "How", "Why", "When", "Where", "Which"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The files below `folder` whose names end in `.kind`, sorted.
fn files(folder: &Path, kind: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, kind));
        } else if path.extension().is_some_and(|extension| extension == kind) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Whether `text` contains one of the words outside of code spans.
fn has_word(text: &str) -> bool {
    let prose: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    prose.to_lowercase().split(|c: char| !c.is_alphabetic()).any(|word| WORDS.contains(&word))
}

/// The numbers of a page's lines, outside of code blocks, that contain one of the words.
fn in_page(text: &str) -> Vec<usize> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if !is_code && has_word(line) {
            found.push(at + 1);
        }
    }
    found
}

/// The numbers of a source file's lines whose comments contain one of the words or begin with a
/// clause.
fn in_comments(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut was_doc = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
        let is_clause = |doc: &str| {
            let first = doc.split(' ').next();
            first.is_some_and(|word| CLAUSES.contains(&word)) && !doc.contains([',', '?'])
        };
        let begins_with_clause = !was_doc && doc.is_some_and(is_clause);
        if begins_with_clause || line.starts_with("//") && has_word(line) {
            found.push(at + 1);
        }
        was_doc = doc.is_some();
    }
    found
}

#[test]
fn pages_and_comments_do_not_read_like_a_translation() {
    let pages =
        ["README.md", "CHANGELOG.md", "ruby/ringwell/README.md"].map(|page| root().join(page));
    let pages = pages.into_iter().chain(files(&root().join("docs"), "md"));
    let sources = files(&root().join("crates"), "rs");
    let sources = sources.into_iter().chain(files(&root().join("xtask/src"), "rs"));
    let mut wrong = Vec::new();
    let mut judge = |path: &Path, lines: &dyn Fn(&str) -> Vec<usize>| {
        let found = lines(&fs::read_to_string(path).unwrap());
        wrong.extend(found.into_iter().map(|line| format!("{}:{line}", path.display())));
    };
    pages.for_each(|page| judge(&page, &in_page));
    sources.for_each(|source| judge(&source, &in_comments));
    assert!(wrong.is_empty(), "{WORDS:?} or a clause:\n{}", wrong.join("\n"));
}

#[test]
fn a_clause_at_the_beginning_and_a_replaced_subject_are_found() {
    assert_eq!(in_comments("/// Why it failed.\n/// Who knows.\nfn a() {}\n// Nobody."), [1, 4]);
    assert_eq!(in_comments("/// When it ends, the caller is woken.\n\n/// The end."), [0_usize; 0]);
    assert_eq!(in_page("a\n`told`\n```sh\ntold\n```\nis told"), [6]);
}
