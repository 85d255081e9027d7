//! API tokens: who may do what.
//!
//! Owns their form, their hashes and their roles. A token is random, so a guess is hopeless, yet
//! what is stored is its argon2 hash: a copy of the database opens nothing.
//! Invariant: a token is shown once, when it is made, and never stored.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher, PasswordVerifier};
use ringwell_directory::Token;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::change::Change;
use crate::row::{Columns, ms};
use crate::{Store, StoreError};

/// What a token's owner may do; each may all that the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Look.
    Read,
    /// Change pools and numbers.
    Write,
    /// Make tokens, read the audit log.
    Admin,
}

/// What a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Names the token, and is no secret.
    pub id: String,
    /// Who or what has it.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// The only network in which they may; `None` for all.
    pub network: Option<String>,
}

/// Tokens that were verified lately, so that not each request costs an argon2 hash: the digest of
/// each with the stored hash that it fitted. One whose row is gone or other is verified again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verified(Arc<Mutex<HashMap<[u8; 32], String>>>);

/// More than an installation has in use; when it is full it begins again.
const VERIFIED_MAX: usize = 1000;
const ID_BYTES: usize = 8;

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Admin];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }

    /// The role of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

impl Change {
    /// Makes a token. `random` is 40 random bytes: 8 for its id, 32 for its secret.
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
        let salt = Sha256::digest(&text);
        // 16 bytes of a digest of what is random are as good a salt as others.
        let hash = Argon2::default()
            .hash_password_with_salt(text.as_bytes(), &salt[..16])
            .map_err(|error| StoreError::Damaged(format!("argon2: {error}")))?;
        let query = sqlx::query(
            "INSERT INTO tokens (id, hash, name, role, network, created_ms) \
             VALUES ($1, $2, $3, $4, $5, $6)",
        );
        query
            .bind(id.clone())
            .bind(hash.to_string())
            .bind(name.to_owned())
            .bind(role.as_str())
            .bind(network.map(str::to_owned))
            .bind(ms(self.now))
            .execute(&mut *self.tx)
            .await?;
        let after = json!({ "name": name, "role": role.as_str(), "network": network });
        self.log("create", &format!("token {id}"), None, Some(after)).await?;
        let network = network.map(str::to_owned);
        let token = Token::parse(&text)
            .ok_or_else(|| StoreError::Damaged("a token of ours is none".to_owned()))?;
        Ok((Grant { id, name: name.to_owned(), role, network }, token))
    }

    /// Makes a token worthless, from the next request on. `false` if there is none.
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
    /// All tokens, without their secrets, by id.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn tokens(&self) -> Result<Vec<Grant>, StoreError> {
        let query = sqlx::query("SELECT id, name, role, network, hash FROM tokens ORDER BY id");
        let rows = query.fetch_all(&mut *self.database.read().await?).await?;
        rows.iter().map(|row| Ok(grant(row)?.0)).collect()
    }

    /// What `presented` stands for; `None` if it is no token, or was revoked.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn verify_token(&self, presented: &str) -> Result<Option<Grant>, StoreError> {
        let id = presented.strip_prefix("rw_").and_then(|rest| rest.split_once('_'));
        let Some((id, _)) = id.filter(|(id, _)| id.len() == 2 * ID_BYTES) else { return Ok(None) };
        let query = sqlx::query("SELECT id, name, role, network, hash FROM tokens WHERE id = $1");
        let query = query.bind(id.to_owned());
        let row = query.fetch_optional(&mut *self.database.read().await?).await?;
        let Some(row) = row else { return Ok(None) };
        let (grant, hash) = grant(&row)?;
        let digest = Sha256::digest(presented).into();
        if !self.verified.has(&digest, &hash) {
            let (text, stored) = (presented.to_owned(), hash.clone());
            // Tens of milliseconds of work, which is its purpose: not on the thread of others.
            let fits = tokio::task::spawn_blocking(move || fits(&text, &stored));
            if !fits.await.unwrap_or(false) {
                return Ok(None);
            }
            self.verified.put(digest, hash);
        }
        Ok(Some(grant))
    }
}

impl Verified {
    fn has(&self, digest: &[u8; 32], hash: &str) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(digest).is_some_and(|known| known == hash)
    }

    fn put(&self, digest: [u8; 32], hash: String) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= VERIFIED_MAX {
            known.clear();
        }
        known.insert(digest, hash);
    }
}

fn fits(presented: &str, hash: &str) -> bool {
    PasswordHash::new(hash)
        .is_ok_and(|hash| Argon2::default().verify_password(presented.as_bytes(), &hash).is_ok())
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

fn hex(bytes: &[u8]) -> String {
    let digit = |value| char::from_digit(u32::from(value), 16);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).flatten().collect()
}
