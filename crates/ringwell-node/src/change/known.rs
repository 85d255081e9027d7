//! What all shards of a node know together of numbers that change owners.
//!
//! Their clocks are one, so that it can be told here which of two allocations is the later one: the
//! next owner, whose clock may be another, could not.

use std::collections::BTreeMap;

use ringwell_core::{Millis, NumberRange, PromoNumber, Retired};
use ringwell_directory::{Directory, bucket};
use ringwell_journal::{Answer, AnswerEntry};

use super::{ChangeError, Done, Step, ask};
use crate::mesh::Peers;
use crate::node::Node;

/// What is known, and in which moment.
#[derive(Debug)]
pub(crate) struct Known {
    /// The newest allocation of each number.
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
    let pools = directory.pools().iter().filter(|pool| buckets.contains(&bucket(pool.id())));
    let ranges: Vec<NumberRange> = pools.flat_map(|pool| pool.numbers()).copied().collect();
    let (mut numbers, mut answers, mut at) = (BTreeMap::new(), Vec::new(), Millis(u64::MAX));
    for shard in node.shards() {
        let step = Step::TellAll { numbers: ranges.clone(), buckets: buckets.to_vec() };
        let Done::All(told) = ask(peers, shard, step).await? else {
            return Err(ChangeError::Shard(shard));
        };
        told.numbers.into_iter().for_each(|retired| add(&mut numbers, retired));
        answers.extend(told.answers);
        at = at.min(told.at);
    }
    for entry in &mut answers {
        // Gone to somebody else since: the row gets the overflow number.
        if let Answer::Number(number) = entry.answer
            && numbers.get(&number).is_some_and(|newest| newest.local_at > entry.at)
        {
            entry.answer = Answer::Overflow;
        }
    }
    Ok(Known { numbers: numbers.into_values().collect(), answers, at })
}

/// The newest allocation counts, and the latest end of a lockout.
fn add(all: &mut BTreeMap<PromoNumber, Retired>, retired: Retired) {
    let known = all.entry(retired.slot.number).or_insert(retired);
    let locked_until = known.slot.locked_until.max(retired.slot.locked_until);
    // A shard that had it before may know the same allocation without its visitor.
    let rank = |retired: &Retired| (retired.local_at, retired.slot.locked_until);
    if rank(&retired) > rank(known) {
        *known = retired;
    }
    known.slot.locked_until = locked_until;
}
