//! The data directory that a node served last, so that a node that returns with another one is
//! noticed.
//!
//! Owns one column of the table of nodes. Source: docs/spec/cluster.md, "A lost disk".

use sqlx::Row;

use crate::StoreError;
use crate::store::Store;

impl Store {
    /// The name of the data directory that `node` served last; `None` if it has named none.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn journal(&self, node: &str) -> Result<Option<String>, StoreError> {
        let mut tx = self.database.read().await?;
        let query = sqlx::query("SELECT journal FROM nodes WHERE name = $1").bind(node.to_owned());
        let row = query.fetch_optional(&mut *tx).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
    }

    /// Records the name of the data directory that `node`, which has confirmed a version, serves.
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
