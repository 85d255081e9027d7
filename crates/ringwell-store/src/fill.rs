//! Draws numbers from the inventory for pools, and returns numbers to the inventory.
//!
//! Owns the counts of numbers that a pool draws and returns. `draw.rs` chooses the numbers, and
//! `growth.rs` decides how fast pools grow.

use ringwell_core::{NumberRange, PoolId, PromoNumber};
use sqlx::AnyConnection;

use crate::StoreError;
use crate::change::Change;
use crate::numbers::{self, Goal, NumberState, Run};
use crate::pools::Pool;
use crate::rotation::Leave;

/// The counts of a pool's numbers by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSize {
    /// The count of numbers in rotation.
    pub rotation: u64,
    /// The count of numbers that are promised to the rotation.
    pub waiting: u64,
    /// The count of numbers in quarantine.
    pub quarantined: u64,
    /// The count of overflow numbers that the pool has or was promised: 0 or 1.
    pub overflow: u64,
}

impl PoolSize {
    /// Returns how many numbers count towards the pool's maximum size.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.rotation + self.waiting + self.quarantined + self.overflow
    }
}

/// Returns the count of numbers that a pool with `settings` gets at first. This is the pool's
/// maximum size if the pool is filled immediately. Otherwise it is a tenth of the maximum size,
/// rounded up, but at least one number, or two if one of them is the overflow number.
#[must_use]
pub fn first_size(settings: &crate::PoolSettings) -> u64 {
    let all = u64::from(settings.max_pool_size);
    let least = 1 + u64::from(settings.allow_overflow);
    if settings.fill_immediately { all } else { all.div_ceil(10).max(least).min(all) }
}

impl Change {
    /// Returns the counts of the pool's numbers.
    ///
    /// # Errors
    /// [`crate::Refusal::UnknownPool`].
    pub async fn size(&mut self, id: PoolId) -> Result<PoolSize, StoreError> {
        let pool = self.pool(id).await?;
        size(&mut self.tx, &pool).await
    }

    /// Returns the parts of `range` that are in the pool's rotation, in ascending order.
    pub(crate) async fn in_rotation(
        &mut self,
        id: PoolId,
        range: NumberRange,
    ) -> Result<Vec<NumberRange>, StoreError> {
        let runs = numbers::of_pool(&mut self.tx, id).await?;
        let rotation = runs.iter().filter(|run| run.state == NumberState::Available);
        let part = |run: &Run| {
            let (first, last) = (run.first.max(range.first()), run.last.min(range.last()));
            let count = (last.to_e164() + 1).checked_sub(first.to_e164())?;
            NumberRange::new(first, u32::try_from(count).ok()?)
        };
        Ok(rotation.filter_map(part).collect())
    }

    /// Raises the pool's maximum size to at least its current size. Called after numbers are added
    /// by hand.
    ///
    /// # Errors
    /// [`crate::Refusal::UnknownPool`].
    pub async fn raise_size(&mut self, id: PoolId) -> Result<(), StoreError> {
        let pool = self.pool(id).await?;
        let total = size(&mut self.tx, &pool).await?.total();
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        let mut settings = pool.settings;
        settings.max_pool_size = settings.max_pool_size.max(total);
        self.update_pool(id, settings).await
    }

    /// Draws free numbers from the inventory until the pool has `target` numbers, no further number
    /// is suitable, or the pool's network reaches its limit. If the pool still lacks its overflow
    /// number, the last number drawn becomes the overflow number, unless it is the pool's only
    /// number. Returns the count of numbers drawn.
    ///
    /// # Errors
    /// [`crate::Refusal::UnknownPool`].
    pub async fn fill(&mut self, id: PoolId, target: u64) -> Result<u64, StoreError> {
        let pool = self.pool(id).await?;
        let has = size(&mut self.tx, &pool).await?;
        let missing = target.saturating_sub(has.total());
        let room = self.room(&pool.settings.scope.network).await?;
        let missing = room.map_or(missing, |room| missing.min(room));
        let mut drawn = self.draw(&pool, missing).await?;
        let count = drawn.iter().map(|range| u64::from(range.count())).sum();
        let wants_overflow = pool.settings.allow_overflow && has.overflow == 0;
        let is_empty = has.rotation + has.waiting == 0;
        if wants_overflow && (count > 1 || (count == 1 && !is_empty)) {
            let number = drawn.last().map(|range| range.last());
            if let Some(last) = drawn.pop() {
                drawn.extend(NumberRange::new(last.first(), last.count() - 1));
            }
            self.place_overflow(id, number).await?;
        }
        self.place_numbers(id, &drawn).await?;
        Ok(count)
    }

    /// Returns numbers to the inventory until the pool has only `target` numbers. Waiting numbers
    /// leave the pool before numbers in rotation. Within each kind, the least preferred numbers
    /// leave first. One number always stays in rotation, and the pool keeps its overflow number.
    /// Returns the count of numbers that left the pool.
    ///
    /// # Errors
    /// [`crate::Refusal::UnknownPool`].
    pub async fn shrink(&mut self, id: PoolId, target: u64) -> Result<u64, StoreError> {
        let pool = self.pool(id).await?;
        let has = size(&mut self.tx, &pool).await?;
        let excess = has.total().saturating_sub(target);
        let mut left = excess.min((has.rotation + has.waiting).saturating_sub(1));
        let wanted = left;
        let runs = numbers::of_pool(&mut self.tx, id).await?;
        let taste = self.taste(&pool);
        let mut gone = Vec::new();
        for state in [NumberState::Waiting, NumberState::Available] {
            let rotation = |run: &&Run| run.state == state && run.goal != Some(Goal::Overflow);
            let ranges = runs.iter().filter(rotation).map(Run::range).collect::<Result<_, _>>()?;
            for range in taste.least_wanted(ranges) {
                let count = u32::try_from(left.min(range.count().into())).unwrap_or(u32::MAX);
                left -= u64::from(count);
                gone.extend(last_of(range, count));
            }
        }
        self.take_out(&gone, Leave::Inventory).await?;
        Ok(wanted)
    }
}

/// Returns the last `count` numbers of `range`, or `None` if the count is zero.
pub(crate) fn last_of(range: NumberRange, count: u32) -> Option<NumberRange> {
    let first = range.last().to_e164() + 1 - u64::from(count.min(range.count()));
    NumberRange::new(PromoNumber::from_e164(first)?, count)
}

async fn size(db: &mut AnyConnection, pool: &Pool) -> Result<PoolSize, StoreError> {
    let mut size = PoolSize { overflow: u64::from(pool.overflow.is_some()), ..PoolSize::default() };
    for run in numbers::of_pool(db, pool.id).await? {
        match (run.state, run.goal) {
            (NumberState::Available, _) => size.rotation += run.count(),
            (NumberState::Waiting, Some(Goal::Overflow)) => size.overflow = 1,
            (NumberState::Waiting, _) => size.waiting += run.count(),
            (NumberState::Quarantined, _) => size.quarantined += run.count(),
            (NumberState::Overflow | NumberState::Free | NumberState::Retired, _) => {}
        }
    }
    Ok(size)
}
