//! A secret that is created once for a data directory and then kept there.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::random;

/// The length of a secret, in bytes.
const BYTES: usize = 32;

/// Reads the secret at `path`. If there is none, creates one that only its owner can read.
///
/// # Errors
/// Fails if the file cannot be read or written, or if it does not contain a secret.
pub fn kept_secret(path: &Path) -> io::Result<Vec<u8>> {
    match File::open(path) {
        Ok(mut file) => {
            let mut secret = Vec::new();
            Read::by_ref(&mut file).take(BYTES as u64 + 1).read_to_end(&mut secret)?;
            if secret.len() == BYTES {
                return Ok(secret);
            }
            Err(no_secret(path))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secret: [u8; BYTES] = random()?;
            let new = path.with_extension("new");
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&new)?;
            file.write_all(&secret)?;
            file.sync_all()?;
            std::fs::rename(&new, path)?;
            Ok(secret.to_vec())
        }
        Err(error) => Err(error),
    }
}

/// Checks that [`kept_secret`] would accept the file at `path`, or would create it.
///
/// # Errors
/// Fails if [`kept_secret`] would refuse the file.
pub fn check_secret(path: &Path) -> io::Result<()> {
    match path.metadata() {
        Ok(found) if found.len() != BYTES as u64 => Err(no_secret(path)),
        _ => Ok(()),
    }
}

fn no_secret(path: &Path) -> io::Error {
    let path = path.display();
    let why = format!(
        "{path} does not contain a valid secret; remove the file (`rm {path}`), and the server \
         creates a new secret"
    );
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
#[test]
fn a_secret_is_created_once_and_an_invalid_one_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site-secret");
    let made = kept_secret(&path).unwrap();
    assert_eq!(kept_secret(&path).unwrap(), made);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::write(&path, b"short").unwrap();
    assert!(kept_secret(&path).unwrap_err().to_string().contains("remove the file"));
}
