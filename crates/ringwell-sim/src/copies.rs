//! Restores data directories and journals from copies, and finds the facts that a copy lacks but
//! other nodes have recorded.
//!
//! An operator may mark the restored data (`ringwell restore`, `serve --restored`). Without a mark,
//! only the other nodes can detect that the data is a copy. The simulated operators follow the
//! documented rules. They do not restore a copy that is older than the newest map. If buckets have
//! moved since the copy was made, they restore it only while all other nodes serve. They also wait
//! until every lockout that is longer than its pool's present lifetime has ended.

use std::collections::BTreeSet;
use std::path::Path;

use ringwell_config::Durability;
use ringwell_directory::{BUCKETS, Owner, Owners};
use ringwell_driver::store::{Identity, Leaving, SeenJournals, WrittenJournal, is_restored};

use crate::event::Event;
use crate::fault::Kind;
use crate::files::{DATA, restored_mark};
use crate::older::{Copied, CopiedJournal, Known, Lost, Older};
use crate::pace::{MS, SECOND};
use crate::world::World;

impl World {
    /// Copies a node's data, as an operator would, and restores the copy some time later.
    pub(crate) fn copy_data(&mut self, node: usize, kind: Kind) {
        if self.durability == Durability::Memory {
            return;
        }
        let later = self.faults.stream(kind).between(200 * MS, 8 * SECOND);
        let is_whole = {
            let disk = self.nodes[node].files.disk();
            !disk.is_to_blame() && !disk.has_stopped
        };
        let Some(owners) = self.owners_served(node).filter(|_| is_whole) else { return };
        let copied = Copied {
            node,
            is_marked: kind == Kind::Restored,
            files: self.nodes[node].files.disk().copy(),
            at: self.now(),
            owners: Some(owners),
            map: self.nodes[node].map.version,
            boots: self.nodes[node].boots.len(),
        };
        self.tell(node, &[], || "a copy of the node's data is made".to_owned());
        self.queue.add(self.now() + later, Event::CopyBack(copied));
    }

    /// Loses the journal of one of a node's shards. The node's other journals remain.
    pub(crate) fn lose_journal(&mut self) {
        let random = self.faults.stream(Kind::LostJournal);
        let (which, drawn, is_found) = (random.next(), random.next(), random.chance(500_000));
        let later = random.between(200 * MS, 8 * SECOND);
        let Some((node, shard)) = self.journal(which, drawn) else { return };
        let written = self.journal_written(node, shard);
        self.stop(node, false);
        let lost = self.nodes[node].files.disk().lose_shard(shard);
        // Startup detects this loss without the help of other nodes.
        let before = self.nodes[node].older;
        let since_us = before.map_or(u64::MAX, |older| older.since_us);
        self.nodes[node].older = Some(Older { is_marked: true, since_us });
        self.tell(node, &[], || format!("the journal of shard {shard} is lost"));
        if is_found {
            let lost = Lost { node, shard, written, files: lost, at: self.now(), before };
            self.queue.add(self.now() + later, Event::BroughtBack(lost));
        }
    }

    /// Copies the journal of one of a node's shards, as an operator would, and restores the copy
    /// some time later. Sometimes the original is brought back after that.
    pub(crate) fn copy_journal(&mut self) {
        let random = self.faults.stream(Kind::CopiedJournal);
        let (which, drawn, is_found) = (random.next(), random.next(), random.chance(700_000));
        let [later, back] = [(); 2].map(|()| random.between(200 * MS, 8 * SECOND));
        let Some((node, shard)) = self.journal(which, drawn) else { return };
        let files = {
            let disk = self.nodes[node].files.disk();
            let is_whole = !disk.is_to_blame() && !disk.has_stopped;
            is_whole.then(|| disk.copy().of_shard(shard))
        };
        let Some(files) = files else { return };
        let copied = CopiedJournal {
            node,
            shard,
            written: self.journal_written(node, shard),
            files,
            at: self.now(),
            owners: self.owners_served(node),
            map: self.nodes[node].map.version,
            back_us: is_found.then_some(back),
        };
        self.tell(node, &[], || format!("a copy of the journal of shard {shard} is made"));
        self.queue.add(self.now() + later, Event::JournalCopyBack(copied));
    }

