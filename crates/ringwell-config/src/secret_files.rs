//! Lists the secret files that a configuration names, so that their permissions can be checked.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

/// Returns the secret files that the configuration file at `path` names, whether or not they exist.
/// These files contain keys, tokens, or lists of ring pools with the pools' keys. Returns no files
/// if the configuration file cannot be read.
#[must_use]
pub fn secret_files(path: &Path) -> Vec<PathBuf> {
    let Ok(text) = std::fs::read_to_string(path) else { return Vec::new() };
    let (table, _) = DeTable::parse_recoverable(&text);
    let mut names = Vec::new();
    add(table.get_ref(), "", &mut names);
    let base = path.parent().unwrap_or(Path::new(""));
    names.into_iter().map(|name| base.join(name)).collect()
}

fn add(table: &DeTable<'_>, section: &str, names: &mut Vec<String>) {
    for (field, value) in table {
        add_value((section, field.get_ref()), value.get_ref(), names);
    }
}

fn add_value(place: (&str, &str), value: &DeValue<'_>, names: &mut Vec<String>) {
    match value {
        DeValue::Table(table) => add(table, place.1, names),
        DeValue::Array(all) => all.iter().for_each(|it| add_value(place, it.get_ref(), names)),
        DeValue::String(name) if is_secret(place) => names.push(name.to_string()),
        _ => {}
    }
}

fn is_secret((section, field): (&str, &str)) -> bool {
    match field {
        "ring_pools" | "credentials" => true,
        "key" => section == "tls",
        _ => ["secret_file", "secret_files", "key_files", "token_file"]
            .iter()
            .any(|end| field.ends_with(end)),
    }
}

/// The name of a secret file, for messages. If the name looks like a secret, it is not shown.
#[must_use]
pub fn shown_file(path: &Path) -> String {
    let last = path.file_name().unwrap_or_default().to_string_lossy();
    let is_short =
        last.len() < 20 && path.parent().is_none_or(|it| it.as_os_str().is_empty() || it.is_dir());
    let is_name = is_short || (last.contains('.') && last.len() <= 100);
    let has_lines = path.as_os_str().as_encoded_bytes().contains(&b'\n');
    if path.exists() || (is_name && !has_lines) {
        path.display().to_string()
    } else {
        "the file (its name is not shown, because it may be the secret itself)".to_owned()
    }
}

#[cfg(test)]
#[test]
fn a_secret_in_place_of_a_file_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("a-long-name-without-an-ending");
    std::fs::write(&there, "").unwrap();
    for shown in ["secret", "keys/server.pem", "../demo-token", "/missing/key.pem"] {
        assert_eq!(shown_file(Path::new(shown)), shown);
    }
    assert_eq!(shown_file(&there), there.display().to_string());
    let secret = "MfKQ9r8GKYqTwjUPD8ILPZIo2LaLaSw";
    for hidden in [secret, "MfKQ/short", "-----BEGIN PRIVATE KEY-----\nMII.\n-----END-----"] {
        let shown = shown_file(&folder.path().join(hidden));
        assert!(shown.contains("not shown") && !shown.contains("MfKQ"), "{shown}");
    }
}

#[cfg(test)]
#[test]
fn files_with_secrets_are_found_in_all_tables() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ringwell.toml");
    let text = "ring_pools = \"pools.csv\"\n[tls]\ncertificate = \"c.pem\"\nkey = \"k.pem\"\n\
        [[site]]\nkey = \"site_1\"\n[calls]\n[[calls.account]]\nsecret_files = [\"a\", \"b\"]\n\
        [[calls.destination]]\nring_pools = [1]\n[application]\nwebhook_secret_file = \"/w\"\n";
    std::fs::write(&path, text).unwrap();
    let mut expected: Vec<PathBuf> =
        ["pools.csv", "k.pem", "a", "b"].map(|it| folder.path().join(it)).into();
    expected.push("/w".into());
    let mut found = secret_files(&path);
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}
