//! Records which data directory each node last served, so that a node that returns with a different
//! one is noticed.
//!
//! Owns one column of the table of nodes. Source: docs/spec/cluster.md, "A lost disk".

use ringwell_core::Millis;
use sqlx::Row;

use crate::StoreError;
use crate::row::from_db;
use crate::store::Store;

impl Store {
    /// Confirms `version`, as [`Self::confirm`] does. On a full disk, a node may serve `version`
    /// without recording it if the node confirmed the same version before its restart. Returns
    /// whether the confirmation was recorded.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn confirm_again(
        &self,
        node: &str,
        version: u64,
        at: Millis,
    ) -> Result<bool, StoreError> {
        match self.confirm(node, version, at).await {
            Err(error) if error.is_full() && self.confirmed(node).await? == Some(version) => {
                Ok(false)
            }
            confirmed => confirmed.map(|()| true),
        }
    }

    /// Returns the version that `node` confirmed last.
    async fn confirmed(&self, node: &str) -> Result<Option<u64>, StoreError> {
        let mut tx = self.database.read().await?;
        let query = sqlx::query("SELECT applied_version FROM nodes WHERE name = $1");
        let row = query.bind(node.to_owned()).fetch_optional(&mut *tx).await?;
        row.map(|row| from_db(row.try_get(0)?, "a version")).transpose()
    }

    /// Returns the name of the data directory that `node` served last, or `None` if none is
    /// recorded.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn journal(&self, node: &str) -> Result<Option<String>, StoreError> {
        let mut tx = self.database.read().await?;
        let query = sqlx::query("SELECT journal FROM nodes WHERE name = $1").bind(node.to_owned());
        let row = query.fetch_optional(&mut *tx).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
    }

    /// Records the name of the data directory that `node` serves. The node must have confirmed a
    /// version before.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn note_journal(&self, node: &str, journal: &str) -> Result<(), StoreError> {
        let mut tx = self.database.write().await?;
        let query = sqlx::query("UPDATE nodes SET journal = $2 WHERE name = $1");
        query.bind(node.to_owned()).bind(journal.to_owned()).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }
}
