//! The disk of one machine and its page cache, as a list of named files.
//!
//! Bytes are in the cache as soon as they are written, and on the disk after a flush. After a power
//! cut, the disk contains an arbitrary subset of the unflushed blocks. If only the process is
//! killed, the cache survives. File names behave in the same way: a change to a directory is
//! durable after the directory has been flushed. The machine may stop at any call that changes
//! something. This module does not depend on the format of journals.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::{Faults, Kind};
use crate::name::{Name, Sort};
use crate::older::Copy;
use crate::random::Random;

/// The unit of a write, in bytes. After a power cut, any subset of a block's sectors may be stored.
pub(crate) const BLOCK: usize = 4096;
const SECTOR: usize = 512;

/// An open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle {
    id: u64,
    /// The name of the file when it was opened.
    name: Name,
    /// Whether writes bypass the cache. Until the next flush, they may be stored only in part.
    is_direct: bool,
}

/// The reason why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Full,
    Io,
    /// The file does not exist.
    Missing,
    /// The machine or the process has stopped, so calls no longer have any effect.
    Crashed,
}

#[derive(Clone, Debug, Default)]
struct File {
    cached: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// Modified blocks that a flush has reported as durable although they are not.
    claimed: BTreeSet<usize>,
}

#[derive(Clone, Debug)]
enum Change {
    Put(Name, u64),
    Move(Name, Name),
    Remove(Name),
}

/// The disk of one machine.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each field is an independent state")]
pub(crate) struct Disk {
    files: BTreeMap<u64, File>,
    next_file: u64,
    names: BTreeMap<Name, u64>,
    durable_names: BTreeMap<Name, u64>,
    changes: Vec<Change>,
    /// The writes that bypass the cache and are not flushed, as offset and length by file.
    on_their_way: BTreeMap<u64, (u64, u64)>,
    /// The shards with a directory.
    pub(crate) directories: BTreeSet<u16>,
    /// Increases whenever a process ends, so that its later calls have no effect.
    pub(crate) life: u32,
    pub(crate) is_full: bool,
    /// Whether the disk has failed: nothing becomes durable until it is mounted again.
    pub(crate) is_dead: bool,
    /// Whether the file system has detected the failure and is therefore read-only.
    pub(crate) is_read_only: bool,
    /// The number of times that the disk was mounted again.
    pub(crate) mounts: u64,
    pub(crate) has_stopped: bool,
    /// The count of lost or misplaced writes that the disk had reported as stored, and of flushes
    /// that failed silently.
    pub(crate) lies: u64,
    /// The bits that have flipped. An operator can restore them from a copy.
    flips: Vec<(Name, usize, u8)>,
    /// The truncated ends of files. An operator can restore them from a copy.
    tails: Vec<(Name, Vec<u8>)>,
    pub(crate) was_damaged: bool,
    /// Whether a disk that this machine has lost had violated its guarantees.
    pub(crate) former_was_to_blame: bool,
    /// Whether groups count as stored without a flush, which is the durability `os`.
    pub(crate) is_os: bool,
    /// Whether the node may have answered batches since the last orderly shutdown.
    pub(crate) has_served: bool,
    /// Whether a power cut or a failed flush since the last start may have lost answered records.
    pub(crate) has_lost_groups: bool,
    /// Whether a power cut or a failed flush may ever have lost records of answered batches.
    lost_groups: bool,
    /// Whether a snapshot or a map was published since this was last checked.
    pub(crate) has_published: bool,
}

type DiskResult = Result<(), Trouble>;

impl Disk {
    fn begin(&mut self, faults: &mut Faults) -> DiskResult {
        if !self.has_stopped && faults.strikes(Kind::CrashAtCall) {
            self.has_stopped = true;
        }
        if self.has_stopped { Err(Trouble::Crashed) } else { Ok(()) }
    }

