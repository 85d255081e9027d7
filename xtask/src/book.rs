//! `cargo xtask book`: builds the documentation as a site, with mdBook.
//!
//! Copies `docs/` and the README, turns links to the repository's other files into web links, runs
//! mdBook, and checks that every local link in the site has a target. `docs/SUMMARY.md` is the
//! table of contents; `tests/book.rs` checks that it lists every page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::shell::{is_installed, root, run as run_command, target_dir};

/// The web address of files that are not part of the site.
const REPOSITORY: &str = "https://github.com/ringwell/ringwell/blob/main";

/// Pages that are renamed, because mdBook turns each README into an index, and two of these would
/// have the same path.
const RENAMED: [(&str, &str); 3] = [
    ("README.md", "introduction.md"),
    ("docs/README.md", "documents.md"),
    ("docs/guides/README.md", "guides/overview.md"),
];

/// Builds the site in `target/book/html`.
///
/// # Errors
/// If mdBook is not installed or fails, or if a link in the site has no target.
pub(crate) fn run() -> anyhow::Result<()> {
    ensure!(is_installed("mdbook"), "mdbook is not installed: cargo install --locked mdbook");
    let out = target_dir().join("book");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let source = out.join("src");
    let pages = copy(&source)?;
    fs::copy("docs/book.toml", out.join("book.toml"))?;
    let html = out.join("html");
    run_command(Command::new("mdbook").arg("build").arg("--dest-dir").arg(&html).arg(&out))?;
    let links = check(&html)?;
    println!("{}: {pages} pages, {links} local links", html.display());
    Ok(())
}

/// Copies the pages and their pictures to `source`; returns the count of pages.
fn copy(source: &Path) -> anyhow::Result<usize> {
    let mut files = vec![PathBuf::from("README.md")];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let list = if entry.file_type()?.is_dir() { &mut folders } else { &mut files };
            list.push(entry.path());
        }
    }
    let mut pages = 0;
    for file in files {
        let to = source.join(place(&file).context("the path is outside of the site")?);
        fs::create_dir_all(to.parent().context("no folder")?)?;
        if file.extension().is_some_and(|kind| kind == "md") {
            pages += 1;
            fs::write(&to, rewrite(&file, &fs::read_to_string(&file)?))?;
        } else {
            fs::copy(&file, &to)?;
        }
    }
    Ok(pages)
}

/// The path of a repository file in the site; `None` if the file is not part of the site.
fn place(file: &Path) -> Option<PathBuf> {
    if let Some((_, to)) = RENAMED.iter().find(|(from, _)| Path::new(from) == file) {
        return Some(PathBuf::from(to));
    }
    file.strip_prefix("docs").ok().map(Path::to_owned)
}

/// The text of the page `file`, with its links adapted to the site. Code blocks stay unchanged.
fn rewrite(file: &Path, text: &str) -> String {
    let mut in_code = false;
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        in_code ^= line.trim_start().starts_with("```");
        let mut parts = line.split("](");
        out.push_str(parts.next().unwrap_or_default());
        for part in parts {
            out.push_str("](");
            match part.split_once(')').filter(|_| !in_code) {
                Some((target, rest)) => {
                    for piece in [&link(file, target), ")", rest] {
                        out.push_str(piece);
                    }
                }
                None => out.push_str(part),
            }
        }
    }
    out
}

/// Converts the link `target` on the page `file`, so that it leads to a page on the site or to the
/// repository on the web.
fn link(file: &Path, target: &str) -> String {
    if target.contains(':') || target.starts_with('#') {
        return target.to_owned();
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(a, b)| (a, Some(b)));
    let wanted = plain(&file.parent().unwrap_or(Path::new("")).join(path));
    let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
    let from = place(file).unwrap_or_default();
    match place(&wanted).filter(|_| root().join(&wanted).is_file()) {
        Some(to) => {
            let up = "../".repeat(from.components().count().saturating_sub(1));
            format!("{up}{}{anchor}", to.display())
        }
        None => format!("{REPOSITORY}/{}{anchor}", wanted.display()),
    }
}

/// `path` without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::Normal(name) => out.push(name),
            _ => {}
        }
    }
    out
}

/// Checks that every local link on the site leads to an existing file and element; returns the
/// count of links.
fn check(html: &Path) -> anyhow::Result<usize> {
    let (mut links, mut dead) = (0, BTreeSet::new());
    let mut folders = vec![html.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // The print page repeats all other pages, and the links of the 404 page are relative to
            // another base.
            let name = path.file_name().unwrap_or_default();
            if path.extension().is_none_or(|kind| kind != "html")
                || name == "print.html"
                || name == "404.html"
            {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            for target in text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                if target.contains(':') || target.is_empty() {
                    continue;
                }
                links += 1;
                if !leads_somewhere(&path, &text, target) {
                    dead.insert(format!("{}: {target}", path.display()));
                }
            }
        }
    }
    let list: Vec<String> = dead.into_iter().collect();
    ensure!(list.is_empty(), "dead links:\n{}", list.join("\n"));
    Ok(links)
}

/// Whether the link `target` on the page at `path`, whose contents are `text`, leads to an existing
/// file and element.
fn leads_somewhere(path: &Path, text: &str, target: &str) -> bool {
    let (file, anchor) = target.split_once('#').map_or((target, None), |(a, b)| (a, Some(b)));
    let other = if file.is_empty() {
        None
    } else {
        let file = path.parent().unwrap_or(Path::new("")).join(file);
        match fs::read(&file) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(_) => return false,
        }
    };
    let text = other.as_deref().unwrap_or(text);
    anchor.is_none_or(|anchor| text.contains(&format!("id=\"{anchor}\"")))
}
