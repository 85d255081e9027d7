//! Numbers as rows. Each row is a run of consecutive numbers with the same properties.
//!
//! Owns the splitting and merging of rows. `rotation.rs` owns the rules for changes. Invariant:
//! rows do not overlap, which the database enforces too.

use futures_util::TryStreamExt;
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::row::{Columns, digits, from_db, from_ms, ms, number, to_db};
use crate::{Refusal, StoreError};

/// The current state of a number. The state does not include lockouts: only the shards record them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NumberState {
    /// In a pool's rotation.
    Available,
    /// The overflow number of a pool.
    Overflow,
    /// Promised to a pool, and waiting until no visitor can hold the number any more.
    Waiting,
    /// In the inventory.
    Free,
    /// In quarantine until a person releases it.
    Quarantined,
    /// Out of use, with its history kept.
    Retired,
}

/// The state that a waiting number will have next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The number enters the pool's rotation.
    Rotation,
    /// The number becomes the pool's overflow number.
    Overflow,
}

/// The lockouts that may still apply to a number after it has left a rotation, or after a pool has
/// given it up as its overflow number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// The pool that the number left, if it was in the pool's rotation.
    pub(crate) pool: Option<PoolId>,
    /// The version of the directory in which the number left its rotation. Cleared once every node
    /// has confirmed that version.
    pub(crate) version: Option<u64>,
    pub(crate) lockout: Millis,
    pub(crate) ready: Millis,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: PromoNumber,
    pub(crate) last: PromoNumber,
    pub(crate) state: NumberState,
    pub(crate) pool: Option<PoolId>,
    pub(crate) goal: Option<Goal>,
    pub(crate) network: Option<String>,
    pub(crate) left: Left,
}

/// The first and the last number of a run. A run may exceed the maximum length of a `NumberRange`.
pub(crate) type Span = (PromoNumber, PromoNumber);

macro_rules! columns {
    () => {
        "first_number, last_number, state, pool, goal, network, left_pool, left_version, \
         lockout_ms, ready_ms"
    };
}

impl NumberState {
    /// All states.
    pub const ALL: [Self; 6] = [
        Self::Available,
        Self::Overflow,
        Self::Waiting,
        Self::Free,
        Self::Quarantined,
        Self::Retired,
    ];

    /// The name of the state in the database and in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Overflow => "overflow",
            Self::Waiting => "waiting",
            Self::Free => "free",
            Self::Quarantined => "quarantined",
            Self::Retired => "retired",
        }
    }

    /// Returns the state whose name is `text`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

impl Goal {
    /// The name of the goal in the database and in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rotation => "available",
            Self::Overflow => "overflow",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Rotation, Self::Overflow].into_iter().find(|goal| goal.as_str() == text)
    }
}

impl Left {
    /// Whether no visitor can hold the number any more.
    pub(crate) fn is_over(&self, now: Millis) -> bool {
        self.version.is_none() && self.ready <= now
    }

    /// Adds the wait that remains from another pool. The number is then free only after both waits.
    pub(crate) fn and(self, earlier: Self) -> Self {
        let unconfirmed = earlier.version.map_or(Millis::ZERO, |_| earlier.lockout);
        let lockout = self.lockout.max(unconfirmed);
        Self { lockout, ready: self.ready.max(earlier.ready), ..self }
    }
}

impl Run {
    /// Returns a run of numbers that are new to the directory.
    pub(crate) fn new(range: NumberRange, network: Option<String>) -> Self {
        Self {
            first: range.first(),
            last: range.last(),
            state: NumberState::Free,
            pool: None,
            goal: None,
            network,
            left: Left::default(),
        }
    }

    pub(crate) fn range(&self) -> Result<NumberRange, StoreError> {
        let count = self.last.to_e164() - self.first.to_e164() + 1;
        let range = u32::try_from(count).ok().and_then(|count| NumberRange::new(self.first, count));
        range.ok_or_else(|| {
            let (first, last) = (self.first, self.last);
            StoreError::Damaged(format!("{first} to {last} is not a valid range of numbers"))
        })
    }

    pub(crate) fn count(&self) -> u64 {
        self.last.to_e164() - self.first.to_e164() + 1
    }

    pub(crate) fn from_row(row: &AnyRow) -> Result<Self, StoreError> {
        let mut columns = Columns::of(row);
        let damaged = |what: &str| StoreError::Damaged(format!("a number is {what:?}"));
        let (first, last) = (number(columns.take()?)?, number(columns.take()?)?);
        let state: String = columns.take()?;
        let state = NumberState::parse(&state).ok_or_else(|| damaged(&state))?;
        let pool = pool_id(columns.take()?)?;
        let goal: Option<String> = columns.take()?;
        let goal = goal.map(|goal| Goal::parse(&goal).ok_or_else(|| damaged(&goal))).transpose()?;
        let network = columns.take()?;
        let left_pool = pool_id(columns.take()?)?;
        let version: Option<i64> = columns.take()?;
        let left = Left {
            pool: left_pool,
            version: version.map(|version| from_db(version, "a version")).transpose()?,
            lockout: from_ms(columns.take()?),
            ready: from_ms(columns.take()?),
        };
        Ok(Self { first, last, state, pool, goal, network, left })
    }

