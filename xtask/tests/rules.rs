//! Tests the repository's own rules. Each test is named after its rule, and lists every place that
//! breaks the rule.
//!
//! Exceptions are in [`EXCEPTIONS`]; a test ensures that the list only gets shorter.

#![expect(clippy::unwrap_used, reason = "a test program reports failures by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// The places that may break a rule for now: the rule and the file. Remove exceptions that are no
/// longer needed.
const EXCEPTIONS: [(&str, &str); 0] = [];

/// Longest source file.
const SOURCE_LINES_MAX: usize = 600;
/// The maximum length of a decision record in lines; a decision must fit on a page.
const DECISION_LINES_MAX: usize = 70;

#[test]
fn source_files_have_at_most_600_lines() {
    let long = files().into_iter().filter(|file| is_source(file));
    check("lines", long, |_, text| {
        let lines = text.lines().count();
        (lines > SOURCE_LINES_MAX).then(|| format!("{lines} lines: look for the second subject"))
    });
}

#[test]
fn a_decision_fits_on_a_page() {
    let decisions = files().into_iter().filter(|file| file.starts_with("docs/decisions"));
    check("page", decisions, |_, text| {
        let lines = text.lines().count();
        (lines > DECISION_LINES_MAX).then(|| format!("{lines} lines"))
    });
}

#[test]
fn no_file_contains_a_folder_of_a_personal_machine() {
    // The name of each folder is split in two, so that this file itself does not break the rule.
    let folders = [["/ho", "me/"], ["/ro", "ot/"], ["/wo", "rk/"], ["/Us", "ers/"]];
    let folders = folders.map(|parts| parts.concat());
    check("outside", files(), |_, text| {
        let found = folders.iter().find(|folder| names_folder(text, folder))?;
        Some(format!("names {found}"))
    });
}

#[test]
fn no_file_contains_the_host_of_a_package_registry() {
    let hosts = [
        ["crates", ".io"],
        ["rubygems", ".org"],
        ["pypi", ".org"],
        ["npmjs", ".org"],
        ["npmjs", ".com"],
        ["golang", ".org"],
        ["maven", ".org"],
        ["deb.debian", ".org"],
    ];
    let hosts = hosts.map(|parts| parts.concat());
    let written = files().into_iter().filter(|file| !is_lock_file(file));
    check("hosts", written, |_, text| {
        let found = hosts.iter().find(|host| text.contains(host.as_str()))?;
        Some(format!("names {found}"))
    });
}

#[test]
fn relative_links_in_documents_lead_somewhere() {
    let documents = files().into_iter().filter(|file| file.extension() == Some("md".as_ref()));
    check("links", documents, |file, text| {
        let folder = file.parent().unwrap_or(Path::new(""));
        let dead = links(text).into_iter().filter(|link| !leads_somewhere(folder, link));
        let dead: Vec<_> = dead.collect();
        (!dead.is_empty()).then(|| format!("dead links: {}", dead.join(", ")))
    });
}

