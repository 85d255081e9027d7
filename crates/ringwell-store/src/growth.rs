//! Growth of busy pools, and return of unused numbers.
//!
//! Owns the amounts. Only the shards can report busy pools and unused numbers, so both come in as
//! arguments, as does the time. The audit log records all changes under a separate author; with
//! `dry_run` nothing else is changed.

use ringwell_core::{Millis, NumberRange, PoolId};

use crate::fill::{first_size, last_of};
use crate::{Change, Leave, Store, StoreError, pools};

/// The rules of growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The percentage of its size by which a busy pool grows at once; at least one number.
    pub percent: u32,
    /// The largest growth at once, in numbers.
    pub step_max: u32,
    /// Whether to log the changes without making them.
    pub dry_run: bool,
}

/// The change of one pool's size, made or planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// The pool.
    pub pool: PoolId,
    /// The former count of its numbers.
    pub before: u64,
    /// The present count of its numbers. Equal to the former count if the inventory has no number
    /// for it.
    pub after: u64,
}

impl Store {
    /// Lets each of the `busy` pools grow by one step, up to its maximum size, from the inventory;
    /// missing or full pools are skipped. Call it every five minutes, as the published API
    /// describes. Returns the version and the changes.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn grow(
        &self,
        now: Millis,
        growth: Growth,
        busy: &[PoolId],
    ) -> Result<(u64, Vec<Resized>), StoreError> {
        let mut change = self.change("ringwell: growth", now).await?;
        let mut resized = Vec::new();
        for id in busy {
            let Some(pool) = change.find_pool(*id).await? else { continue };
            let before = change.size(*id).await?.total();
            let most = u64::from(pool.settings.max_pool_size);
            if before >= most {
                continue;
            }
            let step = (before * u64::from(growth.percent)).div_ceil(100);
            let step = step.clamp(1, u64::from(growth.step_max).max(1));
            // Its initial size is guaranteed in any case.
            let target = (before + step).max(first_size(&pool.settings)).min(most);
            let after = before + change.fill(*id, target).await?;
            resized.push(Resized { pool: *id, before, after });
        }
        Ok((end(change, growth.dry_run).await?, resized))
    }

    /// Gives numbers to pools below their initial size, which happens if the inventory was too
    /// small or had no local numbers. Call it occasionally. Returns the version and the changes;
    /// pools that still get nothing are not listed.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn fill_short(
        &self,
        now: Millis,
        dry_run: bool,
    ) -> Result<(u64, Vec<Resized>), StoreError> {
        let short = pools::short(&mut *self.database.read().await?).await?;
        let mut change = self.change("ringwell: filling", now).await?;
        let mut resized = Vec::new();
        for id in short {
            let Some(pool) = change.find_pool(id).await? else { continue };
            let before = change.size(id).await?.total();
            let drawn = change.fill(id, first_size(&pool.settings)).await?;
            if drawn > 0 {
                resized.push(Resized { pool: id, before, after: before + drawn });
            }
        }
        Ok((end(change, dry_run).await?, resized))
    }

    /// Moves `unused` numbers from a pool to the inventory, down to its initial size, as the
    /// published API does at the end of a month. The least preferred numbers go first. Numbers that
    /// are not in the pool's rotation are ignored. `who` is the author.
    ///
    /// # Errors
    /// [`crate::Refusal::UnknownPool`].
    pub async fn give_back_unused(
        &self,
        who: &str,
        now: Millis,
        pool: PoolId,
        unused: &[NumberRange],
        dry_run: bool,
    ) -> Result<(u64, Resized), StoreError> {
        let mut change = self.change(who, now).await?;
        let owner = change.pool(pool).await?;
        let before = change.size(pool).await?.total();
        let mut left = before.saturating_sub(first_size(&owner.settings));
        let mut parts = Vec::new();
        for range in unused {
            parts.extend(change.in_rotation(pool, *range).await?);
        }
        let mut gone = Vec::new();
        for part in change.taste(&owner).least_wanted(parts) {
            let count = u32::try_from(left.min(part.count().into())).unwrap_or(u32::MAX);
            left -= u64::from(count);
            gone.extend(last_of(part, count));
        }
        let after = before - change.take_out(&gone, Leave::Inventory).await?;
        Ok((end(change, dry_run).await?, Resized { pool, before, after }))
    }
}

async fn end(change: Change, dry_run: bool) -> Result<u64, StoreError> {
    if dry_run { Ok(change.version() - 1) } else { change.commit().await }
}
