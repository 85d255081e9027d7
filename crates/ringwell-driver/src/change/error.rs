//! The reasons why the directory cannot be changed.

use ringwell_core::{PoolId, PromoNumber};
use ringwell_directory::Fault;

use crate::store::FileError;

/// The reason why the directory cannot be changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error texts explain the variants")]
pub enum ChangeError {
    /// An overflow number is shared, so no visitor may hold it.
    #[error(
        "{number} cannot become the overflow number of ring pool {pool} yet: {why}. Take the \
         number out of rotation, and wait until its lockout has ended"
    )]
    Overflow { number: PromoNumber, pool: PoolId, why: &'static str },
    /// Two pools of a shard would have the same number.
    #[error("ring pool {pool} cannot have {number}: the number is already in ring pool {owner}")]
    Clash { pool: PoolId, number: PromoNumber, owner: PoolId },
    /// The lifetimes could not be recorded. If answered allocations were lost after the change, the
    /// next startup would hold pools for too short a time.
    #[error(
        "{0}. The change was not applied: before a lifetime becomes shorter or the numbers of a \
         pool change, the longest lifetime of the present ring pools must be recorded. Fix the \
         file error, then repeat the change"
    )]
    Lifetimes(#[source] FileError),
    /// The change would break rules between pools.
    #[error("{}", text(.0))]
    Rules(Vec<Fault>),
    /// A shard does not answer.
    #[error("shard {0} did not accept the change: it is stopping or overloaded")]
    Shard(u16),
    /// The node is stopping.
    #[error("the server is stopping")]
    Stopping,
}

fn text(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
