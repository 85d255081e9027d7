//! The rows of web sites.

use ringwell_config::{Site, SiteText};
use serde::de::DeserializeOwned;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::StoreError;
use crate::row::{Columns, from_db};

pub(crate) const COLUMNS: &str = "SELECT site_key, origins, swaps, params, consent, edge_key, \
     leases_per_minute FROM sites";

/// Returns all sites, if at least one has changed after `version`.
pub(crate) async fn changed_since(
    db: &mut AnyConnection,
    version: i64,
) -> Result<Option<Vec<Site>>, StoreError> {
    let query = sqlx::query("SELECT sites_version FROM directory");
    let changed: i64 = query.fetch_one(&mut *db).await?.try_get(0)?;
    if changed <= version {
        return Ok(None);
    }
    all(db).await.map(Some)
}

/// Returns all sites, ordered by key.
pub(crate) async fn all(db: &mut AnyConnection) -> Result<Vec<Site>, StoreError> {
    let query = format!("{COLUMNS} ORDER BY site_key");
    let rows = sqlx::query(sqlx::AssertSqlSafe(query)).fetch_all(db).await?;
    rows.iter().map(from_row).collect()
}

pub(crate) async fn by_key(db: &mut AnyConnection, key: &str) -> Result<Option<Site>, StoreError> {
    let query = format!("{COLUMNS} WHERE site_key = $1");
    let query = sqlx::query(sqlx::AssertSqlSafe(query)).bind(key.to_owned());
    query.fetch_optional(db).await?.as_ref().map(from_row).transpose()
}

pub(crate) fn from_row(row: &AnyRow) -> Result<Site, StoreError> {
    let mut columns = Columns::of(row);
    let key: String = columns.take()?;
    let list = |text: String| from_json(&key, &text);
    let text = SiteText {
        origins: list(columns.take()?)?,
        swaps: from_json(&key, &columns.take::<String>()?)?,
        params: list(columns.take()?)?,
        consent: columns.take()?,
        edge_key: columns.take()?,
        leases_per_minute: u32::try_from(from_db(columns.take()?, "a limit")?).unwrap_or(u32::MAX),
        key: key.clone(),
    };
    text.check_kept().map_err(|fault| StoreError::Damaged(format!("site {key}: {fault}")))
}

fn from_json<T: DeserializeOwned>(key: &str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Damaged(format!("site {key}: {error}")))
}
