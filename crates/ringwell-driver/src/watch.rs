//! An observer of a shard's decisions: used by the simulator, not by the server.

use ringwell_core::{Millis, PoolId, PromoNumber, VisitorId};
use ringwell_engine::{Engine, Outcome};

use crate::platform::Moment;

/// Receives a shard's decisions, on the shard's thread, before anything else happens there.
pub trait Watch {
    /// A row of a batch was decided. All rows of its batch that the shard owns have been decided by
    /// now.
    fn served(&self, shard: u16, engine: &Engine, row: &Served<'_>);

    /// An allocation of `at[0]` that no client saw was undone at `at[1]`.
    fn withdrawn(&self, shard: u16, engine: &Engine, number: PromoNumber, at: [Millis; 2]);

    /// A lockout was ended at `now` because a client requested it.
    fn released(&self, shard: u16, number: PromoNumber, now: Millis);

    /// Pools, holds or lockouts have changed other than by rows.
    fn changed(&self, shard: u16);

    /// The answers to batches from before the pools arrived here could not be stored.
    fn answers_lost(&self, shard: u16);
}

/// A row that its owner has decided.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// The pool.
    pub pool: PoolId,
    /// The index of the row in its batch.
    pub row: u16,
    /// Two parts of the parameters.
    pub params: [&'a [u8]; 2],
    /// The visitor, if the row names one.
    pub visitor: Option<VisitorId>,
    /// Whether the batch is repeatable.
    pub is_repeatable: bool,
    /// The time after which no caller waits for the answer.
    pub deadline: Moment,
    /// The time of the decision, in shard time.
    pub at: Millis,
    /// Its outcome.
    pub outcome: Outcome,
}
