//! An observer of a shard's decisions. The simulator uses it; the server does not.

use ringwell_core::{Millis, PoolId, PromoNumber, VisitorId};
use ringwell_engine::{Engine, Outcome};

use crate::moment::Moment;

/// Receives a shard's decisions on the shard's thread, before that thread does anything else.
pub trait Watch {
    /// Reports that a row of a batch was decided. By now, all rows of its batch that belong to the
    /// shard have been decided.
    fn served(&self, shard: u16, engine: &Engine, row: &Served<'_>);

    /// Reports that an allocation made at `at[0]` was undone at `at[1]`, because no client saw it.
    fn withdrawn(&self, shard: u16, engine: &Engine, number: PromoNumber, at: [Millis; 2]);

    /// Reports that a lockout was ended at `now` because a client requested it.
    fn released(&self, shard: u16, number: PromoNumber, now: Millis);

    /// Reports that pools, holds or lockouts have changed, but not because of rows.
    fn changed(&self, shard: u16);

    /// Reports that pools have arrived at this shard, but that some earlier answers to repeatable
    /// batches could not be stored with them.
    fn answers_lost(&self, shard: u16);
}

/// A row that its owner has decided.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// The pool.
    pub pool: PoolId,
    /// The row's index in its batch.
    pub row: u16,
    /// The parameters: the parts of the query before and after the key.
    pub params: [&'a [u8]; 2],
    /// The visitor, if the row names one.
    pub visitor: Option<VisitorId>,
    /// Whether the batch is repeatable.
    pub is_repeatable: bool,
    /// The time after which no caller is waiting for the answer.
    pub deadline: Moment,
    /// The shard time of the decision.
    pub at: Millis,
    /// The row's outcome.
    pub outcome: Outcome,
}
