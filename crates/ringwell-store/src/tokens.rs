//! API tokens and their permissions.
//!
//! Owns the form of tokens, their hashes and their roles. A token has 256 random bits, so its
//! SHA-256 reveals nothing about it, and no slow hash is needed. A copy of the database therefore
//! grants no access. Earlier versions stored argon2 hashes. Such a hash is replaced by a SHA-256
//! when its token is used. Invariant: a token is shown only when it is created, and the token
//! itself is never stored.

use std::time::Duration;

use ringwell_directory::{Token, TokenHash, hex};
use serde_json::json;

use crate::change::Change;
use crate::row::{Columns, ms};
use crate::{Store, StoreError};

/// The permissions of a token's owner. Each role includes the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Read attributions, and calls with masked callers.
    Lookup,
    /// Read.
    Read,
    /// Change pools and numbers.
    Write,
    /// Create tokens, and read the audit log.
    Admin,
}

/// The permissions of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The public id of the token.
    pub id: String,
    /// Its owner.
    pub name: String,
    /// The role.
    pub role: Role,
    /// The only network in which the token is valid, or `None` if it is valid in all networks.
    pub network: Option<String>,
}

/// The prefix of SHA-256 hashes in the database.
const SHA256: &str = "sha256:";
/// The maximum time that a request waits for its token's hash to be replaced. If the replacement
/// fails, the next request can try again.
const REPLACE_MAX: Duration = Duration::from_secs(1);
const ID_BYTES: usize = 8;

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Lookup, Self::Read, Self::Write, Self::Admin];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }

    /// Returns the role whose name is `text`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

impl Change {
    /// Creates a token. `random` is 40 random bytes: 8 for the token's id and 32 for its secret.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn create_token(
        &mut self,
        name: &str,
        role: Role,
        network: Option<&str>,
        random: [u8; 40],
    ) -> Result<(Grant, Token), StoreError> {
        let (id, secret) = random.split_at(ID_BYTES);
        let id = hex(id);
        let text = format!("rw_{id}_{}", hex(secret));
        let token = Token::parse(&text)
            .ok_or_else(|| StoreError::Damaged("a generated token is malformed".to_owned()))?;
        let query = sqlx::query(
            "INSERT INTO tokens (id, hash, name, role, network, created_ms) \
             VALUES ($1, $2, $3, $4, $5, $6)",
        );
        query
            .bind(id.clone())
            .bind(format!("{SHA256}{}", token.hash()))
            .bind(name.to_owned())
            .bind(role.as_str())
            .bind(network.map(str::to_owned))
            .bind(ms(self.now))
            .execute(&mut *self.tx)
            .await?;
        let after = json!({ "name": name, "role": role.as_str(), "network": network });
        self.log("create", &format!("token {id}"), None, Some(after)).await?;
        let network = network.map(str::to_owned);
        Ok((Grant { id, name: name.to_owned(), role, network }, token))
    }

    /// Revokes a token. It is invalid from the next request on. Returns `false` if the token does
    /// not exist.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn revoke_token(&mut self, id: &str) -> Result<bool, StoreError> {
        let query = sqlx::query("DELETE FROM tokens WHERE id = $1").bind(id.to_owned());
        let found = query.execute(&mut *self.tx).await?.rows_affected() > 0;
        if found {
            self.log("revoke", &format!("token {id}"), None, None).await?;
        }
        Ok(found)
    }
}

