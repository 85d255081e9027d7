//! The groups that may be missing after a start, and the promises that remain valid.

use super::values::{Grant, Judged, Loss, Model, Recovery, broken};

impl Model {
    /// Records that the groups from `next_n` on are lost. These groups must not contain answered
    /// rows, unless a fault explains the loss.
    pub(super) fn forget(&mut self, recovery: &Recovery, shards: &[u16]) -> Judged {
        let Recovery { shard, next_n, loss, lost_since_us, .. } = *recovery;
        if loss == Loss::All {
            self.forget_all(recovery, shards);
            return Ok(());
        }
        if loss != Loss::Nothing {
            // The lost end of the journal may have contained the only remaining copies of records
            // whose history was dropped.
            self.forget_holders(shard);
        }
        for holders in self.holders.values_mut() {
            let here = holders.iter_mut().filter(|holder| holder.shard == shard);
            for holder in here.filter(|holder| holder.withdrawn >= Some(next_n)) {
                holder.withdrawn = None;
            }
        }
        let is_gone = |grant: &Grant| {
            grant.shard == shard && (grant.group >= next_n || grant.true_us >= lost_since_us)
        };
        for grant in self.granted.values_mut().flatten().filter(|grant| is_gone(grant)) {
            grant.is_lost = true;
        }
        for held in self.held.values_mut().flatten() {
            // The state that the previous owner reported to this shard may be lost.
            let is_reported = held.keeper == shard && held.grant.shard != shard;
            held.is_unreported |= is_reported && loss != Loss::Nothing;
            let is_here = held.is_forgotten && held.grant.shard == shard;
            if is_here && loss == Loss::Older && held.forgotten_us >= lost_since_us {
                // The record of the hold that protects the number is lost too.
                held.is_newer = true;
            }
            if !is_gone(&held.grant) || held.is_lost || held.is_forgotten {
                continue;
            }
            match loss {
                Loss::Doubted | Loss::Older => {
                    held.is_forgotten = true;
                    held.forgotten_us = recovery.now_us;
                    held.is_newer = loss == Loss::Older;
                }
                Loss::Lied => {
                    held.is_lost = true;
                    held.is_unknown = true;
                    self.excused += 1;
                }
                Loss::Nothing | Loss::All => {
                    let text = format!(
                        "the number was sent to a client, and its record was in group {}, but the \
                        journal ends before group {next_n}",
                        held.grant.group
                    );
                    return Err(broken("forgotten", shard, held.grant.number, text));
                }
            }
        }
        Ok(())
    }

    /// Handles the end of a node without files. The node's lockouts are lost, and so is the history
    /// of the numbers that it had passed to other nodes.
    fn forget_all(&mut self, recovery: &Recovery, shards: &[u16]) {
        let shard = recovery.shard;
        self.forget_holders(shard);
        for grant in self.granted.values_mut().flatten().filter(|grant| grant.shard == shard) {
            grant.is_lost = true;
        }
        let is_served =
            |number: &u64| recovery.pools.values().any(|pool| pool.numbers.contains(number));
        for (number, all) in &mut self.held {
            let is_kept_here = is_served(number);
            for held in all {
                held.is_lost |= shards.contains(&held.keeper) || is_kept_here;
                held.is_forgotten |= held.grant.shard == shard;
            }
        }
    }

    /// Handles a shard that begins to serve with data that is older than its answers. If no other
    /// node could report this, nothing is promised for the missing answers.
    pub(crate) fn serves_older(&mut self, shard: u16, is_known: bool) {
        let all = self.held.values_mut().flatten().filter(|held| held.grant.shard == shard);
        for held in all.filter(|held| held.is_newer) {
            held.is_newer = false;
            held.is_lost |= !is_known;
            held.is_unknown |= !is_known;
            self.excused += u64::from(!is_known);
        }
    }

    /// Records that a node's files were discarded. From then on, the numbers whose state was in
    /// these files are protected only by holds.
    pub(crate) fn wiped(&mut self, shard: u16) {
        for held in self.held.values_mut().flatten() {
            held.is_forgotten |= held.grant.shard == shard;
            // The state that the previous owner reported to this shard is lost too.
            held.is_unreported |= held.keeper == shard;
        }
        for grant in self.granted.values_mut().flatten().filter(|grant| grant.shard == shard) {
            grant.is_lost = true;
        }
        self.shards.remove(&shard);
        self.forget_holders(shard);
    }
}