#[test]
fn crates_depend_only_on_the_crates_below_them() {
    let (fences, mut broken) = (fences(), Vec::new());
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let Some(allowed) = fences.get(name) else {
            broken.push(format!("{name} is not in the table of docs/ARCHITECTURE.md"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().unwrap();
        // Dependencies of tests and examples are not restricted.
        let built = dependencies.iter().filter(|dependency| dependency["kind"] != "dev");
        let names = built.map(|dependency| dependency["name"].as_str().unwrap());
        let ours = names.filter(|name| name.starts_with("ringwell-") || *name == "xtask");
        let wrong = ours.filter(|other| *other != name && !allowed.contains(*other));
        broken.extend(wrong.map(|other| format!("{name} names {other}")));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The crates that each crate may depend on, according to the table in `docs/ARCHITECTURE.md`.
fn fences() -> BTreeMap<String, BTreeSet<String>> {
    let page = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let (_, table) = page.split_once("| crate | may depend on |\n").unwrap();
    let names = |cell: &str| -> BTreeSet<String> {
        let names = cell.split('`').skip(1).step_by(2);
        names
            .map(|name| if name == "xtask" { name.into() } else { format!("ringwell-{name}") })
            .collect()
    };
    let mut fences = BTreeMap::new();
    for line in table.lines().skip(1).take_while(|line| line.starts_with('|')) {
        let (of, allowed) = line.trim_matches('|').split_once('|').unwrap();
        fences.extend(names(of).into_iter().map(|name| (name, names(allowed))));
    }
    fences
}

#[test]
fn the_core_has_no_dependency() {
    let packages = packages();
    let core = packages.iter().find(|package| package["name"] == "ringwell-core").unwrap();
    let dependencies = core["dependencies"].as_array().unwrap();
    let needed: Vec<_> = dependencies
        .iter()
        .filter(|dependency| dependency["kind"] != "dev")
        .map(|dependency| dependency["name"].as_str().unwrap())
        .collect();
    assert!(needed.is_empty(), "ringwell-core depends on {needed:?}");
}

/// Makes the same check as `cargo deny`, because CI runs `cargo deny` only if it is installed;
/// building it takes a minute.
#[test]
fn dependencies_come_from_the_registry_under_licences_that_deny_toml_allows() {
    let deny = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let list = deny.split("\nallow = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
    let allowed: BTreeSet<&str> = list.split('"').skip(1).step_by(2).collect();
    assert!(allowed.contains("MIT"), "deny.toml's list was not read: {allowed:?}");
    // A licence expression is a list of alternatives. Each alternative is a list of licences that
    // apply together. If the expression contains parentheses, all of its licences must be allowed.
    let is_allowed = |licence: &str| {
        let both = |text: &str| text.split(" AND ").all(|part| allowed.contains(part.trim()));
        if licence.contains('(') {
            return both(&licence.replace(['(', ')'], " ").replace(" OR ", " AND "));
        }
        licence.replace('/', " OR ").split(" OR ").any(both)
    };
    let mut wrong = Vec::new();
    for package in metadata(&[]) {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or_default());
        if !is_allowed(licence) {
            wrong.push(format!("{name}: licence {licence:?}"));
        }
        if package["source"].as_str().is_some_and(|source| !source.starts_with("registry+")) {
            wrong.push(format!("{name} comes from {}", package["source"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The fuzzer is a separate workspace, so no other check notices that entries are missing from its
/// lock file.
#[test]
fn the_fuzzer_s_lock_file_has_our_crates_dependencies() {
    let file = std::fs::read_to_string(root().join("fuzz/Cargo.lock")).unwrap();
    let fuzzer = locked(&file);
    let mut compared = 0;
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let Some(known) = fuzzer.get(name) else { continue };
        let dependencies = package["dependencies"].as_array().unwrap();
        let built = dependencies.iter().filter(|dependency| dependency["kind"] != "dev");
        let name_of =
            |dependency: &serde_json::Value| dependency["name"].as_str().unwrap().to_owned();
        // An optional dependency is in the lock file only if the fuzzer enables it.
        let built = built.filter(|it| it["optional"] != true || known.contains(&*name_of(it)));
        let wanted: BTreeSet<String> = built.map(name_of).collect();
        let known: BTreeSet<String> = known.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            known, wanted,
            "{name}: `cargo update --workspace --manifest-path fuzz/Cargo.toml`"
        );
        compared += 1;
    }
    assert!(compared > 5, "{compared} of our crates are in it");
}

/// The project's crates in a lock file, and the dependencies of each.
fn locked(file: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let parts = file.split("[[package]]").filter_map(|part| {
        let (_, rest) = part.split_once("name = \"")?;
        let (name, rest) = rest.split_once('"')?;
        let dependencies = rest.lines().filter_map(|line| line.strip_prefix(" \""));
        let names = dependencies.filter_map(|line| line.split([' ', '"']).next());
        name.starts_with("ringwell-").then(|| (name, names.collect()))
    });
    parts.collect()
}

#[test]
fn every_crate_uses_the_lints_of_the_workspace() {
    let manifests = files().into_iter().filter(|file| {
        file.file_name() == Some("Cargo.toml".as_ref()) && file.components().count() > 1
    });
    check("lints", manifests, |file, text| {
        if file.ends_with("ringwell-embed/Cargo.toml") {
            return None;
        }
        let inherits = text.contains("[lints]\nworkspace = true\n");
        (!inherits).then(|| "lacks [lints] workspace = true".to_owned())
    });
}

/// A lint at the level `forbid` cannot be overridden. The crate with the C ABI therefore has its
/// own list of lints: the workspace lints and some more, but with `unsafe_code` at the level
/// `deny`. One module of this crate allows unsafe code.
#[test]
fn unsafe_code_is_in_one_module_of_one_crate() {
    let shared = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let shared = shared.split("[workspace.lints.rust]").nth(1).unwrap();
    let shared = shared.split("[profile").next().unwrap();
    let own = std::fs::read_to_string(root().join("crates/ringwell-embed/Cargo.toml")).unwrap();
    let lines = shared.lines().filter(|line| line.contains(" = "));
    for line in lines.filter(|line| !line.starts_with("unsafe_code")) {
        assert!(own.contains(line), "crates/ringwell-embed lacks the lint: {line}");
    }
    assert!(own.contains("unsafe_code = \"deny\""));
    let allow = concat!("allow(", "unsafe_code");
    let sources = files().into_iter().filter(|file| file.extension() == Some("rs".as_ref()));
    let allowing: Vec<_> = sources
        .filter(|file| std::fs::read_to_string(root().join(file)).unwrap().contains(allow))
        .collect();
    assert_eq!(allowing, [PathBuf::from("crates/ringwell-embed/src/abi.rs")]);
}

#[test]
fn a_clippy_toml_of_a_crate_repeats_the_root_s_which_it_replaces() {
    let shared = std::fs::read_to_string(root().join("clippy.toml")).unwrap();
    let own = files().into_iter().filter(|file| {
        file.file_name() == Some("clippy.toml".as_ref()) && file.components().count() > 1
    });
    check("clippy", own, |_, text| {
        let missing = shared.lines().find(|line| !text.lines().any(|own| own == *line))?;
        Some(format!("lacks {missing:?}"))
    });
}

/// The crates that assert their own invariants, and the minimum number of assertions per 100
/// functions, without tests. Crates that only decode have no assertions, because they refuse input
/// with an error.
const ASSERTIONS: [(&str, usize); 3] =
    [("ringwell-core", 37), ("ringwell-journal", 18), ("ringwell-engine", 20)];

#[test]
fn crates_assert_their_invariants_as_often_as_before() {
    for (name, least) in ASSERTIONS {
        let folder = Path::new("crates").join(name).join("src");
        let is_code = |file: &PathBuf| {
            let is_test = |part| part == Component::Normal("tests".as_ref());
            let is_tests = file.components().any(is_test) || file.ends_with("tests.rs");
            file.starts_with(&folder) && is_source(file) && !is_tests
        };
        let (mut functions, mut assertions) = (0, 0);
        for file in files().into_iter().filter(is_code) {
            let Ok(text) = std::fs::read_to_string(root().join(&file)) else { continue };
            // If a file contains tests, they are at its end.
            let code = text.split("#[cfg(test)]\n#[test]").next().unwrap_or_default();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in lines {
                functions += usize::from(line.contains("fn ") && line.contains('('));
                assertions += line.matches("assert!(").count();
            }
        }
        let share = 100 * assertions / functions;
        assert!(
            share >= least,
            "{name} has {assertions} assertions in {functions} functions, {share} for 100 and not \
             {least}: which invariants does the new code rely on?"
        );
        assert!(
            share < least + 5,
            "{name} has {share} assertions for 100 functions: raise {least}"
        );
    }
}

#[test]
fn the_list_of_exceptions_only_shrinks() {
    for (rule, file) in EXCEPTIONS {
        assert!(root().join(file).exists(), "{rule}: {file} does not exist any more, remove it");
    }
}

/// Fails if a file breaks `rule` or an exception is no longer needed, and lists all such files and
/// exceptions.
fn check(
    rule: &str,
    files: impl IntoIterator<Item = PathBuf>,
    fault: impl Fn(&Path, &str) -> Option<String>,
) {
    let mut broken = Vec::new();
    for file in files {
        // Skips files that are not text, and files that have just been deleted.
        let Ok(text) = std::fs::read_to_string(root().join(&file)) else { continue };
        let excepted = EXCEPTIONS.iter().any(|(of, name)| *of == rule && Path::new(name) == file);
        match fault(&file, &text) {
            Some(_) if excepted => {}
            Some(fault) => broken.push(format!("{}: {fault}", file.display())),
            None if excepted => {
                broken.push(format!("{}: remove it from EXCEPTIONS", file.display()));
            }
            None => {}
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Every file that git tracks or would add, as a path relative to the root.
fn files() -> BTreeSet<PathBuf> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "git ls-files failed");
    let names = String::from_utf8(output.stdout).unwrap();
    names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect()
}

/// Whether a package manager wrote the file. Go's lock files contain host names, because Go modules
/// are named after hosts.
fn is_lock_file(file: &Path) -> bool {
    let of_go = [Some("go.mod".as_ref()), Some("go.sum".as_ref())];
    of_go.contains(&file.file_name()) || file.extension() == Some("lock".as_ref())
}

fn is_source(file: &Path) -> bool {
    let sources = ["rs", "lua", "rb", "sh", "js", "py", "go"];
    let extension = file.extension().and_then(|extension| extension.to_str());
    file == Path::new(".ci/run") || extension.is_some_and(|it| sources.contains(&it))
}

/// Whether the text contains an absolute path that begins with `folder`. A path that contains
/// `folder` further inside does not count.
fn names_folder(text: &str, folder: &str) -> bool {
    text.match_indices(folder).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '}' | '~'))
    })
}

/// The targets of links `[text](target)` that point into the repository. Links in code blocks are
/// ignored.
fn links(markdown: &str) -> Vec<String> {
    let mut in_code = false;
    let mut found = Vec::new();
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            found.extend(targets.map(|(target, _)| target.to_owned()));
        }
    }
    found.retain(|target| !target.contains(':') && !target.starts_with('#'));
    found
}

fn leads_somewhere(folder: &Path, link: &str) -> bool {
    let path = link.split('#').next().unwrap_or(link);
    let inside = folder.join(path);
    let climbs = |depth: usize, part: Component<'_>| match part {
        Component::ParentDir => depth.checked_sub(1),
        Component::Normal(_) => Some(depth + 1),
        _ => Some(depth),
    };
    let stays_inside = inside.components().try_fold(0, climbs).is_some();
    stays_inside && root().join(inside).exists()
}

/// The packages of this project, as cargo reports them.
fn packages() -> Vec<serde_json::Value> {
    metadata(&["--no-deps"])
}

/// The packages reported by cargo.
fn metadata(more: &[&str]) -> Vec<serde_json::Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--offline"];
    let output =
        Command::new(cargo).args(arguments).args(more).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}
