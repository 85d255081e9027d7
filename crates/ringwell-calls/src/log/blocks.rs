//! Stores the list of blocked callers, and reads a caller's earlier calls for the robocall score.

use ringwell_core::Millis;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::Log;
use super::error::LogError;
use super::row::CallRow;
use super::values::{from_ms, ms, random_id, to_db};
use crate::block::{BLOCKS_MAX, Block, BlockRow, Pattern};
use crate::call::Outcome;
use crate::caller::Caller;
use crate::provider::Refusal;
use crate::robocall::{CALLS_MAX, Earlier, Robocall, SPAN, score};

/// Whether an entry's id is from an earlier release: `b_` and 16 digits.
const DERIVED: &str = "LENGTH(id) = 18";

/// The result of adding an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The entry was stored.
    Stored(BlockRow),
    /// The list is full.
    Full,
}

fn read(row: &AnyRow) -> Result<BlockRow, LogError> {
    let damaged = |what: &str| LogError::Damaged(format!("call_blocks: {what}"));
    let caller: String = row.try_get("caller")?;
    let answer: String = row.try_get("answer")?;
    let block = Block {
        caller: Pattern::parse(&caller).ok_or_else(|| damaged("caller"))?,
        pool: u64::try_from(row.try_get::<i64, _>("pool")?).ok(),
        answer: Refusal::parse(&answer).ok_or_else(|| damaged("answer"))?,
        note: row.try_get("note")?,
    };
    let created_at = from_ms(row.try_get("created_ms")?);
    Ok(BlockRow { id: row.try_get("id")?, block, created_at })
}

impl Log {
    /// All entries in the list of blocked callers, oldest first.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn blocks(&self) -> Result<Vec<BlockRow>, LogError> {
        let mut tx = self.database().read().await?;
        let query = sqlx::query(
            "SELECT id, caller, pool, answer, note, created_ms FROM call_blocks \
             ORDER BY created_ms, id",
        );
        query.fetch_all(&mut *tx).await?.iter().map(read).collect()
    }

    /// Stores an entry. If an entry for the same caller and pool exists, updates the answer and
    /// note of that entry.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn block(&self, block: &Block, now: Millis) -> Result<Blocked, LogError> {
        let (caller, pool) = (block.caller.text(), block.pool.map_or(-1, to_db));
        let mut tx = self.database().write().await?;
        let query = "SELECT COUNT(*) FROM call_blocks WHERE caller <> $1 OR pool <> $2";
        let query = sqlx::query(query).bind(caller.to_owned()).bind(pool);
        let others: i64 = query.fetch_one(&mut *tx).await?.try_get(0)?;
        if usize::try_from(others).is_ok_and(|others| others >= BLOCKS_MAX) {
            return Ok(Blocked::Full);
        }
        let query = "UPDATE call_blocks SET answer = $3, note = $4 WHERE caller = $1 AND pool = $2 \
                     RETURNING id, caller, pool, answer, note, created_ms";
        let query = sqlx::query(query).bind(caller.to_owned()).bind(pool);
        let query = query.bind(block.answer.name()).bind(block.note.clone());
        let mut stored = query.fetch_all(&mut *tx).await?;
        if stored.is_empty() {
            let query = "INSERT INTO call_blocks (id, caller, pool, answer, note, created_ms) \
                         VALUES ($1, $2, $3, $4, $5, $6) \
                         RETURNING id, caller, pool, answer, note, created_ms";
            let query = sqlx::query(query).bind(random_id("b_")?).bind(caller.to_owned());
            let query = query.bind(pool).bind(block.answer.name()).bind(block.note.clone());
            stored.push(query.bind(ms(now)).fetch_one(&mut *tx).await?);
        }
        let stored = read(&stored[0])?;
        tx.commit().await?;
        Ok(Blocked::Stored(stored))
    }

    /// Replaces the ids that earlier releases gave to entries. Such an id is a hash of the caller's
    /// number, is stored with calls, and reveals the number. A server of an earlier release that
    /// uses the same database continues to write such ids.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn replace_derived_ids(&self) -> Result<(), LogError> {
        let mut tx = self.database().write().await?;
        let query = format!("SELECT id, caller, pool FROM call_blocks WHERE {DERIVED}");
        let rows = sqlx::query(AssertSqlSafe(query)).fetch_all(&mut *tx).await?;
        for row in rows {
            let (old, caller): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let query = "SELECT id FROM call_blocks WHERE caller = $1 AND pool = $2 AND id <> $3";
            let query = sqlx::query(query).bind(caller).bind(row.try_get::<i64, _>(2)?);
            let other = query.bind(old.clone()).fetch_optional(&mut *tx).await?;
            // A server of an earlier release may have added an entry for the same caller.
            let (new, statement) = match other {
                Some(other) => (other.try_get(0)?, "DELETE FROM call_blocks WHERE id = $1"),
                None => (random_id("b_")?, "UPDATE call_blocks SET id = $2 WHERE id = $1"),
            };
            for statement in ["UPDATE calls SET blocked = $2 WHERE blocked = $1", statement] {
                let query = sqlx::query(statement).bind(old.clone());
                let has_two = statement.contains("$2");
                let query = if has_two { query.bind(new.clone()) } else { query };
                query.execute(&mut *tx).await?;
            }
        }
        let rest = format!(
            "UPDATE calls SET blocked = 'b_removed' WHERE blocked IS NOT NULL AND {}",
            DERIVED.replace("id", "blocked")
        );
        sqlx::query(AssertSqlSafe(rest)).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Removes an entry. Returns whether the entry existed. SQLite also overwrites the data in its
    /// files.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn unblock(&self, id: &str) -> Result<bool, LogError> {
        let mut tx = self.database().write().await?;
        let query = sqlx::query("DELETE FROM call_blocks WHERE id = $1").bind(id.to_owned());
        let removed = query.execute(&mut *tx).await?.rows_affected();
        tx.commit().await?;
        self.database().overwrite_deleted().await?;
        Ok(removed > 0)
    }
}