    /// Begins a call that accesses the disk or changes names.
    fn begin_on_disk(&mut self, faults: &mut Faults) -> DiskResult {
        self.begin(faults)?;
        if self.is_dead { Err(Trouble::Io) } else { Ok(()) }
    }

    /// Whether the disk has violated its guarantees.
    pub(crate) fn is_to_blame(&self) -> bool {
        self.lost_groups || self.may_refuse()
    }

    /// Whether a node may refuse to start because the disk violated its guarantees or was damaged.
    pub(crate) fn may_refuse(&self) -> bool {
        self.lies > 0 || self.was_damaged
    }

    /// Loses all files, as if the disk were replaced with a new one.
    pub(crate) fn wipe(&mut self) {
        let Self { life, is_os, mounts, .. } = *self;
        let former_was_to_blame = self.former_was_to_blame || self.is_to_blame();
        *self = Self { life, mounts, former_was_to_blame, is_os, ..Self::default() };
    }

    /// Loses the files of one shard, as if the shard's volume were not mounted. Returns them.
    pub(crate) fn lose_shard(&mut self, shard: u16) -> Copy {
        let lost = self.copy().of_shard(shard);
        self.names.retain(|name, _| name.shard != shard);
        self.durable_names.retain(|name, _| name.shard != shard);
        self.changes.retain(|change| match change {
            Change::Put(name, _) | Change::Move(_, name) | Change::Remove(name) => {
                name.shard != shard
            }
        });
        lost
    }

    /// Replaces the files that were written since a shard's loss with the shard's earlier files.
    pub(crate) fn bring_back(&mut self, shard: u16, lost: &Copy) {
        drop(self.lose_shard(shard));
        self.lies += u64::from(lost.was_to_blame);
        for (name, bytes) in lost.files.clone() {
            self.next_file += 1;
            let file = File { cached: bytes.clone(), durable: bytes, ..File::default() };
            self.files.insert(self.next_file, file);
            self.names.insert(name, self.next_file);
            self.durable_names.insert(name, self.next_file);
        }
    }

    /// Copies the current files.
    pub(crate) fn copy(&self) -> Copy {
        let file = |id: &u64| self.files.get(id).map(|file| file.cached.clone());
        let files = self.names.iter().filter_map(|(name, id)| Some((*name, file(id)?)));
        let was_to_blame = self.is_to_blame();
        Copy { files: files.collect(), directories: self.directories.clone(), was_to_blame }
    }

    /// Replaces the files with those of a copy, durably. Adds the operator's mark, if there is one.
    pub(crate) fn put_back(&mut self, copy: &Copy, mark: Option<Name>) {
        self.wipe();
        self.directories.clone_from(&copy.directories);
        let marks = mark.into_iter().map(|mark| (mark, Vec::new()));
        for (name, bytes) in copy.files.clone().into_iter().chain(marks) {
            self.next_file += 1;
            let file = File { cached: bytes.clone(), durable: bytes, ..File::default() };
            self.files.insert(self.next_file, file);
            self.names.insert(name, self.next_file);
        }
        self.durable_names.clone_from(&self.names);
    }

    fn file(&mut self, name: Name) -> Result<&mut File, Trouble> {
        let id = self.names.get(&name).ok_or(Trouble::Missing)?;
        self.files.get_mut(id).ok_or(Trouble::Io)
    }

    fn opened(&mut self, file: &Handle) -> Result<&mut File, Trouble> {
        self.files.get_mut(&file.id).ok_or(Trouble::Io)
    }

    /// Opens an existing file.
    pub(crate) fn open(&self, name: Name, is_direct: bool) -> Result<Handle, Trouble> {
        let id = *self.names.get(&name).ok_or(Trouble::Missing)?;
        Ok(Handle { id, name, is_direct })
    }

    pub(crate) fn exists(&self, name: Name) -> bool {
        self.names.contains_key(&name)
    }

