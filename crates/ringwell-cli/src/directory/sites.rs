//! The web sites in the configuration and in the database.

use ringwell_config::Site;

/// Merges the web sites in the configuration with those in the database. The database takes
/// precedence.
pub(super) fn together(of_file: &[Site], mut of_database: Vec<Site>) -> Vec<Site> {
    let only_in_file =
        of_file.iter().filter(|site| !of_database.iter().any(|other| other.key == site.key));
    let only_in_file: Vec<_> = only_in_file.cloned().collect();
    of_database.extend(only_in_file);
    of_database
}
