//! The certificates for a cluster's links.

use std::path::Path;

use crate::cluster::TlsFiles;
use crate::fields::text;
use crate::section::Section;
use crate::values::parse_path;

/// The table `[tls]`; `None` if it is missing. Relative paths are relative to the directory of
/// `path`.
pub(super) fn read(file: &mut Section<'_, '_>, path: &Path) -> Option<TlsFiles> {
    let base = path.parent().unwrap_or(Path::new(""));
    let mut section = file.section("tls");
    if !file.has("tls") {
        return None;
    }
    let mut require = |field, hint: &str| {
        section.require(field, hint, text(|name| Ok(base.join(parse_path(name)?))))
    };
    let authority = require("ca", "write e.g. ca = \"ca.pem\"");
    let certificate = require("certificate", "write e.g. certificate = \"{node}.pem\"");
    let key = require("key", "write e.g. key = \"{node}.key\"");
    section.finish();
    Some(TlsFiles { authority: authority?, certificate: certificate?, key: key? })
}

/// Skips the table.
pub(super) fn skip(file: &mut Section<'_, '_>) {
    let _ = file.take("tls", |_| Ok(()));
}
