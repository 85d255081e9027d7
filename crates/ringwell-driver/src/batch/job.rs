//! The buffers of one batch.

use ringwell_core::Millis;
use ringwell_engine::Outcome;
use tokio::sync::oneshot;

use crate::message::PeerAnswer;
use crate::rows::RowPlan;

/// The buffers for one batch's rows, reused for the next batch.
#[derive(Debug, Default)]
pub struct Job {
    pub(super) batch: ringwell_wire::Batch,
    pub(super) plans: Vec<RowPlan>,
    /// One entry per row; a row counts as late until an owner answers it.
    pub(super) outcomes: Vec<Outcome>,
    pub(super) remote: Vec<Remote>,
    /// Rows whose pools are missing from the directory but may be known to another source.
    pub(super) unknown: Vec<u16>,
    /// Whether this shard tried to serve a row whose pool it no longer owns.
    pub(super) has_moved: bool,
}

/// Rows that were sent to another shard.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) shard: u16,
    pub(super) rows: Vec<u16>,
    /// The time at which the owner processed these rows, once it has answered.
    pub(super) answered_at: Option<Millis>,
    pub(super) reply: Option<oneshot::Receiver<PeerAnswer>>,
}