    /// Returns the numbers in the names of a shard's files of this sort, in ascending order.
    pub(crate) fn list(&self, shard: u16, sort: Sort) -> Vec<u64> {
        let of = |name: &&Name| name.shard == shard && name.sort == sort;
        self.names.keys().filter(of).map(|name| name.number).collect()
    }

    /// Returns the names of a shard's files, or of the node's own files.
    pub(crate) fn names(&self, shard: u16) -> Vec<Name> {
        self.names.keys().filter(|name| name.shard == shard).copied().collect()
    }

    /// Returns the length of a file as readers see it.
    pub(crate) fn len(&self, file: &Handle) -> u64 {
        self.files.get(&file.id).map_or(0, |file| file.cached.len() as u64)
    }

    pub(crate) fn create(&mut self, faults: &mut Faults, name: Name) -> Result<Handle, Trouble> {
        self.begin_on_disk(faults)?;
        if self.is_full {
            return Err(Trouble::Full);
        }
        if self.names.contains_key(&name) {
            return Err(Trouble::Io);
        }
        self.next_file += 1;
        self.files.insert(self.next_file, File::default());
        self.names.insert(name, self.next_file);
        self.changes.push(Change::Put(name, self.next_file));
        self.open(name, false)
    }

    /// Writes bytes into the cache. A write that is lost or misplaced reports success.
    pub(crate) fn write(
        &mut self,
        faults: &mut Faults,
        file: &Handle,
        offset: u64,
        bytes: &[u8],
    ) -> DiskResult {
        self.begin(faults)?;
        if self.is_dead && (self.is_read_only || file.is_direct) {
            return Err(Trouble::Io);
        }
        if self.is_full {
            return Err(Trouble::Full);
        }
        let name = file.name;
        if file.is_direct {
            self.on_their_way.insert(file.id, (offset, bytes.len() as u64));
        }
        let mut offset = usize::try_from(offset).map_err(|_| Trouble::Io)?;
        let mut bytes = bytes;
        let fails = faults.strikes(Kind::WriteError);
        if fails {
            bytes =
                &bytes[..faults.stream(Kind::WriteError).index(bytes.len() / BLOCK + 1) * BLOCK];
        } else if name.sort == Sort::Unfinished && name.shard == u16::MAX {
            // The map is text, so a fault in it is detected when the map is read.
        } else if faults.strikes(Kind::LostWrite) {
            self.lies += 1;
            return Ok(());
        } else if faults.strikes(Kind::Misdirected) {
            self.lies += 1;
            let blocks = self.opened(file)?.cached.len() / BLOCK;
            offset = faults.stream(Kind::Misdirected).index(blocks) * BLOCK;
        }
        self.opened(file)?.write(offset, bytes);
        if fails { Err(Trouble::Io) } else { Ok(()) }
    }

    /// Truncates a file to `len` bytes, the end of its written part, or extends it with zeros.
    pub(crate) fn cut(&mut self, faults: &mut Faults, file: &Handle, len: u64) -> DiskResult {
        self.begin_on_disk(faults)?;
        let len = usize::try_from(len).map_err(|_| Trouble::Io)?;
        let file = self.opened(file)?;
        file.cached.resize(len, 0);
        file.durable.resize(len, 0);
        file.dirty.retain(|block| block * BLOCK < len);
        Ok(())
    }

