//! Tests that a crate's source files have no circular imports: files with values are at the bottom,
//! and the files that use them are above.
//!
//! A file depends on the modules that its `crate::` and `super::` paths lead to, after re-exports
//! are resolved.

#![expect(clippy::unwrap_used, reason = "a test program reports failures by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The path of a module from its crate's root; the root itself has the empty path.
type Module = Vec<String>;

#[test]
fn no_crate_has_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    let mut folders: Vec<_> = crates.map(|entry| entry.unwrap().path()).collect();
    folders.extend([root.join("bench"), root.join("xtask")]);
    let mut found = Vec::new();
    for folder in folders {
        let circle = largest_circle(&Sources::read(&folder.join("src")));
        if !circle.is_empty() {
            let (name, files) = (folder.file_name().unwrap_or_default(), circle.join(", "));
            found.push(format!("{}: {files}", name.display()));
        }
    }
    assert!(found.is_empty(), "files that import each other:\n{}", found.join("\n"));
}

#[test]
fn a_circle_through_a_re_export_is_found() {
    let files = [
        ("", "mod a; mod b; pub use b::Value;"),
        ("a", "use crate::Value; use crate::b::{self, other::{X}};"),
        ("b", "pub struct Value; fn f() { super::a::g() }"),
    ];
    let files = files.map(|(module, text)| (module_of(module), text.to_owned()));
    assert_eq!(largest_circle(&Sources(files.into())), ["a", "b"]);
}

fn module_of(path: &str) -> Module {
    path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// The code of each module that is a file, without comments and tests.
struct Sources(BTreeMap<Module, String>);

impl Sources {
    fn read(src: &Path) -> Self {
        let mut modules = BTreeMap::new();
        let mut folders = vec![src.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Some(module) = module_at(src, &path) {
                    modules.insert(module, code(&std::fs::read_to_string(&path).unwrap()));
                }
            }
        }
        Self(modules)
    }

    /// The file that defines the item at `path`, if the path is resolved from `module`.
    fn definition(&self, mut module: Module, path: &[String]) -> Module {
        for (at, part) in path.iter().enumerate() {
            let mut child = module.clone();
            child.push(part.clone());
            if self.0.contains_key(&child) {
                module = child;
            } else if let Some(found) = self.re_export(&module, part, path.len() - at) {
                return found;
            } else {
                break;
            }
        }
        module
    }

    /// The module that `module` re-exports `name` from. At most `depth` re-exports are followed.
    fn re_export(&self, module: &Module, name: &str, depth: usize) -> Option<Module> {
        let text = self.0.get(module)?;
        for (at, _) in text.match_indices("use ") {
            let is_public = text[..at].trim_end().ends_with([')', 'b']);
            let tree = &text[at + 4..];
            if !is_public || !tree.starts_with(|c: char| c.is_lowercase()) {
                continue;
            }
            for path in paths(tree) {
                let Some((last, before)) = path.split_last() else { continue };
                if last == name && !before.is_empty() {
                    let (start, rest) = start(module, before);
                    let known = rest.first().is_none_or(|first| {
                        let mut child = start.clone();
                        child.push(first.clone());
                        self.0.contains_key(&child)
                    });
                    return known.then(|| match depth {
                        0 => start,
                        _ => self.definition(start, rest),
                    });
                }
            }
        }
        None
    }

    /// The modules that `module` depends on.
    fn uses(&self, module: &Module) -> BTreeSet<Module> {
        let text = &self.0[module];
        let mut found = BTreeSet::new();
        for head in ["crate::", "super::", "self::"] {
            for (at, _) in text.match_indices(head) {
                let before = text[..at].chars().next_back();
                if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':')) {
                    continue;
                }
                for path in paths(&text[at..]) {
                    let (start, rest) = start(module, &path);
                    found.insert(self.definition(start, rest));
                }
            }
        }
        // A module refers to its own children by `child::name`, without a prefix.
        for child in self.0.keys().filter(|it| it.len() == module.len() + 1) {
            let Some((name, parent)) = child.split_last() else { continue };
            let mention = format!("{name}::");
            let is_used = parent == module.as_slice()
                && text.match_indices(&mention).any(|(at, _)| {
                    !text[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':'))
                        && !is_re_export(&text[..at])
                });
            if is_used {
                found.insert(child.clone());
            }
        }
        found.remove(module);
        found
    }
}

/// Whether `before` ends in a `pub use`, which only re-exports names.
fn is_re_export(before: &str) -> bool {
    let before = before.trim_end();
    before.ends_with("pub use") || before.ends_with(") use")
}

/// Resolves the prefixes of a path (`crate`, `self`, `super`); returns the module that they lead
/// to, and the rest of the path.
fn start<'a>(module: &Module, path: &'a [String]) -> (Module, &'a [String]) {
    let (mut at, mut rest) = (module.clone(), path);
    while let Some((first, after)) = rest.split_first() {
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            _ => break,
        }
        rest = after;
    }
    (at, rest)
}

fn module_at(src: &Path, file: &Path) -> Option<Module> {
    let path = file.strip_prefix(src).ok()?.with_extension("");
    let mut module: Module = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let is_source = file.extension().is_some_and(|it| it == "rs");
    if !is_source || module.iter().any(|part| part == "tests" || part == "main") {
        return None;
    }
    if module.last().is_some_and(|last| last == "mod" || last == "lib") {
        module.pop();
    }
    Some(module)
}

/// Removes comments, and a module of tests at the end of the file. In that module, `super` would
/// mean the file itself.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths at the start of `text`: all paths of a `use` tree, or the one path of an expression.
fn paths(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    tree(&mut text.chars().filter(|c| !c.is_whitespace()).peekable(), &[], &mut found);
    found
}

fn tree<I: Iterator<Item = char>>(
    text: &mut std::iter::Peekable<I>,
    before: &[String],
    found: &mut Vec<Vec<String>>,
) {
    let mut path = before.to_vec();
    loop {
        let mut part = String::new();
        while let Some(c) = text.next_if(|c| c.is_alphanumeric() || *c == '_') {
            part.push(c);
        }
        if !part.is_empty() {
            path.push(part);
        }
        if text.next_if_eq(&':').is_some() && text.next_if_eq(&':').is_some() {
            if text.next_if_eq(&'{').is_none() {
                continue;
            }
            while text.peek().is_some_and(|c| *c != '}') {
                tree(text, &path, found);
                if text.next_if_eq(&',').is_none() {
                    break;
                }
            }
            text.next_if_eq(&'}');
            return;
        }
        found.push(path);
        return;
    }
}

/// The sorted names of the largest set of files that all depend on each other. Empty if there is no
/// such set.
fn largest_circle(sources: &Sources) -> Vec<String> {
    let uses: BTreeMap<&Module, BTreeSet<Module>> =
        sources.0.keys().map(|module| (module, sources.uses(module))).collect();
    let reach = |from: &Module| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = open.pop() {
            for next in uses.get(&module).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        sources.0.keys().map(|module| (module, reach(module))).collect();
    let circle = |of: &Module| {
        let others = reached[of]
            .iter()
            .filter(|other| reached.get(other).is_some_and(|from_there| from_there.contains(of)));
        others.cloned().collect::<Vec<_>>()
    };
    let largest = sources.0.keys().map(circle).max_by_key(Vec::len).unwrap_or_default();
    let name = |module: &Module| match module.as_slice() {
        [] => "lib".to_owned(),
        parts => parts.join("/"),
    };
    largest.iter().map(name).collect()
}