    fn is_like(&self, other: &Self) -> bool {
        let same = Self { first: self.first, last: self.last, ..other.clone() };
        *self == same
    }

    /// Inserts the run as a row, and merges it with each adjacent row that has the same properties.
    pub(crate) async fn insert(mut self, db: &mut AnyConnection) -> Result<(), StoreError> {
        let before = one(
            db,
            concat!(
                "SELECT ",
                columns!(),
                " FROM numbers WHERE last_number = $1 \
             AND first_number = (SELECT MAX(first_number) FROM numbers WHERE first_number <= $1)"
            ),
            digits(self.first) - 1,
        )
        .await?;
        if let Some(before) = before.filter(|before| self.is_like(before)) {
            delete(db, before.first).await?;
            self.first = before.first;
        }
        let after = one(
            db,
            concat!("SELECT ", columns!(), " FROM numbers WHERE first_number = $1"),
            digits(self.last) + 1,
        )
        .await?;
        if let Some(after) = after.filter(|after| self.is_like(after)) {
            delete(db, after.first).await?;
            self.last = after.last;
        }
        let insert = sqlx::query(concat!(
            "INSERT INTO numbers (",
            columns!(),
            ") \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
        ));
        let pool = self.pool.map(|pool| to_db(pool.0, "a pool's id")).transpose()?;
        let left_pool = self.left.pool.map(|pool| to_db(pool.0, "a pool's id")).transpose()?;
        let version = self.left.version.map(|version| to_db(version, "a version")).transpose()?;
        insert
            .bind(digits(self.first))
            .bind(digits(self.last))
            .bind(self.state.as_str())
            .bind(pool)
            .bind(self.goal.map(Goal::as_str))
            .bind(self.network)
            .bind(left_pool)
            .bind(version)
            .bind(ms(self.left.lockout))
            .bind(ms(self.left.ready))
            .execute(db)
            .await?;
        Ok(())
    }
}

/// Returns the rows that contain numbers in `range`, in ascending order.
pub(crate) async fn touching(
    db: &mut AnyConnection,
    range: NumberRange,
) -> Result<Vec<Run>, StoreError> {
    let query = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM numbers \
         WHERE first_number <= $1 AND last_number >= $2 AND first_number >= \
         COALESCE((SELECT MAX(first_number) FROM numbers WHERE first_number <= $2), $2) \
         ORDER BY first_number"
    ));
    collect(query.bind(digits(range.last())).bind(digits(range.first())).fetch(db)).await
}

/// Removes the numbers in `range` from the table, and returns their rows in ascending order. A row
/// that extends beyond `range` is split. Numbers that are not in the table are not in the result
/// either. The caller must insert the returned rows again.
pub(crate) async fn cut(
    db: &mut AnyConnection,
    range: NumberRange,
) -> Result<Vec<Run>, StoreError> {
    let rows = touching(db, range).await?;
    let mut inside = Vec::with_capacity(rows.len());
    for run in rows {
        delete(db, run.first).await?;
        if run.first < range.first() {
            let last = neighbour(range.first(), -1)?;
            put_back(db, Run { last, ..run.clone() }).await?;
        }
        if run.last > range.last() {
            let first = neighbour(range.last(), 1)?;
            put_back(db, Run { first, ..run.clone() }).await?;
        }
        let (first, last) = (run.first.max(range.first()), run.last.min(range.last()));
        inside.push(Run { first, last, ..run });
    }
    Ok(inside)
}

/// Returns the parts of `range` that are in none of `runs`. The runs must be in ascending order.
pub(crate) fn gaps(range: NumberRange, runs: &[Run]) -> Vec<NumberRange> {
    let mut next = range.first().to_e164();
    let mut found = Vec::new();
    let ends = runs.iter().map(|run| (run.first.to_e164(), run.last.to_e164()));
    for (first, last) in ends.chain([(range.last().to_e164() + 1, 0)]) {
        let gap = PromoNumber::from_e164(next)
            .zip(u32::try_from(first.saturating_sub(next)).ok())
            .and_then(|(from, count)| NumberRange::new(from, count));
        found.extend(gap);
        next = last + 1;
    }
    found
}

/// Returns the rows of `pool`, in ascending order. They include quarantined and waiting numbers.
pub(crate) async fn of_pool(db: &mut AnyConnection, pool: PoolId) -> Result<Vec<Run>, StoreError> {
    let query = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM numbers WHERE pool = $1 \
         ORDER BY first_number"
    ));
    collect(query.bind(to_db(pool.0, "a pool's id")?).fetch(db)).await
}

/// Returns the waiting rows whose numbers no visitor can hold at `now`.
pub(crate) async fn due(db: &mut AnyConnection, now: Millis) -> Result<Vec<Run>, StoreError> {
    let query = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM numbers \
         WHERE state = 'waiting' AND left_version IS NULL AND ready_ms <= $1 \
         ORDER BY first_number"
    ));
    collect(query.bind(ms(now)).fetch(db)).await
}