    /// Makes the written bytes of a file durable.
    pub(crate) fn flush(&mut self, faults: &mut Faults, handle: &Handle) -> DiskResult {
        self.begin_on_disk(faults)?;
        let name = handle.name;
        self.on_their_way.remove(&handle.id);
        let fails = faults.strikes(Kind::FlushError);
        // Nothing can detect a map (a text) that is intact but outdated. A flush of the map
        // therefore never reports success without storing the map.
        let is_of_a_shard = name.shard < u16::MAX;
        let lies = !fails && faults.strikes(Kind::LyingFlush) && is_of_a_shard;
        let file = self.opened(handle)?;
        if lies {
            file.claimed.extend(file.dirty.iter().copied());
            return Ok(());
        }
        let mut dirty = std::mem::take(&mut file.dirty);
        let claimed = std::mem::take(&mut file.claimed);
        if fails {
            // Some of the blocks are stored, but all of them count as clean from now on. The next
            // flush therefore succeeds although it should not.
            let lost = dirty.extract_if(.., |_| faults.stream(Kind::FlushError).chance(500_000));
            let lost: Vec<_> = lost.collect();
            self.lies += lost.iter().filter(|block| claimed.contains(block)).count() as u64;
            // If the process is killed at once, the next startup finds a gap in the journal.
            let has_gap = self.is_os && name.sort == Sort::Segment && !lost.is_empty();
            self.was_damaged |= has_gap;
            self.has_lost_groups |= has_gap;
            self.lost_groups |= self.has_lost_groups;
        }
        let file = self.opened(handle)?;
        for block in dirty {
            file.store(block);
        }
        if fails { Err(Trouble::Io) } else { Ok(()) }
    }

    pub(crate) fn rename(&mut self, faults: &mut Faults, from: Name, to: Name) -> DiskResult {
        self.begin_on_disk(faults)?;
        let id = self.names.remove(&from).ok_or(Trouble::Missing)?;
        self.names.insert(to, id);
        self.has_published |= matches!(to.sort, Sort::Snapshot | Sort::Map);
        self.changes.push(Change::Move(from, to));
        Ok(())
    }

    pub(crate) fn remove(&mut self, faults: &mut Faults, name: Name) -> DiskResult {
        self.begin_on_disk(faults)?;
        self.names.remove(&name).ok_or(Trouble::Missing)?;
        self.changes.push(Change::Remove(name));
        Ok(())
    }

    /// Makes names durable.
    pub(crate) fn flush_names(&mut self, faults: &mut Faults) -> DiskResult {
        self.begin_on_disk(faults)?;
        self.durable_names.clone_from(&self.names);
        self.changes.clear();
        let used: BTreeSet<u64> = self.names.values().copied().collect();
        self.files.retain(|id, _| used.contains(id));
        Ok(())
    }

