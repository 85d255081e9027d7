//! The nodes that serve the directory of ring pools, and the name of the data directory that each
//! node last used. The name shows whether a node has restarted with a different data directory.
//!
//! Source: docs/spec/cluster.md, "A lost disk".

use ringwell_core::Millis;
use sqlx::Row;
use sqlx::any::AnyRow;

use crate::StoreError;
use crate::row::{from_db, from_ms};
use crate::store::{Store, settle_at};

/// The name of a server that is not a node of a cluster.
pub const ONLY_NODE: &str = "the only node";

/// A node that serves the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// The node's name.
    pub name: String,
    /// The newest version of the directory that all shards of the node use.
    pub version: u64,
    /// The time since which all these shards have used that version.
    pub at: Millis,
}

impl Store {
    /// Lists all nodes by name.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        let mut tx = self.database.read().await?;
        let query = sqlx::query("SELECT name, applied_version, at_ms FROM nodes ORDER BY name");
        let rows = query.fetch_all(&mut *tx).await?;
        let node = |row: AnyRow| {
            let (name, version) = (row.try_get(0)?, from_db(row.try_get(1)?, "a version")?);
            Ok(NodeRecord { name, version, at: from_ms(row.try_get(2)?) })
        };
        rows.into_iter().map(node).collect()
    }

    /// Records that a node is permanently gone, so that numbers no longer wait for its
    /// confirmation. Returns whether the node was known.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn forget_node(
        &self,
        node: &str,
        author: &str,
        now: Millis,
    ) -> Result<bool, StoreError> {
        let mut change = self.change(author, now).await?;
        let query = sqlx::query("DELETE FROM nodes WHERE name = $1").bind(node.to_owned());
        let is_known = query.execute(&mut *change.tx).await?.rows_affected() > 0;
        if is_known {
            settle_at(&mut change.tx, now, change.margin).await?;
            change.log("forget", &format!("node {node}"), None, None).await?;
            change.commit().await?;
        }
        Ok(is_known)
    }

    /// If this server has joined or left a cluster, removes the entry with its former name. That
    /// entry has the same data directory as this server. Returns whether an entry was removed.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn forget_former(
        &self,
        node: &str,
        journal: &str,
        now: Millis,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query("SELECT name FROM nodes WHERE journal = $1 AND name <> $2");
        let query = query.bind(journal.to_owned()).bind(node.to_owned());
        let rows = query.fetch_all(&mut *self.database.read().await?).await?;
        let mut is_known = false;
        for row in rows {
            let name: String = row.try_get(0)?;
            // Two nodes of a cluster never have the same data directory.
            if node == ONLY_NODE || name == ONLY_NODE {
                is_known |= self.forget_node(&name, node, now).await?;
            }
        }
        Ok(is_known)
    }

    /// Confirms `version`, as [`Self::confirm`] does. If the disk is full, the confirmation cannot
    /// be recorded. In that case, the node may still serve `version` if it confirmed this version
    /// before its restart. Returns whether the confirmation was recorded.
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

    /// Returns the name of the data directory that `node` last used, or `None` if none is recorded.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn journal(&self, node: &str) -> Result<Option<String>, StoreError> {
        let mut tx = self.database.read().await?;
        let query = sqlx::query("SELECT journal FROM nodes WHERE name = $1").bind(node.to_owned());
        let row = query.fetch_optional(&mut *tx).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
    }

    /// Records the name of the data directory that `node` uses. The node must already have
    /// confirmed a version.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn note_journal(&self, node: &str, journal: &str) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let query = sqlx::query("UPDATE nodes SET journal = $2 WHERE name = $1");
        query.bind(node.to_owned()).bind(journal.to_owned()).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }
}
