//! The version of this program.

use std::sync::LazyLock;

/// The version and, in packages, the commit.
pub(crate) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = ringwell_admin::COMMIT.map(|commit| format!(" ({commit})"));
    env!("CARGO_PKG_VERSION").to_owned() + &commit.unwrap_or_default()
});
