//! Reads the pools for batches from a CSV file like the one that `ringwell demo` writes.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use serde::Deserialize;

/// A telephone number as the API writes it: ten digits, or `+` and the digits including the country
/// code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Number {
    has_country: bool,
    digits: u64,
}

impl TryFrom<String> for Number {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let (has_country, rest) = match text.strip_prefix('+') {
            Some(rest) => (true, rest),
            None => (false, text.as_str()),
        };
        let is_number = rest.len() <= 15 && rest.bytes().all(|byte| byte.is_ascii_digit());
        let digits = rest.parse().ok().filter(|_| is_number);
        digits.map(|digits| Self { has_country, digits }).ok_or("no telephone number")
    }
}

impl Number {
    /// Returns the number that is `count` greater than this one.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self { digits: self.digits + count, ..self }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.has_country { "+" } else { "" }, self.digits)
    }
}

/// The data about a ring pool that a client needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// The pool's id in the API.
    pub id: u64,
    /// The key that every row for the pool must contain.
    pub ring_pool_key: String,
    /// The overflow number, which is handed out when none of the pool's other numbers is free.
    pub overflow_number: Option<Number>,
    /// The guaranteed lifetime of an allocation.
    pub lifetime_ms: u64,
    /// The first of the pool's consecutive numbers.
    pub first_number: Number,
    /// The count of the pool's numbers.
    pub numbers: u64,
}

/// The reason why a list of pools cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PoolsError {
    /// The file cannot be read.
    #[error(
        "cannot read the pools from {}: {source}; set --pools to a list of pools, such as the one \
         that `ringwell demo` writes into its data directory", path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: csv::Error,
    },
    /// A line does not describe a pool.
    #[error("{}: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The error, which contains the line's number.
        source: csv::Error,
    },
    /// A pool has an invalid key or lifetime.
    #[error("{}: pool {pool}: {what}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The pool.
        pool: u64,
        /// The fault.
        what: &'static str,
    },
    /// The file has no line after the header.
    #[error("{} lists no pool", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

#[derive(Deserialize)]
struct Line {
    id: u64,
    ring_pool_key: String,
    overflow_number: Option<Number>,
    lifetime_seconds: f64,
    first_number: Number,
    numbers: u64,
}

impl Pool {
    /// Reads a list with the header
    /// `id,ring_pool_key,overflow_number,lifetime_seconds,first_number,numbers`.
    ///
    /// # Errors
    /// [`PoolsError`] contains the file and, if one is at fault, the line or the pool.
    pub fn read_list(path: &Path) -> Result<Vec<Self>, PoolsError> {
        if path.is_dir() {
            let source = csv::Error::from(io::Error::from(io::ErrorKind::IsADirectory));
            return Err(PoolsError::Read { path: path.to_owned(), source });
        }
        let path = || path.to_owned();
        let mut reader = csv::Reader::from_path(path())
            .map_err(|source| PoolsError::Read { path: path(), source })?;
        let mut pools = Vec::new();
        for line in reader.deserialize() {
            let line: Line = line.map_err(|source| PoolsError::Line { path: path(), source })?;
            let id = line.id;
            let pool = Self::new(line).map_err(|what| PoolsError::Value {
                path: path(),
                pool: id,
                what,
            })?;
            pools.push(pool);
        }
        if pools.is_empty() { Err(PoolsError::Empty { path: path() }) } else { Ok(pools) }
    }

    fn new(line: Line) -> Result<Self, &'static str> {
        let Line { id, ring_pool_key, overflow_number, lifetime_seconds, first_number, numbers } =
            line;
        // The key is written into a query without escapes, so it must not need any.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        if ring_pool_key.is_empty() || !ring_pool_key.bytes().all(is_plain) {
            return Err("the key must consist of letters, digits and the characters -_.~");
        }
        if !(0.001..1e9).contains(&lifetime_seconds) {
            return Err("the lifetime must be 0.001 to 1,000,000,000 seconds");
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the value is 1 to 1e12, as checked above"
        )]
        let lifetime_ms = (lifetime_seconds * 1e3).round() as u64;
        Ok(Self { id, ring_pool_key, overflow_number, lifetime_ms, first_number, numbers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Pool>, PoolsError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Pool::read_list(file.path())
    }

    const HEADER: &str = "id,ring_pool_key,overflow_number,lifetime_seconds,first_number,numbers\n";

    #[test]
    fn a_list_has_pools_with_and_without_overflow() {
        let lines = "1,k1,9990000000,0.01,2000000000,500\n2,k2,,1800,+493012345000,2\n";
        let pools = read(&format!("{HEADER}{lines}")).unwrap();
        assert_eq!(pools[0].overflow_number.unwrap().to_string(), "9990000000");
        assert_eq!(pools[1].first_number.plus(1).to_string(), "+493012345001");
        assert_eq!(pools[0].lifetime_ms, 10);
        assert_eq!(pools[1].overflow_number, None);
        assert_eq!(pools[1].lifetime_ms, 1_800_000);
    }

    #[test]
    fn the_fault_of_a_list_is_named() {
        let fault_of = |text: &str| read(&format!("{HEADER}{text}")).unwrap_err().to_string();
        assert!(fault_of("").contains("lists no pool"));
        assert!(fault_of("1,k,,x,1,1\n").contains("line: 2"), "{}", fault_of("1,k,,x,1,1\n"));
        assert!(fault_of("7,a&b,,1,1,1\n").contains("pool 7: the key"));
        assert!(fault_of("7,a,,0,1,1\n").contains("pool 7: the lifetime"));
        let missing = Pool::read_list(Path::new("/nowhere/pools.csv")).unwrap_err().to_string();
        assert!(missing.contains("/nowhere/pools.csv") && missing.contains("--pools"), "{missing}");
    }
}
