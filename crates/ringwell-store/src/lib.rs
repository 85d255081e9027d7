//! The directory of ring pools in a database: SQLite inside the process, or PostgreSQL.
//!
//! Owns pools, numbers, tokens and nodes, and records the author of each change. The time is passed
//! in as an argument. Does not depend on HTTP. Does not record lockouts: only the shards do.
//! Invariants: the directory contains each number at most once. Each change has one version, one
//! author and its own lines in the audit log. A number does not enter another pool while a visitor
//! may still hold it. Source: docs/spec/directory.md.

mod backup;
mod ceiling;
mod change;
mod database;
mod draw;
mod error;
mod file;
mod fill;
mod growth;
mod import;
mod kind;
mod local;
mod nodes;
mod numbers;
mod orders;
mod pace;
mod pools;
mod probe;
mod provider;
mod purchase;
mod repeated;
mod room;
mod rotation;
mod row;
mod schema;
mod site_rows;
mod sites;
mod slow_hash;
mod store;
mod tokens;

pub use backup::{check_sqlite, copy_sqlite};
pub use ceiling::Network;
pub use change::Change;
pub use database::{Database, Location};
pub use error::{Refusal, StoreError, is_full, is_nul, trouble};
pub use file::{FileFault, examine, file_exists, is_damage, lock_of, place};
pub use fill::{PoolSize, first_size};
pub use growth::{Growth, Resized};
pub use kind::Kind;
pub use nodes::{NodeRecord, ONLY_NODE};
pub use numbers::{Goal, NumberState};
pub use pace::Pace;
pub use pools::{Pool, PoolSettings, Scope};
pub use probe::{Probed, probe_pools, probe_postgres, probe_sqlite};
pub use provider::{FileProvider, Offer, Provider, ProviderError, Purchase};
pub use repeated::Repeated;
pub use rotation::{Leave, Placed};
pub use schema::{DIRECTORY, Schema, Step};
pub use store::{AuditLine, Delta, Loaded, Numbers, Store};
pub use tokens::{Grant, Role};
