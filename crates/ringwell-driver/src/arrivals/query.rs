//! Asks other nodes about the lockouts of numbers.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use ringwell_core::{Millis, NumberRange, PoolId, Slot};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::canary::{Bug, planted};
use crate::lists::digest;
use crate::node::Node;
use crate::platform::{Moment, Path, Platform};
use crate::queue::Peers;

/// A node that does not answer within this time counts as unreachable.
const PATIENCE: Duration = Duration::from_secs(1);

/// The maximum count of number ranges in one request; such a request is about 100 KB long.
pub(super) const RANGES_MAX: usize = 2_000;

/// A query about lockouts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// For each pool, its ranges, each given as its first number and its length.
    pub pools: Vec<Vec<(u64, u32)>>,
}

/// The answer to [`Wanted`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Locked {
    /// One entry per pool, in the order of the query. An entry is the longest time, in
    /// milliseconds, for which one of the pool's numbers may still be locked. It is `None` if one
    /// of these numbers is in one of the answering node's pools.
    pub pools: Vec<Option<u64>>,
    /// The time, in milliseconds, for which lockouts from earlier lists of pools may still run.
    /// Older releases omit this field.
    #[serde(default)]
    pub earlier: u64,
    /// The answering node's list of pools. Absent if the query names pools, or in answers of older
    /// releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<ServedList>,
    /// For each pool, the time of the allocation with the longest remaining lockout, by the clock
    /// of the shard that made it; 0 if there is none. Older releases omit this field.
    #[serde(default)]
    pub allocated_at: Vec<u64>,
    /// For each pool, the time in milliseconds since the newest allocation of one of its numbers
    /// that the answering node has recorded, although it has the number in none of its pools. `None`
    /// if there is none. Older releases omit this field.
    #[serde(default)]
    pub ages: Vec<Option<u64>>,
    /// For each queried pool, the pools that share a number with it and are in transit to or from
    /// the answering node. The numbers of a pool in transit are not in rotation until its next
    /// owner takes it over. Empty if there are no such pools; older releases omit this field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moving: Vec<Vec<u64>>,
}

/// The list of pools that a node serves.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ServedList {
    /// The digest of all pools, with their numbers and lifetimes.
    pub digest: u64,
    /// The longest lifetime, in milliseconds of shard time.
    pub longest: u64,
}

/// The state of a pool's numbers on the other nodes.
#[derive(Clone, Debug)]
pub(super) struct Elsewhere {
    /// The length of the hold that the pool needs; `None` if a node is unreachable or has one of
    /// the pool's numbers in a pool of its own.
    pub(super) left: Option<Millis>,
    /// The times of the allocations whose lockouts still run, as reported by other nodes.
    pub(super) allocated_at: BTreeSet<Millis>,
    /// The time since another node last handed out one of the pool's numbers.
    pub(super) age: Option<Millis>,
}

impl Elsewhere {
    /// Whether a node reports a running lockout from an allocation other than the one in `slot`.
    pub(super) fn is_of_other(&self, slot: &Slot) -> bool {
        let is_other = |at: &Millis| slot.allocated_at > Millis::ZERO && *at != slot.allocated_at;
        self.allocated_at.iter().any(is_other)
    }
}

/// Asks the other nodes how long lockouts that began under earlier lists of pools may still run. If
/// a node serves another list than this node, its list may be an earlier one, so its longest
/// lifetime counts, too. Returns the longest of all these times.
pub(crate) async fn earlier_elsewhere<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
) -> Millis {
    let body = Bytes::from(serde_json::to_vec(&Wanted { pools: Vec::new() }).unwrap_or_default());
    let until = platform.moment() + PATIENCE;
    let asked: Vec<_> = node.others().into_iter().map(|to| post(peers, to, &body)).collect();
    let directory = node.directory();
    let own = platform.offload(move || digest(&directory)).await;
    let mut earlier = Millis::ZERO;
    for answer in asked {
        let Some(answer) = read(platform, answer, until).await else { continue };
        let other = answer.list.filter(|list| Some(list.digest) != own);
        let other = other.filter(|_| !planted(Bug::OtherListIgnored));
        earlier = earlier.max(Millis(answer.earlier.max(other.map_or(0, |list| list.longest))));
    }
    earlier
}