    pub(crate) fn put_journal_back(&mut self, copied: &CopiedJournal) {
        let CopiedJournal { node, shard, at, map, back_us, .. } = *copied;
        let written = self.journal_written(node, shard);
        // If the node has started again since the copy was made, it detects without the help of
        // other nodes that its journal is a copy.
        let is_marked = written != copied.written;
        let mut others = self.nodes.iter().enumerate().filter(|(other, _)| *other != node);
        let serves = |it: &crate::world::Node| it.running.as_ref().is_some_and(|r| r.is_serving);
        let is_known = is_marked || others.any(|(_, other)| serves(other));
        if self.faults.are_over
            || self.may_not_lose(node)
            || !is_known
            || self.nodes[node].map.version != map
            || self.cluster.newest().version != map
            || self.owners_served(node) != copied.owners
        {
            return;
        }
        self.stop(node, false);
        let files = self.nodes[node].files.disk().lose_shard(shard);
        self.nodes[node].files.disk().bring_back(shard, &copied.files);
        self.nodes[node].older = Some(Older { is_marked, since_us: at });
        self.tell(node, &[], || format!("the journal of shard {shard} is put back from the copy"));
        if let Some(back) = back_us {
            let original = Lost { node, shard, written, files, at: self.now(), before: None };
            self.queue.add(self.now() + back, Event::BroughtBack(original));
        }
    }

    /// Returns the node and the shard that were drawn, if the simulator may lose or copy the
    /// shard's journal now.
    fn journal(&self, which: u64, drawn: u64) -> Option<(usize, u16)> {
        let node = usize::try_from(which % self.nodes.len() as u64).unwrap_or(0);
        let known = Identity::read(&self.nodes[node].files, Path::new(DATA)).ok().flatten();
        let shards: Vec<u16> =
            known.iter().flat_map(|known| known.journals.keys()).copied().collect();
        if self.may_not_lose(node) || shards.is_empty() {
            return None;
        }
        Some((node, shards[usize::try_from(drawn % shards.len() as u64).unwrap_or(0)]))
    }

    fn may_not_lose(&self, node: usize) -> bool {
        self.is_in_between()
            || self.is_listing
            || self.durability == Durability::Memory
            || self.nodes[node].is_refused
            || self.nodes[node].before_moves.is_some()
            // If two journals were lost, bringing back one of them would hide the loss of the
            // other.
            || self.nodes[node].older.is_some()
    }

    /// Returns the entry in `identity.json` for a shard's journal.
    fn journal_written(&self, node: usize, shard: u16) -> Option<WrittenJournal> {
        let known = Identity::read(&self.nodes[node].files, Path::new(DATA)).ok().flatten()?;
        known.journals.get(&shard).cloned()
    }

    /// Brings back a lost journal, in place of the journal that was written since the loss.
    pub(crate) fn bring_back(&mut self, lost: &Lost) {
        let Lost { node, shard, at, before, .. } = *lost;
        let known = Identity::read(&self.nodes[node].files, Path::new(DATA)).ok().flatten();
        // On a new disk that has no `identity.json` yet, startup could mistake an older journal for
        // the newest one.
        let may_not = known.is_none()
            || self.faults.are_over
            || self.is_in_between()
            || self.is_listing
            || self.nodes[node].is_refused
            || self.nodes[node].before_moves.is_some();
        if may_not {
            return;
        }
        self.stop(node, false);
        self.nodes[node].files.disk().bring_back(shard, &lost.files);
        let is_same = self.journal_written(node, shard) == lost.written;
        self.nodes[node].older =
            if is_same && !is_restored(&self.nodes[node].files, Path::new(DATA)) {
                // The node did not serve while this journal was missing, so the journal contains
                // every answered allocation. However, a copy may have been restored in the
                // meantime.
                let since = self.nodes[node].older.filter(|older| !older.is_marked);
                since.or(before)
            } else {
                let since_us = self.nodes[node].older.map_or(at, |older| older.since_us.min(at));
                Some(Older { is_marked: true, since_us })
            };
        self.tell(node, &[], || format!("the original journal of shard {shard} is put back"));
    }

    /// Returns the owners of all buckets as a node has recorded them, and the buckets that the node
    /// is giving away.
    fn owners_served(&self, node: usize) -> Option<(Owners, Vec<Leaving>)> {
        let served = self.nodes[node].files.served()?;
        Some((served.owners?, served.leaving))
    }