    /// Reads from `offset` until `out` is full or the file ends.
    pub(crate) fn read(
        &self,
        file: &Handle,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, Trouble> {
        let file = self.files.get(&file.id).ok_or(Trouble::Io)?;
        let from = usize::try_from(offset).map_err(|_| Trouble::Io)?.min(file.cached.len());
        let got = out.len().min(file.cached.len() - from);
        out[..got].copy_from_slice(&file.cached[from..from + got]);
        Ok(got)
    }

    /// Drops the unmodified pages of a file from the cache.
    pub(crate) fn forget_cache(&mut self, file: &Handle) {
        let Ok(file) = self.opened(file) else { return };
        for block in 0..file.cached.len().div_ceil(BLOCK) {
            if !file.dirty.contains(&block) {
                file.restore(block);
            }
        }
    }

    /// Handles a process that is killed: each unflushed write that bypasses the cache is stored
    /// only in part.
    pub(crate) fn kill(&mut self, random: &mut Random) {
        self.has_stopped = false;
        self.life += 1;
        for (id, (offset, len)) in std::mem::take(&mut self.on_their_way) {
            let through = random.below(len / BLOCK as u64 + 1);
            let first = usize::try_from(offset / BLOCK as u64 + through).unwrap_or(usize::MAX);
            let end = usize::try_from((offset + len) / BLOCK as u64).unwrap_or(usize::MAX);
            let Some(file) = self.files.get_mut(&id) else { continue };
            for block in first..end {
                file.restore(block);
                file.dirty.remove(&block);
            }
        }
    }

    /// Makes the disk fail: from now on, nothing becomes durable.
    pub(crate) fn die(&mut self, is_read_only: bool) {
        (self.is_dead, self.is_read_only) = (true, is_read_only);
    }

    /// Handles a power cut: an arbitrary subset of the unflushed data is stored. After that, the
    /// disk is mounted again.
    pub(crate) fn power_cut(&mut self, faults: &mut Faults) {
        (self.is_dead, self.is_read_only) = (false, false);
        self.mounts += 1;
        self.has_stopped = false;
        self.life += 1;
        self.on_their_way.clear();
        self.is_full = false;
        let is_segment = |(name, id): (&Name, &u64)| (name.sort == Sort::Segment).then_some(*id);
        let segments: BTreeSet<u64> = self.names.iter().filter_map(is_segment).collect();
        let mut names = std::mem::take(&mut self.durable_names);
        let kept = faults.stream(Kind::Power).index(self.changes.len() + 1);
        for change in self.changes.drain(..).take(kept) {
            match change {
                Change::Put(name, id) => drop(names.insert(name, id)),
                Change::Move(from, to) => {
                    if let Some(id) = names.remove(&from) {
                        names.insert(to, id);
                    }
                }
                Change::Remove(name) => drop(names.remove(&name)),
            }
        }
        self.durable_names.clone_from(&names);
        self.names = names;
        for (id, file) in &mut self.files {
            let dirty = std::mem::take(&mut file.dirty);
            // If the process had not begun to serve, no answers depended on its groups.
            let has_groups = self.is_os && self.has_served && segments.contains(id);
            for block in dirty {
                let fate = faults.stream(Kind::Power).below(3);
                if fate == 0 {
                    file.store(block);
                } else {
                    self.lies += u64::from(file.claimed.contains(&block));
                    self.has_lost_groups |= has_groups;
                    let kind = if fate == 1 { Kind::Dropped } else { Kind::Torn };
                    faults.count(kind);
                    if fate == 2 {
                        file.tear(block, faults.stream(Kind::Power));
                    }
                }
            }
            file.claimed.clear();
            file.cached.clone_from(&file.durable);
        }
        self.lost_groups |= self.has_lost_groups;
    }

    /// Flips a bit in stored data. Returns the name of the file.
    pub(crate) fn rot(&mut self, random: &mut Random) -> Option<Name> {
        let of_shards = self.names.iter().filter(|(name, _)| name.shard < u16::MAX);
        let names: Vec<(Name, u64)> = of_shards.map(|(name, id)| (*name, *id)).collect();
        let (name, id) = *names.get(random.index(names.len()))?;
        let file = self.files.get_mut(&id).filter(|file| !file.durable.is_empty())?;
        // Most of a file consists of zeros for later use, so several positions are tried to find
        // data.
        let mut byte = random.index(file.durable.len());
        for _ in 0..64 {
            if file.durable[byte] != 0 {
                break;
            }
            byte = random.index(file.durable.len());
        }
        self.flip(name, byte, 1 << random.below(8))
    }

    /// Flips a bit in the last block of a shard's journal that contains data.
    pub(crate) fn rot_at_end(&mut self, random: &mut Random, shard: u16) -> Option<Name> {
        let number = *self.list(shard, Sort::Segment).last()?;
        let name = Name { shard, sort: Sort::Segment, number };
        let file = self.file(name).ok()?;
        let last = file.durable.iter().rposition(|byte| *byte != 0)?;
        let byte = last / BLOCK * BLOCK + random.index(last % BLOCK + 1);
        self.flip(name, byte, 1 << random.below(8))
    }

    /// Truncates the newest file of a shard's journal, by at most two blocks of data.
    pub(crate) fn shorten(&mut self, random: &mut Random, shard: u16) -> Option<Name> {
        let number = *self.list(shard, Sort::Segment).last()?;
        let name = Name { shard, sort: Sort::Segment, number };
        let file = self.file(name).ok().filter(|file| file.dirty.is_empty())?;
        let used = file.durable.iter().rposition(|byte| *byte != 0)?.next_multiple_of(BLOCK);
        let left = used.saturating_sub(1 + random.index(2 * BLOCK));
        let tail = file.durable.split_off(left.min(file.durable.len()));
        file.cached.truncate(left);
        self.tails.push((name, tail));
        self.was_damaged = true;
        Some(name)
    }

    /// Flips bits of a byte, unless its block contains a flipped bit that startup has not detected
    /// yet. Two flipped bits in one block may hide a frame, and no format can detect that.
    fn flip(&mut self, name: Name, byte: usize, mask: u8) -> Option<Name> {
        let is_there =
            |(other, at, _): &(Name, usize, u8)| *other == name && at / BLOCK == byte / BLOCK;
        let is_second = self.flips.iter().any(is_there);
        let file = self.file(name).ok()?;
        if is_second || byte >= file.durable.len() || file.dirty.contains(&(byte / BLOCK)) {
            return None;
        }
        file.durable[byte] ^= mask;
        file.cached[byte] ^= mask;
        self.flips.push((name, byte, mask));
        self.was_damaged = true;
        Some(name)
    }

    /// Accepts the current files. The node continues with these files, so copies of earlier states
    /// are useless from now on.
    pub(crate) fn accept(&mut self) {
        self.flips.clear();
        self.tails.clear();
        self.has_lost_groups = false;
    }

    /// Restores damaged data from a copy, as an operator would. Returns `false` if there is damage
    /// that no copy can repair.
    pub(crate) fn mend(&mut self) -> bool {
        for (name, tail) in std::mem::take(&mut self.tails).into_iter().rev() {
            let Ok(file) = self.file(name) else { continue };
            file.durable.extend_from_slice(&tail);
            file.cached.extend_from_slice(&tail);
        }
        for (name, byte, mask) in std::mem::take(&mut self.flips) {
            let Ok(file) = self.file(name) else { continue };
            if byte < file.durable.len() {
                file.durable[byte] ^= mask;
                file.cached[byte] ^= mask;
            }
        }
        self.can_mend()
    }

    /// Whether all damage can be repaired from a copy.
    pub(crate) fn can_mend(&self) -> bool {
        self.lies == 0 && !self.lost_groups
    }
}

impl File {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.cached.len() < end {
            self.cached.resize(end, 0);
        }
        self.cached[offset..end].copy_from_slice(bytes);
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        for block in blocks {
            self.dirty.insert(block);
            self.claimed.remove(&block);
        }
    }

