//! The schema of the database and the way from one version of it to the next.
//!
//! Owns the scripts, which are part of the program. Knows nothing of what the tables are for.
//! Invariant: a script that has been released never changes; what is new is another version.

use sqlx::{AnyConnection, Connection, Executor, Row};

use crate::StoreError;
use crate::database::Kind;

/// What leads from the version before to one version.
struct Step {
    both: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

/// The first leads from nothing to version 1.
const STEPS: [Step; 2] = [
    Step {
        both: include_str!("schema/1.sql"),
        sqlite: include_str!("schema/1.sqlite.sql"),
        postgres: include_str!("schema/1.postgres.sql"),
    },
    Step { both: include_str!("schema/2.sql"), sqlite: "", postgres: "" },
];

/// Brings the database to this program's schema, all in one transaction.
///
/// # Errors
/// [`StoreError::NewerSchema`] if a newer program has been here.
pub(crate) async fn upgrade(kind: Kind, connection: &mut AnyConnection) -> Result<(), StoreError> {
    let mut tx = connection.begin_with(kind.begin_write()).await?;
    if kind == Kind::Postgres {
        // Two programs that start together: the second finds the work done.
        tx.execute("SELECT pg_advisory_xact_lock(7464923651)").await?;
    }
    tx.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)").await?;
    let row = sqlx::query("SELECT version FROM schema_version").fetch_optional(&mut *tx).await?;
    let found: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
    let found = usize::try_from(found).unwrap_or(usize::MAX);
    let steps = STEPS.get(found..).ok_or(StoreError::NewerSchema { found, known: STEPS.len() })?;
    if steps.is_empty() {
        return Ok(());
    }
    for step in steps {
        run(&mut tx, step.both).await?;
        run(&mut tx, if kind == Kind::Sqlite { step.sqlite } else { step.postgres }).await?;
    }
    tx.execute("DELETE FROM schema_version").await?;
    let version = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    let insert = sqlx::query("INSERT INTO schema_version (version) VALUES ($1)");
    insert.bind(version).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}

/// Several statements at once, which no prepared statement can have.
async fn run(connection: &mut AnyConnection, script: &'static str) -> Result<(), StoreError> {
    sqlx::raw_sql(script).execute(connection).await?;
    Ok(())
}
