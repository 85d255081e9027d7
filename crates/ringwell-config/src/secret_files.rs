//! The files with secrets that a configuration names, for a check of their permissions.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

/// The files with secrets that the file at `path` names, whether they exist or not: keys, tokens,
/// and lists of ring pools, which contain their keys. Empty if the file cannot be read.
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