    pub(crate) fn copy_back(&mut self, copied: &Copied) {
        let Copied { node, is_marked, boots, map, .. } = *copied;
        let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != node);
        let serves = |it: &crate::world::Node| it.running.as_ref().is_some_and(|r| r.is_serving);
        let is_known = is_marked || { others }.any(|(_, other)| serves(other));
        let may_not = self.faults.are_over
            || self.is_in_between()
            || !is_known
            || self.nodes[node].is_refused
            || self.nodes[node].map.version != map
            || self.cluster.newest().version != map
            || self.nodes[node].boots.len() != boots;
        if may_not {
            return;
        }
        let is_as_served = self.owners_served(node) == copied.owners;
        let before_moves = if is_as_served { None } else { self.kept_since(copied) };
        if !is_as_served && before_moves.is_none() {
            return;
        }
        self.stop(node, false);
        let mark = if is_marked { restored_mark() } else { None };
        self.nodes[node].files.disk().put_back(&copied.files, mark);
        // The replaced data may itself be an older copy that the node has not served from yet.
        // Allocations that are missing from the replaced data may be missing from the new copy too.
        let before = self.nodes[node].older.map_or(u64::MAX, |older| older.since_us);
        let since_us = before.min(copied.at);
        self.nodes[node].older = Some(Older { is_marked, since_us });
        if before_moves.is_some() {
            self.nodes[node].before_moves = before_moves;
        }
        let how = if is_marked { "marked as restored" } else { "not marked as restored" };
        self.tell(node, &[], || format!("the node's data is restored from the copy, {how}"));
    }

    /// Returns the node's buckets if it has only given buckets away since the copy was made.
    /// Returns `None` if another node is not serving, because only the other nodes have records of
    /// these moves.
    fn kept_since(&self, copied: &Copied) -> Option<BTreeSet<u16>> {
        let node = copied.node;
        if self.nodes[node].before_moves.is_some() {
            // The node's current data is a copy that it has not served from yet.
            return None;
        }
        let (now, leaving) = self.owners_served(node)?;
        let (then, left) = copied.owners.as_ref()?;
        let mut others = self.nodes.iter().enumerate().filter(|(other, _)| *other != node);
        let serve = others.all(|(_, other)| {
            let is_serving = other.running.as_ref().is_some_and(|running| running.is_serving);
            is_serving && other.map.version == copied.map && other.before_moves.is_none()
        });
        let is_own = |owner: Owner| self.cluster.home(owner.shard) == node;
        let (mut own, mut has_gained) = (BTreeSet::new(), false);
        for bucket in 0..BUCKETS {
            let (now, then) = (now.get(bucket)?, then.get(bucket)?);
            if is_own(now) {
                own.insert(bucket);
                // If the node has gained a bucket since the copy was made, no node would serve that
                // bucket after the restore until there is a new map.
                has_gained |= now != then;
            }
        }
        let is_quiet = leaving.is_empty() && left.is_empty() && then.version() == now.version();
        (serve && is_quiet && !has_gained).then_some(own)
    }

    /// Finds the other nodes whose records for this shard of `node` contain a different data
    /// directory or a journal that ends after `next_n`.
    pub(crate) fn known_by(&self, node: usize, shard: u16, next_n: u64) -> Known {
        let data = Path::new(DATA);
        let own = Identity::read(&self.nodes[node].files, data).ok().flatten();
        let own = own.map(|own| own.id);
        let knows = |other: &usize| {
            let seen = SeenJournals::read(&self.nodes[*other].files, data).unwrap_or_default();
            let word = seen.shards.get(&shard);
            word.is_some_and(|(name, n)| Some(name) != own.as_ref() || *n > next_n)
        };
        let others = (0..self.nodes.len()).filter(|other| *other != node);
        Known { shard, by: others.filter(knows).collect() }
    }

    /// Handles a node that begins to serve with data that lacks some answered allocations. These
    /// allocations count as lost unless the data is marked or another node can report this.
    pub(crate) fn excuse_older(&mut self, node: usize) {
        let Some(older) = self.nodes[node].older.take() else { return };
        self.holds_unknown();
        if older.is_marked {
            return;
        }
        let Some(running) = &self.nodes[node].running else { return };
        let away = running.life.away.borrow();
        let away: Vec<usize> = away.iter().map(|shard| self.cluster.home(*shard)).collect();
        for Known { shard, by } in &running.known {
            let is_known = by.iter().any(|other| !away.contains(other));
            self.shared.model.borrow_mut().serves_older(*shard, is_known);
        }
    }
}
