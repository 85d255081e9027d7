//! Tests that each link to a place within a page leads to a heading or to an id in that page, as
//! GitHub and mdBook compute them, and that a link to a step of a page leads to this step.

#![allow(clippy::unwrap_used, reason = "a test program")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The lines of a page that are not in code blocks, each with its number.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((at + 1, line))
    })
}

/// The id that GitHub and mdBook give to a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The ids of a page's headings and of its `<a id="…">`, and the faults: written ids that occur
/// twice. If headings are equal, the second one's id ends in `-1`.
fn ids(text: &str) -> (BTreeSet<String>, Vec<String>) {
    let (mut ids, mut written, mut twice) = (BTreeSet::new(), Vec::new(), Vec::new());
    for (at, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() < line.len() && heading.starts_with(' ') {
            let id = slug(heading.trim());
            if !ids.insert(id.clone()) {
                ids.insert(format!("{id}-1"));
            }
        }
        let of_line = line.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
        written.extend(of_line.map(|id| (at, id.to_owned())));
    }
    for (at, id) in written {
        if !ids.insert(id.clone()) {
            twice.push(format!("{at}: #{id} occurs twice"));
        }
    }
    (ids, twice)
}

/// The links in a page, each with its line number and the text after it.
fn links(text: &str) -> Vec<(usize, &str, &str)> {
    prose(text)
        .flat_map(|(at, line)| {
            let parts = line.split("](").skip(1).filter_map(|part| part.split_once(')'));
            parts.map(move |(target, rest)| (at, target, rest))
        })
        .filter(|(_, target, _)| !target.contains(':'))
        .collect()
}

/// Whether a link without an id is followed by the number of a step, as in `[page](page.md), step 3`.
fn is_step(target: &str, rest: &str) -> bool {
    let rest = rest.trim_start_matches([')', '(', ',', ' ']);
    let is_page = Path::new(target).extension().is_some_and(|kind| kind == "md");
    is_page && ["step ", "steps "].iter().any(|word| rest.starts_with(word))
}

/// `path` without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::Normal(name) => out.push(name),
            _ => {}
        }
    }
    out
}

#[test]
fn links_lead_to_a_heading_or_a_step_of_the_page() {
    let listed =
        Command::new("git").args(["ls-files", "*.md"]).current_dir(root()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let pages: BTreeMap<PathBuf, String> = listed
        .lines()
        .filter_map(|page| Some((page.into(), fs::read_to_string(root().join(page)).ok()?)))
        .collect();
    assert!(pages.len() > 50, "{listed}");
    let mut wrong = Vec::new();
    let mut found = BTreeMap::new();
    for (page, text) in &pages {
        let (ids, twice) = ids(text);
        wrong.extend(twice.into_iter().map(|fault| format!("{}:{fault}", page.display())));
        found.insert(page.clone(), ids);
    }
    for (page, text) in &pages {
        for (at, target, rest) in links(text) {
            let (path, id) = target.split_once('#').map_or((target, None), |(a, b)| (a, Some(b)));
            let other = match path {
                "" => page.clone(),
                path => plain(&page.parent().unwrap().join(path)),
            };
            // GitHub shows pages only; in other files, an id leads nowhere and does no harm.
            let ids = found.get(&other);
            if id.is_some_and(|id| ids.is_some_and(|ids| !ids.contains(id))) {
                wrong.push(format!("{}:{at}: {target} leads nowhere", page.display()));
            }
            if is_step(target, rest) {
                wrong.push(format!("{}:{at}: {target}: link to the step", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ids_and_steps_are_found() {
    assert_eq!(slug("The server's log: `a_b` and more"), "the-servers-log-a_b-and-more");
    let page = "# One page\n```sh\n# no heading\n```\n1. <a id=\"first\"></a>Do it.\n## First\n";
    let (ids, twice) = ids(page);
    assert!(ids.contains("one-page") && ids.contains("first") && ids.len() == 2, "{ids:?}");
    assert_eq!(twice, ["5: #first occurs twice"]);
    let steps = ["[a](b.md), step 3", "([a](b.md), steps 1 and 2)", "[a](b.md) (step 3)"];
    let is_one =
        |line: &str| links(line).into_iter().any(|(_, target, rest)| is_step(target, rest));
    assert!(steps.into_iter().all(is_one));
    assert!(!is_one("[a](b.md#c), step 3") && !is_one("[a](b.md): steps"));
}
