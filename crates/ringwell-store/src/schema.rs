//! The schema of the database, and how it is upgraded from one version to the next.
//!
//! Owns the SQL scripts, which are part of the program. Does not depend on the purpose of the
//! tables. Invariant: a released script never changes, and each addition is a new version.

use sqlx::{AnyConnection, Connection, Executor, Row};

use crate::StoreError;
use crate::kind::Kind;

/// The tables for one purpose. One database may contain several schemas.
#[derive(Debug)]
pub struct Schema {
    /// The table that contains the version of the schema.
    pub version_table: &'static str,
    /// The scripts of each version. The first step creates version 1.
    pub steps: &'static [Step],
}

/// The scripts that upgrade a database from one version to the next.
#[derive(Debug)]
pub struct Step {
    /// The script for both SQLite and PostgreSQL.
    pub both: &'static str,
    /// A further script for SQLite only.
    pub sqlite: &'static str,
    /// A further script for PostgreSQL only.
    pub postgres: &'static str,
}

/// The tables of the directory.
pub const DIRECTORY: Schema = Schema { version_table: "schema_version", steps: &STEPS };

const STEPS: [Step; 6] = [
    Step {
        both: include_str!("schema/1.sql"),
        sqlite: include_str!("schema/1.sqlite.sql"),
        postgres: include_str!("schema/1.postgres.sql"),
    },
    Step { both: include_str!("schema/2.sql"), sqlite: "", postgres: "" },
    Step { both: include_str!("schema/3.sql"), sqlite: "", postgres: "" },
    Step {
        both: include_str!("schema/4.sql"),
        // `4.sql` replaces the numbers table, which drops the constraint against overlaps. These
        // scripts create the constraint again.
        sqlite: include_str!("schema/1.sqlite.sql"),
        postgres: include_str!("schema/1.postgres.sql"),
    },
    Step { both: include_str!("schema/5.sql"), sqlite: "", postgres: "" },
    Step { both: include_str!("schema/6.sql"), sqlite: "", postgres: "" },
];

/// Upgrades the database to this program's schema, in one transaction.
///
/// # Errors
/// [`StoreError::NewerSchema`] if a newer program has upgraded the database, or
/// [`StoreError::Damaged`] if the database's version is invalid.
pub(crate) async fn upgrade(
    schema: &Schema,
    kind: Kind,
    connection: &mut AnyConnection,
) -> Result<(), StoreError> {
    let Schema { version_table: table, steps } = schema;
    // A user who may not create tables can use a database that is up to date.
    if found_version(table, kind, connection).await? == i64::try_from(steps.len()).ok() {
        return Ok(());
    }
    let mut tx = connection.begin_with(kind.begin_write()).await?;
    if kind == Kind::Postgres {
        // If two programs start at the same time, the second one waits until the first one has
        // upgraded the database.
        tx.execute("SELECT pg_advisory_xact_lock(7464923651)").await?;
    }
    // The table name comes from this program, never from outside.
    let statement = |text: String| sqlx::query(sqlx::AssertSqlSafe(text));
    statement(format!("CREATE TABLE IF NOT EXISTS {table} (version BIGINT NOT NULL)"))
        .execute(&mut *tx)
        .await?;
    let row = statement(format!("SELECT version FROM {table}")).fetch_optional(&mut *tx).await?;
    let found: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
    let found = usize::try_from(found)
        .map_err(|_| StoreError::Damaged(format!("{table} has the version {found}")))?;
    let known = steps.len();
    let todo = steps.get(found..).ok_or(StoreError::NewerSchema { found, known })?;
    if todo.is_empty() {
        return Ok(());
    }
    for step in todo {
        run(&mut tx, step.both).await?;
        run(&mut tx, if kind == Kind::Sqlite { step.sqlite } else { step.postgres }).await?;
    }
    statement(format!("DELETE FROM {table}")).execute(&mut *tx).await?;
    let version = i64::try_from(known).unwrap_or(i64::MAX);
    let insert = statement(format!("INSERT INTO {table} (version) VALUES ($1)"));
    insert.bind(version).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}

/// Returns the version in `table`, or `None` if the table is missing or empty. The table name comes
/// from this program, never from outside.
pub(crate) async fn found_version(
    table: &str,
    kind: Kind,
    connection: &mut AnyConnection,
) -> Result<Option<i64>, sqlx::Error> {
    let exists = match kind {
        Kind::Sqlite => "SELECT COUNT(*) FROM sqlite_schema WHERE name = $1",
        Kind::Postgres => "SELECT COUNT(to_regclass($1))",
    };
    let row = sqlx::query(exists).bind(table.to_owned()).fetch_one(&mut *connection).await?;
    if row.try_get::<i64, _>(0)? == 0 {
        return Ok(None);
    }
    let query = sqlx::AssertSqlSafe(format!("SELECT version FROM {table}"));
    let row = sqlx::query(query).fetch_optional(&mut *connection).await?;
    row.map(|row| row.try_get(0)).transpose()
}

/// Runs several statements at once, which a prepared statement cannot do.
async fn run(connection: &mut AnyConnection, script: &'static str) -> Result<(), StoreError> {
    sqlx::raw_sql(script).execute(connection).await?;
    Ok(())
}
