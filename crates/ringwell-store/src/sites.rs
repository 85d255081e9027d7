//! Web sites whose pages show a number to each visitor.
//!
//! Owns the rows of sites. A site may refer to a pool that does not exist. Requests for a number
//! from that pool are then answered without a number, and the site's pages keep the business's own
//! number. Source: docs/spec/site.md.

use ringwell_config::Site;
use serde::Serialize;
use serde_json::Value;
use sqlx::Row;

use crate::change::Change;
use crate::row::to_db;
use crate::site_rows::{COLUMNS, by_key, from_row};
use crate::store::Store;
use crate::{Refusal, StoreError};

/// The maximum count of sites in a directory. The count is limited because each site has a metrics
/// series for each possible outcome of a request.
const SITES_MAX: i64 = 1000;

impl Change {
    /// Creates a site, or changes the site with the same key. Returns whether the site is new.
    ///
    /// # Errors
    /// [`Refusal::SitesMax`].
    pub async fn put_site(&mut self, site: &Site) -> Result<bool, StoreError> {
        let before = by_key(&mut self.tx, &site.key).await?;
        if before.as_ref() == Some(site) {
            return Ok(false);
        }
        if before.is_none() {
            let query = sqlx::query("SELECT COUNT(*) FROM sites");
            let sites: i64 = query.fetch_one(&mut *self.tx).await?.try_get(0)?;
            if sites >= SITES_MAX {
                return Err(Refusal::SitesMax(SITES_MAX).into());
            }
        }
        let text = site.to_text();
        let query = sqlx::query(
            "INSERT INTO sites (site_key, origins, swaps, params, consent, edge_key, \
             leases_per_minute) VALUES ($1, $2, $3, $4, $5, $6, $7) \
             ON CONFLICT (site_key) DO UPDATE SET origins = $2, swaps = $3, params = $4, \
             consent = $5, edge_key = $6, leases_per_minute = $7",
        );
        let query = query.bind(text.key).bind(json(&text.origins)?).bind(json(&text.swaps)?);
        let query = query.bind(json(&text.params)?).bind(text.consent).bind(text.edge_key);
        query.bind(i64::from(text.leases_per_minute)).execute(&mut *self.tx).await?;
        let action = if before.is_none() { "create" } else { "update" };
        self.sites_changed(action, &site.key, before.as_ref(), Some(site)).await?;
        Ok(before.is_none())
    }

    /// Returns the site with this key, including the modifications that this change has made so
    /// far.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the site breaks a rule.
    pub async fn site(&mut self, key: &str) -> Result<Option<Site>, StoreError> {
        by_key(&mut self.tx, key).await
    }

    /// Removes a site. Returns `false` if the site does not exist.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn remove_site(&mut self, key: &str) -> Result<bool, StoreError> {
        let Some(before) = by_key(&mut self.tx, key).await? else { return Ok(false) };
        let query = sqlx::query("DELETE FROM sites WHERE site_key = $1").bind(key.to_owned());
        query.execute(&mut *self.tx).await?;
        self.sites_changed("remove", key, Some(&before), None).await?;
        Ok(true)
    }

    async fn sites_changed(
        &mut self,
        action: &str,
        key: &str,
        before: Option<&Site>,
        after: Option<&Site>,
    ) -> Result<(), StoreError> {
        let query = sqlx::query("UPDATE directory SET sites_version = $1");
        query.bind(to_db(self.version, "a version")?).execute(&mut *self.tx).await?;
        let shown = |site: Option<&Site>| site.map(audited).transpose();
        self.log(action, &format!("site {key}"), shown(before)?, shown(after)?).await
    }
}

impl Store {
    /// Returns at most `limit` sites whose keys follow `after`, ordered by key.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a site breaks a rule.
    pub async fn sites(&self, after: &str, limit: u32) -> Result<Vec<Site>, StoreError> {
        let query = format!("{COLUMNS} WHERE site_key > $1 ORDER BY site_key LIMIT $2");
        let query = sqlx::query(sqlx::AssertSqlSafe(query));
        let query = query.bind(after.to_owned()).bind(i64::from(limit));
        let rows = query.fetch_all(&mut *self.database.read().await?).await?;
        rows.iter().map(from_row).collect()
    }

    /// Returns the site with this key.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the site breaks a rule.
    pub async fn site(&self, key: &str) -> Result<Option<Site>, StoreError> {
        by_key(&mut *self.database.read().await?, key).await
    }
}

/// Returns everything about a site except the value of its secret, for the audit log.
fn audited(site: &Site) -> Result<Value, StoreError> {
    let mut text = site.to_text();
    text.edge_key = text.edge_key.map(|_| "***".to_owned());
    serde_json::to_value(text).map_err(|error| StoreError::Damaged(error.to_string()))
}

fn json(list: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(list).map_err(|error| StoreError::Damaged(error.to_string()))
}
