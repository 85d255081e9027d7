//! A cluster's secret: in the cluster file or, better, in a separate file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ringwell_directory::Fault;

use crate::cluster::Secret;
use crate::fields::text;
use crate::section::Section;
use crate::toml_file::read_bytes;
use crate::values::{ValueError, parse_path};

/// The permission bits for users other than the owner and the group.
const OTHERS: u32 = 0o007;

/// Reads the secret from the cluster file at `path`, or from the file that it names. Also returns
/// warnings about the secret.
pub(super) fn read(file: &mut Section<'_, '_>, path: &Path) -> Option<(Secret, Vec<Fault>)> {
    let inline = file.take("secret", text(|secret| Secret::parse(secret).map_err(ValueError::new)));
    let base = path.parent().unwrap_or(Path::new(""));
    let outside = file.take(
        "secret_file",
        text(|name| {
            let secret_path = base.join(parse_path(name)?);
            Ok((read_file(&secret_path)?, secret_path))
        }),
    );
    match (file.has("secret"), file.has("secret_file")) {
        (true, true) => {
            let error = ValueError::new("conflicts with secret").hint("remove one of them");
            file.fault("secret_file", error);
        }
        (false, false) => {
            let hint = "write e.g. secret_file = \"cluster.secret\"";
            file.miss("secret_file", hint);
        }
        _ => {}
    }
    match (inline, outside) {
        (Some(secret), _) => Some((secret, warnings(path))),
        (None, Some((secret, secret_path))) => Some((secret, warnings(&secret_path))),
        (None, None) => None,
    }
}

/// Skips the secret.
pub(super) fn skip(file: &mut Section<'_, '_>) {
    let _ = file.take("secret", |_| Ok(()));
    let _ = file.take("secret_file", |_| Ok(()));
}

/// Reads the secret from a file. White space at the end of the file is not part of the secret.
pub(crate) fn read_file(path: &Path) -> Result<Secret, ValueError> {
    let fault = |what: String| ValueError::new(format!("{}: {what}", path.display()));
    let bytes = read_bytes(path).map_err(|error| {
        // The message does not contain the file's name, in case a user wrote the secret instead of
        // a name. A secret may contain a slash, so the folder is shown only if it exists.
        let folder = path.parent().filter(|folder| folder.is_dir());
        let place = folder.map(|folder| format!(" in \"{}\"", folder.display()));
        let place = place.unwrap_or_default();
        ValueError::new(format!("the file{place} cannot be read: {error}"))
            .hint("write the name of a file that contains the secret")
    })?;
    let secret = String::from_utf8(bytes).map_err(|_| fault("is not text".to_owned()))?;
    Secret::parse(secret.trim_ascii_end()).map_err(fault)
}

/// Returns a warning if users other than the owner and the group can access the file that contains
/// the secret.
fn warnings(path: &Path) -> Vec<Fault> {
    let mode = std::fs::metadata(path).map(|metadata| metadata.permissions().mode());
    if mode.is_ok_and(|mode| mode & OTHERS == 0) {
        return Vec::new();
    }
    vec![Fault {
        file: Some(path.display().to_string()),
        message: "contains the cluster's secret, but other users can access it".to_owned(),
        hint: Some("remove their access: chmod o= FILE".to_owned()),
        ..Fault::default()
    }]
}