/// Removes the entries that match only `caller`, because they contain the caller's number or
/// address.
pub(super) async fn forget(db: &mut AnyConnection, caller: &Caller) -> Result<(), LogError> {
    let Some(column) = caller.to_column() else { return Ok(()) };
    sqlx::query("DELETE FROM call_blocks WHERE caller = $1").bind(column).execute(db).await?;
    Ok(())
}

/// Computes the robocall score of the call `row`. Reads the caller's earlier calls, unless `row` is
/// the caller's first call.
pub(super) async fn robocall(db: &mut AnyConnection, row: &CallRow) -> Result<Robocall, LogError> {
    let began = row.facts.started_at();
    let has_called = row.first_time == Some(false);
    let caller = row.caller.to_column().filter(|_| has_called);
    let earlier = match caller {
        None => Vec::new(),
        Some(caller) => earlier(db, &caller, &row.id, began).await?,
    };
    let is_answered = row.facts.outcome() == Some(Outcome::Answered);
    let talk = row.facts.talk_seconds().filter(|_| is_answered);
    Ok(score(row.stir.as_ref(), &earlier, began, talk))
}

async fn earlier(
    db: &mut AnyConnection,
    caller: &str,
    id: &str,
    began: Millis,
) -> Result<Vec<Earlier>, LogError> {
    // The limit is part of the statement: if it were a parameter, SQLite would prepare the
    // statement again for each value.
    let statement = format!(
        "SELECT started_ms, outcome, talk_seconds, number FROM calls WHERE caller = $1 AND \
         started_ms > $2 AND started_ms <= $3 AND id <> $4 ORDER BY started_ms DESC LIMIT {CALLS_MAX}"
    );
    let since = Millis(began.0.saturating_sub(SPAN.0));
    let query = sqlx::query(AssertSqlSafe(statement)).bind(caller.to_owned());
    let query = query.bind(ms(since)).bind(ms(began)).bind(id.to_owned());
    let rows = query.fetch_all(db).await?;
    let read = |row: &AnyRow| {
        let outcome: Option<String> = row.try_get("outcome")?;
        let talk: Option<i64> = row.try_get("talk_seconds")?;
        let is_answered = outcome.as_deref() == Some(Outcome::Answered.name());
        Ok(Earlier {
            began: from_ms(row.try_get("started_ms")?),
            talk_seconds: talk.and_then(|it| u32::try_from(it).ok()).filter(|_| is_answered),
            number: row.try_get("number")?,
        })
    };
    rows.iter().map(read).collect()
}