    /// Stores a block on the disk.
    fn store(&mut self, block: usize) {
        let (from, to) = self.range(block);
        if self.durable.len() < to {
            self.durable.resize(to, 0);
        }
        self.durable[from..to].copy_from_slice(&self.cached[from..to]);
    }

    /// Stores some of a block's sectors on the disk.
    fn tear(&mut self, block: usize, random: &mut Random) {
        let (from, to) = self.range(block);
        if self.durable.len() < to {
            self.durable.resize(to, 0);
        }
        for sector in (from..to).step_by(SECTOR) {
            if random.chance(500_000) {
                let end = to.min(sector + SECTOR);
                self.durable[sector..end].copy_from_slice(&self.cached[sector..end]);
            }
        }
    }

    /// Loads a block from the disk into the cache.
    fn restore(&mut self, block: usize) {
        let (from, to) = self.range(block);
        // If a file was extended but not flushed, it is shorter on the disk than in the cache.
        let known = self.durable.len().clamp(from, to);
        let on_disk = self.durable.get(from..known).unwrap_or_default();
        let (there, beyond) = self.cached[from..to].split_at_mut(on_disk.len());
        there.copy_from_slice(on_disk);
        beyond.fill(0);
    }

    fn range(&self, block: usize) -> (usize, usize) {
        let of = |place: usize| place.min(self.cached.len());
        (of(block * BLOCK), of(block * BLOCK + BLOCK))
    }
}