/// Returns at most `limit` rows of the inventory, in ascending order. They contain numbers in
/// `range` that `network` may use and that no visitor can hold at `now`. The first and the last row
/// may extend beyond `range`.
pub(crate) async fn free(
    db: &mut AnyConnection,
    network: &str,
    now: Millis,
    (range, limit): (Span, u32),
) -> Result<Vec<Run>, StoreError> {
    let query = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM numbers \
         WHERE state = 'free' AND (network IS NULL OR network = $1) \
         AND left_version IS NULL AND ready_ms <= $2 \
         AND first_number <= $3 AND last_number >= $4 AND first_number >= \
         COALESCE((SELECT MAX(first_number) FROM numbers WHERE first_number <= $4), $4) \
         ORDER BY first_number LIMIT $5"
    ));
    let query = query.bind(network.to_owned()).bind(ms(now));
    let query = query.bind(digits(range.1)).bind(digits(range.0));
    collect(query.bind(i64::from(limit)).fetch(db)).await
}

/// Returns the row that contains `number`.
pub(crate) async fn holding(
    db: &mut AnyConnection,
    number: PromoNumber,
) -> Result<Option<Run>, StoreError> {
    let found = one(
        db,
        concat!(
            "SELECT ",
            columns!(),
            " FROM numbers WHERE first_number <= $1 \
         ORDER BY first_number DESC LIMIT 1"
        ),
        digits(number),
    )
    .await?;
    Ok(found.filter(|run| run.last >= number))
}

/// Returns one page of rows, in ascending order. If `only` is a network, returns only the numbers
/// in its pools and those that only this network may use.
pub(crate) async fn page(
    db: &mut AnyConnection,
    after: i64,
    limit: u32,
    only: Option<&str>,
) -> Result<Vec<Run>, StoreError> {
    let Some(only) = only else {
        let query = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM numbers WHERE first_number > $1 ORDER BY first_number LIMIT $2"
        ));
        return collect(query.bind(after).bind(i64::from(limit)).fetch(db)).await;
    };
    let query = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM numbers WHERE first_number > $1 AND (network = $3 \
         OR pool IN (SELECT id FROM ring_pools WHERE network = $3)) \
         ORDER BY first_number LIMIT $2"
    ));
    let query = query.bind(after).bind(i64::from(limit)).bind(only.to_owned());
    collect(query.fetch(db)).await
}

async fn collect(
    rows: impl futures_util::Stream<Item = Result<AnyRow, sqlx::Error>>,
) -> Result<Vec<Run>, StoreError> {
    rows.map_err(StoreError::from)
        .try_fold(Vec::new(), async |mut runs, row| {
            runs.push(Run::from_row(&row)?);
            Ok(runs)
        })
        .await
}

async fn one(
    db: &mut AnyConnection,
    query: &'static str,
    argument: i64,
) -> Result<Option<Run>, StoreError> {
    let row = sqlx::query(query).bind(argument).fetch_optional(db).await?;
    row.map(|row| Run::from_row(&row)).transpose()
}

async fn delete(db: &mut AnyConnection, first: PromoNumber) -> Result<(), StoreError> {
    let query = sqlx::query("DELETE FROM numbers WHERE first_number = $1");
    query.bind(digits(first)).execute(db).await?;
    Ok(())
}

/// Reinserts a part of a row that [`cut`] has split. The part is outside the range passed to
/// [`cut`]. This part differs from the adjacent rows, so it is not merged with them.
async fn put_back(db: &mut AnyConnection, run: Run) -> Result<(), StoreError> {
    run.insert(db).await
}

fn neighbour(of: PromoNumber, step: i64) -> Result<PromoNumber, StoreError> {
    number(digits(of) + step)
}

fn pool_id(value: Option<i64>) -> Result<Option<PoolId>, StoreError> {
    value.map(|id| from_db(id, "a pool's id").map(PoolId)).transpose()
}

impl From<&Run> for Refusal {
    fn from(run: &Run) -> Self {
        let of = |what: &str| match run.pool {
            Some(pool) => format!("{what} ring pool {pool}"),
            None => what.trim_end_matches(" of").to_owned(),
        };
        let holder = match run.state {
            NumberState::Available => of("in the rotation of"),
            NumberState::Overflow => "an overflow number".to_owned(),
            NumberState::Waiting if run.goal == Some(Goal::Overflow) => {
                of("promised to") + " as its overflow number"
            }
            NumberState::Waiting => of("promised to"),
            NumberState::Free => match &run.network {
                Some(network) => format!("in the inventory, for network {network} only"),
                None => "in the inventory".to_owned(),
            },
            NumberState::Quarantined => "quarantined".to_owned(),
            NumberState::Retired => "retired".to_owned(),
        };
        Self::NumberTaken { number: run.first, holder }
    }
}
