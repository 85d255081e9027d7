//! Asks all shards of a node what they know of numbers that change owners.

use ringwell_core::{Millis, NumberRange, PoolId, Retired};
use ringwell_directory::{Directory, bucket};
use ringwell_engine::Facts;
use ringwell_journal::AnswerEntry;

use super::{ChangeError, Done, Step, ask};
use crate::mesh::Peers;
use crate::node::Node;

/// What is known, and in which moment.
#[derive(Debug)]
pub(crate) struct Known {
    /// The newest allocation of each number, in rising order.
    pub(crate) numbers: Vec<Retired>,
    /// What rows of batches that may be sent again would be answered.
    pub(crate) answers: Vec<AnswerEntry>,
    pub(crate) at: Millis,
}

/// What the shards of this node know of numbers that the pools of `buckets` have in `directory`, or
/// had. They must have left those pools.
///
/// # Errors
/// [`ChangeError::Shard`].
pub(crate) async fn known(
    node: &Node,
    peers: &Peers,
    directory: &Directory,
    buckets: &[u16],
) -> Result<Known, ChangeError> {
    let (facts, at) = gather(node, peers, directory, buckets).await?;
    let (numbers, answers) = facts.settle();
    Ok(Known { numbers, answers, at })
}

/// As [`known`], for the next owner on another node: see [`Facts::settle_apart`].
///
/// # Errors
/// [`ChangeError::Shard`].
pub(crate) async fn known_apart(
    node: &Node,
    peers: &Peers,
    directory: &Directory,
    buckets: &[u16],
) -> Result<Known, ChangeError> {
    let (facts, at) = gather(node, peers, directory, buckets).await?;
    let goes = |pool: &PoolId| buckets.contains(&bucket(*pool));
    let (numbers, answers) =
        facts.settle_apart(|number| directory.pool_by_number(number).filter(goes));
    Ok(Known { numbers, answers, at })
}

async fn gather(
    node: &Node,
    peers: &Peers,
    directory: &Directory,
    buckets: &[u16],
) -> Result<(Facts, Millis), ChangeError> {
    let pools = buckets.iter().flat_map(|bucket| directory.pools_in(*bucket));
    let ranges: Vec<NumberRange> = pools.flat_map(|pool| pool.numbers()).copied().collect();
    let (mut facts, mut at) = (Facts::default(), Millis(u64::MAX));
    for shard in node.shards() {
        let step = Step::TellAll { numbers: ranges.clone(), buckets: buckets.to_vec() };
        let Done::All(told, holds) = ask(peers, shard, step).await? else {
            return Err(ChangeError::Shard(shard));
        };
        facts.add(told.numbers, told.answers);
        facts.add_holds(holds);
        at = at.min(told.at);
    }
    Ok((facts, at))
}
