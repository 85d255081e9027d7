//! The errors of the directory's database, grouped by the action that the caller can take.

use std::borrow::Cow;

use ringwell_core::{PoolId, PromoNumber};
use ringwell_directory::PoolFault;

use crate::file::FileFault;
use crate::provider::ProviderError;

/// The reason why the database did not carry out a request. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, or it failed. A later attempt may succeed.
    #[error("the directory's database {}", trouble(.0))]
    Database(#[source] sqlx::Error),
    /// The database can be reached but does not answer. A later attempt may succeed.
    #[error("the directory's database did not answer in time")]
    Silent,
    /// Another change took longer than a change may wait for it. A later attempt may succeed.
    #[error("another change of the directory is in progress")]
    Busy,
    /// PostgreSQL refuses all changes, as a standby does.
    #[error("the directory's database is read-only: set the address of the primary server")]
    ReadOnly,
    /// The file cannot be used as a database.
    #[error(transparent)]
    File(#[from] FileFault),
    /// The database was written by a newer version of the program.
    #[error(
        "the database has schema {found}, but this version of Ringwell supports only schemas up \
        to {known}: use a newer version of Ringwell"
    )]
    NewerSchema {
        /// The schema version of the database.
        found: usize,
        /// The newest schema version that this program supports.
        known: usize,
    },
    /// The stored data breaks a rule that every writer obeys.
    #[error("the directory's database is damaged: {0}")]
    Damaged(String),
    /// Numbers cannot be bought now. A later attempt may succeed.
    #[error(transparent)]
    Provider(ProviderError),
    /// The change would break a rule.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The rule that a change would break.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The pool does not exist.
    #[error("there is no ring pool {0}")]
    UnknownPool(PoolId),
    /// The pool already has two keys, and a third would replace the second.
    #[error(
        "ring pool {0} already has two keys: remove the previous key first, or replace the newer \
            key (clients may already be using it)"
    )]
    TwoKeys(PoolId),
    /// There is already a pool with this id.
    #[error("ring pool {0} already exists")]
    PoolExists(PoolId),
    /// `id_from_network` must be unique within a network.
    #[error("another ring pool of the network already has the id_from_network {0:?}")]
    IdTaken(String),
    /// A rule about a single pool.
    #[error("{}: {}", .0.field(), .0)]
    Pool(PoolFault),
    /// The number must be free, but it is in use.
    #[error("{number} is {holder}")]
    NumberTaken {
        /// The first number in the request that is in use.
        number: PromoNumber,
        /// The state of the number, as in `in the rotation of ring pool 7`.
        holder: String,
    },
    /// The number is not free, and the reason is not shown to the author because the number is in
    /// another network.
    #[error("{0} cannot be used by this network")]
    NumberUnusable(PromoNumber),
    /// The id belongs or belonged to another network.
    #[error("the ring pool id {0} cannot be used by this network")]
    PoolIdUnusable(PoolId),
    /// The number was never added to the inventory.
    #[error("{0} is not in the inventory: add the number first")]
    UnknownNumber(PromoNumber),
    /// `allow_overflow` can only be set when the pool is created.
    #[error("allow_overflow of a ring pool cannot be changed")]
    OverflowIsFixed,
    /// The requested size exceeds this maximum count of numbers in a ring pool.
    #[error("max_pool_size: on this server, a ring pool may have at most {0} numbers")]
    PoolCeiling(u32),
    /// The network's pools would contain more numbers than its ceiling allows.
    #[error("network {network} may have at most {most} numbers in its ring pools")]
    NetworkCeiling {
        /// The network.
        network: String,
        /// Its ceiling.
        most: u64,
    },
    /// The configuration does not specify a seller of numbers.
    #[error("this server cannot buy numbers: set `offers` under [inventory]")]
    NoProvider,
    /// A whole list can be imported only into a database without pools.
    #[error(
        "a complete list of ring pools can be imported only into an empty directory, but this \
            directory already contains ring pools or numbers: use an empty database, or add ring \
            pools with `ringwell pools import`"
    )]
    NotEmpty,
    /// The directory already contains the maximum count of sites.
    #[error("the directory already has {0} sites, which is the maximum: remove a site first")]
    SitesMax(i64),
    /// The id is too long for a PostgreSQL index.
    #[error("ids of networks, advertisers, campaigns and ring pools may have at most {0} bytes")]
    LongId(usize),
    /// The database cannot store the value.
    #[error("{0}")]
    Unfit(String),
    /// PostgreSQL cannot store a NUL character in text.
    #[error("text must not contain the character NUL")]
    Nul,
}

/// Whether PostgreSQL refused text because it contains a NUL character.
#[must_use]
pub fn is_nul(error: &sqlx::Error) -> bool {
    // Only errors that the database returns have a code, and SQLite's codes are shorter than the
    // two below.
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| matches!(&*code, "22021" | "22P05"))
}

/// Whether the database could not write because its disk is full. Nothing was changed.
#[must_use]
pub fn is_full(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    // SQLite's codes FULL and IOERR_SHMSIZE (no space for `-shm`), and PostgreSQL's disk_full.
    code.is_some_and(|code| matches!(&*code, "13" | "4874" | "53100"))
}

impl StoreError {
    /// Whether the database's disk is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Database(error) if is_full(error))
    }

    /// Whether a change failed because it waited too long for another change to end.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        // PostgreSQL's lock_not_available, and SQLite's BUSY.
        matches!(self, Self::Busy) || self.code().is_some_and(|code| code == "55P03" || code == "5")
    }

    /// Whether PostgreSQL refuses all changes, as a standby does.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::ReadOnly) || self.code().is_some_and(|code| code == "25006")
    }

    /// Whether the database's user lacks a right that the request needs.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.code().is_some_and(|code| code == "42501")
    }

    /// Whether the database answered with an error, so that it can be reached.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(_)))
    }

    /// The code of an error that the database returned.
    fn code(&self) -> Option<Cow<'_, str>> {
        let Self::Database(error) = self else { return None };
        error.as_database_error().and_then(sqlx::error::DatabaseError::code)
    }
}

/// Describes a database error in words that complete the sentence `the database {}`. An error that
/// the database returns, such as a missing table, has a different text from a failure to reach the
/// database.
#[must_use]
pub fn trouble(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => {
            let remedy = match error.code().as_deref() {
                Some("42501") => {
                    ": grant the user the missing rights, or connect as the owner of the tables"
                }
                Some("25006") => ": set the address of the primary server",
                _ => "",
            };
            format!("answers with an error: {}{remedy}", error.message())
        }
        // The connection pool retries a refused connection until its timeout expires, and then
        // reports no reason.
        sqlx::Error::PoolTimedOut => "does not answer: connection timed out: check that the \
                                      database is running, and check its address, user and password"
            .to_owned(),
        other => format!("does not answer: {other}"),
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        if is_nul(&error) { Self::Refused(Refusal::Nul) } else { Self::Database(error) }
    }
}

impl From<PoolFault> for StoreError {
    fn from(fault: PoolFault) -> Self {
        Self::Refused(Refusal::Pool(fault))
    }
}