/// Asks `nodes` about the numbers of these pools. An unreachable node counts as having handed the
/// numbers out if `counts_silent` is set. Otherwise, it is removed from `nodes`. Also returns the
/// longest lifetime of earlier lists whose lockouts may still run, according to the nodes that
/// answer.
pub(super) async fn ask_others<P: Platform>(
    platform: &P,
    nodes: &mut Vec<u16>,
    peers: &Peers,
    pools: &[(PoolId, Vec<NumberRange>)],
    counts_silent: bool,
) -> (Vec<Elsewhere>, Millis) {
    let nothing = Elsewhere { left: Some(Millis::ZERO), allocated_at: BTreeSet::new(), age: None };
    let (mut all, mut earlier) = (vec![nothing; pools.len()], Millis::ZERO);
    let (mut from, mut is_silent) = (0, false);
    // Waits only once for a silent node, even if the numbers need several queries.
    while from < pools.len() && !is_silent {
        let (mut to, mut ranges) = (from + 1, pools[from].1.len());
        while to < pools.len() && ranges + pools[to].1.len() <= RANGES_MAX {
            ranges += pools[to].1.len();
            to += 1;
        }
        let words = |(_, ranges): &(PoolId, Vec<NumberRange>)| {
            let word = |range: &NumberRange| (range.first().to_code(), range.count());
            ranges.iter().map(word).collect()
        };
        let wanted = Wanted { pools: pools[from..to].iter().map(words).collect() };
        let body = Bytes::from(serde_json::to_vec(&wanted).unwrap_or_default());
        let until = platform.moment() + PATIENCE;
        // The queries run concurrently without tasks, because pool changes run on threads that have
        // no task executor.
        let asked: Vec<_> = nodes.iter().map(|to| (*to, post(peers, *to, &body))).collect();
        for (other, answer) in asked {
            let answer = read(platform, answer, until).await;
            let Some(answer) = answer.filter(|it| it.pools.len() == to - from) else {
                if counts_silent {
                    all[from..].iter_mut().for_each(|it| it.left = None);
                    is_silent = true;
                } else {
                    nodes.retain(|node| *node != other);
                }
                continue;
            };
            earlier = earlier.max(Millis(answer.earlier));
            for (all, left) in all[from..to].iter_mut().zip(answer.pools) {
                all.left = all.left.zip(left).map(|(all, left)| all.max(Millis(left)));
            }
            let asked = all[from..to].iter_mut().zip(&pools[from..to]);
            for ((all, (pool, _)), moving) in asked.zip(answer.moving) {
                // A pool's own numbers move together with the pool, so its own transit does not
                // matter.
                all.left = all.left.filter(|_| moving.iter().all(|other| *other == pool.0));
            }
            for (all, at) in all[from..to].iter_mut().zip(answer.allocated_at) {
                all.allocated_at.extend(Some(Millis(at)).filter(|at| *at > Millis::ZERO));
            }
            for (all, age) in all[from..to].iter_mut().zip(answer.ages) {
                all.age = all.age.into_iter().chain(age.map(Millis)).min();
            }
        }
        from = to;
    }
    (all, earlier)
}

/// An answer that arrives later; `None` if the query could not be sent.
type Answer = Option<oneshot::Receiver<Result<Bytes, String>>>;

/// Sends the query.
fn post(peers: &Peers, other: u16, body: &Bytes) -> Answer {
    peers.post(other, Path::Locked, body.clone())
}

/// Waits for an answer, but not after `until`.
async fn read<P: Platform>(platform: &P, answer: Answer, until: Moment) -> Option<Locked> {
    let answer = platform.by(until, answer?).await?.ok()?.ok()?;
    serde_json::from_slice(&answer).ok()
}
