//! Asks all shards of a node what they know of numbers that change owners.

use std::collections::HashSet;
use std::sync::Arc;

use ringwell_core::{Millis, NumberRange, PoolId, Retired};
use ringwell_directory::{Directory, bucket};
use ringwell_engine::Facts;
use ringwell_journal::AnswerEntry;

use ringwell_driver::message::{Done, Holds, Known, Step};

use super::{ChangeError, ask};
use ringwell_driver::node::Node;
use ringwell_driver::queue::Peers;

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
    let told = gather(node, peers, directory, buckets).await?;
    Ok(aside(move || told.settle(Facts::settle)).await)
}

/// As [`known`], for the next owner on another node: see [`Facts::settle_apart`].
///
/// # Errors
/// [`ChangeError::Shard`].
pub(crate) async fn known_apart(
    node: &Node,
    peers: &Peers,
    directory: Arc<Directory>,
    buckets: &[u16],
) -> Result<Known, ChangeError> {
    let told = gather(node, peers, &directory, buckets).await?;
    let buckets: HashSet<u16> = buckets.iter().copied().collect();
    let settle = move |facts: Facts| {
        let goes = |pool: &PoolId| buckets.contains(&bucket(*pool));
        facts.settle_apart(|number| directory.pool_by_number(number).filter(goes))
    };
    Ok(aside(move || told.settle(settle)).await)
}

/// What each shard has told.
#[derive(Default)]
struct Gathered(Vec<(Known, Holds)>);

impl Gathered {
    fn settle(self, settle: impl FnOnce(Facts) -> (Vec<Retired>, Vec<AnswerEntry>)) -> Known {
        let (mut facts, mut at) = (Facts::default(), Millis(u64::MAX));
        for (told, holds) in self.0 {
            facts.add(told.numbers, told.answers);
            facts.add_holds(holds);
            at = at.min(told.at);
        }
        let (numbers, answers) = settle(facts);
        Known { numbers, answers, at }
    }
}

/// Does what takes a second for a million numbers where no batch waits for it.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

async fn gather(
    node: &Node,
    peers: &Peers,
    directory: &Directory,
    buckets: &[u16],
) -> Result<Gathered, ChangeError> {
    let pools = buckets.iter().flat_map(|bucket| directory.pools_in(*bucket));
    let ranges: Vec<NumberRange> = pools.flat_map(|pool| pool.numbers()).copied().collect();
    let mut gathered = Gathered::default();
    for shard in node.shards() {
        let step = Step::TellAll { numbers: ranges.clone(), buckets: buckets.to_vec() };
        let Done::All(told, holds) = ask(peers, shard, step).await? else {
            return Err(ChangeError::Shard(shard));
        };
        gathered.0.push((told, holds));
    }
    Ok(gathered)
}
