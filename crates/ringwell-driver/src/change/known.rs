//! Asks all of a node's shards for the states of numbers that change owners.

use std::collections::BTreeSet;
use std::sync::Arc;

use ringwell_core::{Millis, NumberRange, PoolId, Retired};
use ringwell_directory::{Directory, bucket};
use ringwell_engine::{Apart, Facts};
use ringwell_journal::AnswerEntry;

use crate::canary::{Bug, planted};
use crate::message::{Holds, Known, Step, StepResult};

use super::ask::ask;
use super::error::ChangeError;
use crate::node::Node;
use crate::platform::Platform;
use crate::queue::Peers;
use crate::rows::spec;

/// Returns this node's recorded states of the numbers that belong to `buckets`. These numbers are
/// in pools of these buckets according to `directory`, or were handed out from such pools earlier.
/// Call this only after the shards have removed the pools.
///
/// # Errors
/// [`ChangeError::Shard`] or [`ChangeError::Stopping`].
pub async fn known<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    directory: &Directory,
    buckets: &[u16],
) -> Result<Known, ChangeError> {
    let report = gather(node, peers, directory, buckets).await?;
    platform
        .offload(move || report.settle(|facts, _| facts.settle()))
        .await
        .ok_or(ChangeError::Stopping)
}

/// Like [`known`], but for a next owner on another node. Also returns the holds that the next owner
/// must apply because the history of some numbers may be incomplete; see [`Facts::settle_apart`].
///
/// # Errors
/// [`ChangeError::Shard`] or [`ChangeError::Stopping`].
pub async fn known_apart<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    directory: Arc<Directory>,
    buckets: &[u16],
) -> Result<(Known, Vec<(PoolId, Millis)>), ChangeError> {
    let report = gather(node, peers, &directory, buckets).await?;
    // A number may have entered a pool that is in transit. No shard has that pool, so no shard
    // reports the pool's hold.
    let bucket_holds = node.bucket_holds();
    let pools = buckets.iter().flat_map(|bucket| directory.pools_in(*bucket));
    let held = pools.filter_map(|pool| {
        Some((Some(pool.id()), bucket_holds.until(pool.id(), spec(pool).lockout)?))
    });
    let held: Holds = held.collect();
    let buckets: BTreeSet<u16> = buckets.iter().copied().collect();
    let settle = move |mut facts: Facts, at| {
        facts.add_holds(held);
        let goes = |pool: &PoolId| buckets.contains(&bucket(*pool));
        let at = if planted(Bug::OldGoesAlong) { Millis::ZERO } else { at };
        let pool_of = |number| directory.pool_by_number(number).filter(goes);
        facts.settle_apart(at, pool_of, |pool| directory.pool(pool).is_some())
    };
    let settled = platform.offload(move || {
        let mut doubts = Vec::new();
        let known = report.settle(|facts, at| {
            let Apart { numbers, answers, doubts: found } = settle(facts, at);
            doubts = if planted(Bug::DoubtsStayBehind) { Vec::new() } else { found };
            (numbers, answers)
        });
        (known, doubts)
    });
    settled.await.ok_or(ChangeError::Stopping)
}

/// All shards' reports.
#[derive(Default)]
struct Gathered(Vec<(Known, Holds)>);

impl Gathered {
    fn settle(
        self,
        settle: impl FnOnce(Facts, Millis) -> (Vec<Retired>, Vec<AnswerEntry>),
    ) -> Known {
        let (mut facts, mut at) = (Facts::default(), Millis(u64::MAX));
        for (report, holds) in self.0 {
            facts.add(report.numbers, report.answers);
            facts.add_holds(holds);
            at = at.min(report.at);
        }
        let (numbers, answers) = settle(facts, at);
        Known { numbers, answers, at }
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
        let step = Step::ReportAll { numbers: ranges.clone(), buckets: buckets.to_vec() };
        let StepResult::All(report, holds) = ask(peers, shard, step).await? else {
            return Err(ChangeError::Shard(shard));
        };
        gathered.0.push((report, holds));
    }
    Ok(gathered)
}