impl Store {
    /// Returns all tokens without their secrets, ordered by id.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn tokens(&self) -> Result<Vec<Grant>, StoreError> {
        let query = sqlx::query("SELECT id, name, role, network, hash FROM tokens ORDER BY id");
        let rows = query.fetch_all(&mut *self.database.read().await?).await?;
        rows.iter().map(|row| Ok(grant(row)?.0)).collect()
    }

    /// Returns the SHA-256 hashes of all tokens. Omits tokens with an argon2 hash: an earlier
    /// version created them, and they have not been used since the upgrade.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn token_hashes(&self) -> Result<Vec<TokenHash>, StoreError> {
        let query = sqlx::query("SELECT id, name, role, network, hash FROM tokens ORDER BY id");
        let rows = query.fetch_all(&mut *self.database.read().await?).await?;
        let hashes =
            rows.iter().map(|row| Ok(grant(row)?.1)).collect::<Result<Vec<_>, StoreError>>();
        let sha256 = |hash: &String| TokenHash::parse(hash.strip_prefix(SHA256)?).ok();
        Ok(hashes?.iter().filter_map(sha256).collect())
    }

    /// Returns the hashes of the tokens that are valid in all networks. Their roles do not matter,
    /// because every role may read attributions and calls.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn lookup_hashes(&self) -> Result<Vec<TokenHash>, StoreError> {
        self.hashes("SELECT hash FROM tokens WHERE network IS NULL ORDER BY id").await
    }

    /// Returns the hashes of the tokens with the role `admin` that are valid in all networks. These
    /// tokens may also read overflow rows, shards and the states of pools.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn admin_hashes(&self) -> Result<Vec<TokenHash>, StoreError> {
        self.hashes("SELECT hash FROM tokens WHERE network IS NULL AND role = 'admin' ORDER BY id")
            .await
    }

    async fn hashes(&self, statement: &'static str) -> Result<Vec<TokenHash>, StoreError> {
        let query = sqlx::query(statement);
        let rows = query.fetch_all(&mut *self.database.read().await?).await?;
        let hashes = rows.iter().map(|row| Columns::of(row).take::<String>());
        let hashes = hashes.collect::<Result<Vec<_>, StoreError>>()?;
        let sha256 = |hash: &String| TokenHash::parse(hash.strip_prefix(SHA256)?).ok();
        Ok(hashes.iter().filter_map(sha256).collect())
    }

    /// Returns the permissions of the token `presented`, or `None` if that token is invalid or was
    /// revoked.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn verify_token(&self, presented: &str) -> Result<Option<Grant>, StoreError> {
        let id = presented.strip_prefix("rw_").and_then(|rest| rest.split_once('_'));
        // An invalid id never reaches the database, which might not accept its characters.
        let Some((id, _)) = id.filter(|(id, _)| is_id(id)) else { return Ok(None) };
        let query = sqlx::query("SELECT id, name, role, network, hash FROM tokens WHERE id = $1");
        let query = query.bind(id.to_owned());
        let row = query.fetch_optional(&mut *self.database.read().await?).await?;
        let Some(row) = row else { return Ok(None) };
        let (grant, hash) = grant(&row)?;
        let fits = match hash.strip_prefix(SHA256) {
            Some(hash) => {
                let stored = TokenHash::parse(hash);
                stored.is_ok_and(|hash| TokenHash::any_matches(&[hash], presented.as_bytes()))
            }
            None => self.slow_hash.fits(presented, &hash).await,
        };
        if !fits {
            return Ok(None);
        }
        if !hash.starts_with(SHA256) {
            let replaced = self.replace_hash(&grant.id, &hash, presented);
            // If the replacement fails, the token remains valid.
            let _ = tokio::time::timeout(REPLACE_MAX, replaced).await;
        }
        Ok(Some(grant))
    }

    /// Replaces the stored `hash` with the SHA-256 of `token`, unless the stored hash has changed.
    async fn replace_hash(&self, id: &str, hash: &str, token: &str) -> Result<(), StoreError> {
        let Some(token) = Token::parse(token) else { return Ok(()) };
        let mut tx = self.begin().await?;
        let query = sqlx::query("UPDATE tokens SET hash = $1 WHERE id = $2 AND hash = $3");
        let query = query.bind(format!("{SHA256}{}", token.hash()));
        query.bind(id.to_owned()).bind(hash.to_owned()).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }
}

fn is_id(id: &str) -> bool {
    id.len() == 2 * ID_BYTES && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn grant(row: &sqlx::any::AnyRow) -> Result<(Grant, String), StoreError> {
    let mut columns = Columns::of(row);
    let (id, name) = (columns.take()?, columns.take()?);
    let role: String = columns.take()?;
    let role = Role::parse(&role)
        .ok_or_else(|| StoreError::Damaged(format!("a token's role is {role:?}")))?;
    let grant = Grant { id, name, role, network: columns.take()? };
    Ok((grant, columns.take()?))
}

#[cfg(test)]
mod tests;
