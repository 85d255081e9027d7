//! One shard's journal on a simulated disk: segments, spares, snapshots, in the order of calls that
//! `ringwell-node/src/disk` has. What the bytes mean is ringwell-journal's.

use std::collections::VecDeque;

use ringwell_journal::{
    BLOCK_BYTES, Clocks, Cut, DecodeError, Group, GroupHeader, Plan, RecoverError, Recovered,
    SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader, SegmentInfo, Segments, Snapshot, Tip,
    Verdict, decode_body, decode_header, encode_end, encode_frame, frame_bytes, recover,
    wall_less_shard,
};

use crate::bug::Bug;
use crate::disk::{Disk, Name, Sort, Trouble};
use crate::fault::Faults;
use crate::random::Random;

/// Length of a segment: small, so that a run uses many.
const SEGMENT_BYTES: u64 = 64 << 10;
/// History beyond this is dropped.
const HISTORY_BYTES: u64 = 6 * SEGMENT_BYTES;
const SPARES_WANTED: usize = 1;
const DROPPED_MAX: usize = 4;
const SNAPSHOTS_KEPT: usize = 2;

/// What every call on files needs.
pub(crate) struct Io<'a> {
    pub(crate) disk: &'a mut Disk,
    pub(crate) faults: &'a mut Faults,
    pub(crate) salts: &'a mut Random,
    pub(crate) bug: Option<Bug>,
}

/// One shard's journal, open for storing groups.
#[derive(Debug)]
pub(crate) struct Store {
    shard: u16,
    pub(crate) id: [u8; 16],
    head: SegmentHeader,
    /// Where the stored journal ends.
    tip: Tip,
    segment: Option<Open>,
    segments: VecDeque<SegmentInfo>,
    snapshots: Vec<u64>,
    spares: Vec<u64>,
    next_spare: u64,
    pub(crate) body_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    segno: u64,
    salt: u64,
    used: u64,
    bytes: u64,
}

/// A frame that was written and not yet flushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) name: Name,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    header: GroupHeader,
}

/// A group cannot be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    NotYet,
    Gone,
    Damaged,
}

/// The segments of one shard, for recovery.
struct Files<'a> {
    disk: &'a Disk,
    shard: u16,
}

/// What a disk says, for recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said(pub(crate) Trouble);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Said {}

impl Segments for Files<'_> {
    type Error = Said;

    fn list(&self) -> Result<Vec<SegmentFile>, Said> {
        let numbers = self.disk.list(self.shard, Sort::Segment).into_iter();
        let file = |segno| SegmentFile { segno, bytes: self.disk.len(segment(self.shard, segno)) };
        Ok(numbers.map(file).collect())
    }

    fn read_at(&self, segno: u64, offset: u64, out: &mut [u8]) -> Result<usize, Said> {
        self.disk.read(segment(self.shard, segno), offset, out).map_err(Said)
    }
}

pub(crate) fn segment(shard: u16, number: u64) -> Name {
    Name { shard, sort: Sort::Segment, number }
}

pub(crate) fn snapshot(shard: u16, number: u64) -> Name {
    Name { shard, sort: Sort::Snapshot, number }
}

fn spare(shard: u16, number: u64) -> Name {
    Name { shard, sort: Sort::Spare, number }
}

/// Unfinished snapshots and spares have names that never meet.
fn unfinished(shard: u16, number: u64, is_spare: bool) -> Name {
    Name { shard, sort: Sort::Unfinished, number: number << 1 | u64::from(is_spare) }
}

/// Renames durably.
pub(crate) fn rename(io: &mut Io<'_>, from: Name, to: Name) -> Result<(), Trouble> {
    io.disk.rename(io.faults, from, to)?;
    if io.bug == Some(Bug::NoNameFlush) { Ok(()) } else { io.disk.flush_names(io.faults) }
}

pub(crate) fn remove(io: &mut Io<'_>, name: Name) -> Result<(), Trouble> {
    io.disk.remove(io.faults, name)?;
    io.disk.flush_names(io.faults)
}

/// Reads the journal on top of the snapshot that was loaded. Changes nothing.
pub(crate) fn recover_from(
    disk: &Disk,
    shard: u16,
    loaded: Option<&Snapshot>,
    visit: impl FnMut(&GroupHeader, &[u8]) -> Result<(), DecodeError>,
) -> Result<Recovered, RecoverError<Said>> {
    let plan = Plan {
        shard: u32::from(shard),
        from: loaded.map_or(1, |snapshot| snapshot.header.replay_from),
        snapshot: loaded.map(Snapshot::mark),
    };
    recover(&Files { disk, shard }, &plan, visit)
}

impl Store {
    /// Goes on from what was recovered; see `ShardStore::start` of the node.
    pub(crate) fn start(
        io: &mut Io<'_>,
        shard: u16,
        recovered: Recovered,
    ) -> Result<(Self, Tip), Trouble> {
        let tip = recovered.tip.raise_epoch();
        let id = recovered.journal.unwrap_or_else(|| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&io.salts.next().to_le_bytes());
            id
        });
        let mut segments = recovered.segments;
        settle(io, shard, &mut segments, &recovered.verdict, recovered.tip.next_n)?;
        // A segment whose first frame is rotten stays: until a frame follows, each start must see it.
        let doubted = match recovered.verdict {
            Verdict::Rotten(Cut { segno, .. }) => Some(segno),
            Verdict::Torn(_) | Verdict::Clean => None,
        };
        let leftover = segments.pop_if(|last| {
            let is_empty = last.offsets.as_ref().is_some_and(|offsets| offsets.len() == 1);
            is_empty && doubted != Some(last.header.segno)
        });
        let newest = leftover.as_ref().or(segments.last()).map_or(0, |info| info.header.segno);
        let (spares, next_spare) = take_stock(io, shard)?;
        let mut snapshots = io.disk.list(shard, Sort::Snapshot);
        snapshots.reverse();
        let head = SegmentHeader {
            shard: u32::from(shard),
            journal: id,
            segno: newest,
            salt: 0,
            tip,
            file_bytes: None,
        };
        let mut store = Self {
            shard,
            id,
            head,
            tip,
            segment: None,
            segments: segments.into(),
            snapshots,
            spares,
            next_spare,
            body_bytes: 0,
        };
        match store.next_segment(io) {
            Err(Trouble::Full) => {}
            begun => store.segment = Some(begun?),
        }
        // A file must always tell where the journal ends.
        match leftover {
            Some(leftover) if store.segment.is_some() => {
                remove(io, segment(shard, leftover.header.segno))?;
            }
            // Its file stays, and must go with those behind it.
            Some(leftover) => store.segments.push_back(leftover),
            None => {}
        }
        Ok((store, tip))
    }

    /// Writes the frame of a group; [`Self::stored`] follows when it is flushed.
    pub(crate) fn write(&mut self, io: &mut Io<'_>, group: &Group) -> Result<Written, Trouble> {
        let len = frame_bytes(&group.header);
        let bytes = len as u64;
        let has_room = |open: &Open| {
            open.used + bytes <= open.bytes || open.used == SEGMENT_HEADER_BYTES as u64
        };
        let open = match self.segment.take() {
            Some(open) if has_room(&open) => open,
            Some(_) | None => self.next_segment(io)?,
        };
        self.segment = Some(open);
        let mut frame = vec![0; len];
        encode_frame(group, open.salt, &mut frame);
        let name = segment(self.shard, open.segno);
        io.disk.write(io.faults, name, open.used, &frame)?;
        Ok(Written { name, offset: open.used, bytes, header: group.header })
    }

    /// The frame is on the disk.
    pub(crate) fn stored(&mut self, written: &Written) {
        let end = written.offset + written.bytes;
        if let Some(open) = &mut self.segment {
            open.used = end;
        }
        self.body_bytes += u64::from(written.header.body_len);
        self.tip = Tip::after(&written.header);
        if let Some(info) = self.segments.back_mut() {
            info.next_n += 1;
            info.last_at = written.header.last_at;
            info.file_bytes = info.file_bytes.max(end);
            info.offsets.get_or_insert_default().push(end);
        }
    }

    fn next_segment(&mut self, io: &mut Io<'_>) -> Result<Open, Trouble> {
        let salt = io.salts.next();
        let salt = if io.bug == Some(Bug::OneSalt) { 7 } else { salt };
        let header = SegmentHeader { segno: self.head.segno + 1, salt, tip: self.tip, ..self.head };
        let number = match self.spares.pop() {
            Some(number) => number,
            None => self.make_spare(io)?,
        };
        let file_bytes = Some(io.disk.len(spare(self.shard, number)));
        let header = SegmentHeader { file_bytes, ..header };
        let begun = self.begin_segment(io, number, &header);
        if begun.is_err() && io.disk.exists(spare(self.shard, number)) {
            self.spares.push(number);
        }
        let open = begun?;
        self.segments.push_back(SegmentInfo {
            header,
            file_bytes: open.bytes,
            next_n: header.tip.next_n,
            last_at: header.tip.last_at,
            offsets: Some(vec![open.used]),
        });
        self.head = header;
        Ok(open)
    }

    fn begin_segment(
        &self,
        io: &mut Io<'_>,
        number: u64,
        header: &SegmentHeader,
    ) -> Result<Open, Trouble> {
        let from = spare(self.shard, number);
        io.disk.write(io.faults, from, 0, &header.encode())?;
        io.disk.flush(io.faults, from)?;
        let bytes = io.disk.len(from);
        rename(io, from, segment(self.shard, header.segno))?;
        let used = SEGMENT_HEADER_BYTES as u64;
        Ok(Open { segno: header.segno, salt: header.salt, used, bytes })
    }

    /// Makes a file full of zeros, durably.
    fn make_spare(&mut self, io: &mut Io<'_>) -> Result<u64, Trouble> {
        let number = self.next_spare;
        self.next_spare += 1;
        let draft = unfinished(self.shard, number, true);
        let made = fill(io, draft);
        if made.is_err() && io.disk.exists(draft) {
            let _ = io.disk.remove(io.faults, draft);
        }
        made?;
        rename(io, draft, spare(self.shard, number))?;
        Ok(number)
    }

    /// Makes spares ahead of need.
    pub(crate) fn keep_spares(&mut self, io: &mut Io<'_>) -> Result<(), Trouble> {
        if self.spares.len() < SPARES_WANTED {
            let number = self.make_spare(io)?;
            self.spares.push(number);
        }
        Ok(())
    }

    /// The group after the last that is stored.
    pub(crate) fn next_n(&self) -> u64 {
        self.segments.back().map_or(1, |info| info.next_n)
    }

    /// As `JournalReader::wall_less_shard` in `ringwell-node/src/disk/index.rs`.
    pub(crate) fn wall_less_shard(&self, then: Option<Clocks>, now: Clocks) -> i64 {
        let heads = self.segments.iter().rev().map(|info| &info.header);
        wall_less_shard(then, Some(now), heads)
    }

    /// The oldest segment that may go, as first group, group after its last, and its length.
    pub(crate) fn expired(&self) -> Option<(u64, u64)> {
        let oldest = self.segments.front().filter(|_| self.segments.len() > 1)?;
        let needed = self.snapshots.iter().min()?;
        let bytes: u64 = self.segments.iter().map(|info| info.file_bytes).sum();
        let may_go = oldest.next_n <= *needed && bytes > HISTORY_BYTES;
        may_go.then_some((oldest.header.tip.next_n, oldest.next_n))
    }

    /// Gives up the oldest segment.
    pub(crate) fn drop_oldest(&mut self, io: &mut Io<'_>) -> Result<(), Trouble> {
        let Some(oldest) = self.segments.pop_front() else { return Ok(()) };
        let from = segment(self.shard, oldest.header.segno);
        let fits = io.disk.len(from) == SEGMENT_BYTES;
        if !fits || self.spares.len() >= SPARES_WANTED + DROPPED_MAX {
            return remove(io, from);
        }
        let number = self.next_spare;
        self.next_spare += 1;
        rename(io, from, spare(self.shard, number))?;
        self.spares.push(number);
        Ok(())
    }

    /// Reads a stored group back and checks it.
    pub(crate) fn read_group(&self, disk: &Disk, n: u64) -> Result<Group, Unread> {
        if n >= self.next_n() {
            return Err(Unread::NotYet);
        }
        let after = self.segments.partition_point(|info| info.next_n <= n);
        let info = self.segments.get(after).filter(|info| info.header.tip.next_n <= n);
        let info = info.ok_or(Unread::Gone)?;
        let SegmentHeader { segno, salt, tip, .. } = info.header;
        let name = segment(self.shard, segno);
        let index = usize::try_from(n - tip.next_n).map_err(|_| Unread::Damaged)?;
        let known = info.offsets.as_ref().and_then(|offsets| offsets.get(index).copied());
        let offset = known.map_or_else(|| find(disk, name, salt, index), Ok)?;
        let mut frame = vec![0; BLOCK_BYTES];
        disk.read(name, offset, &mut frame).map_err(|_| Unread::Damaged)?;
        let header = decode_header(&frame, salt, Some(n)).map_err(|_| Unread::Damaged)?;
        frame.resize(header.bytes, 0);
        disk.read(name, offset, &mut frame).map_err(|_| Unread::Damaged)?;
        let mut body = Vec::new();
        decode_body(&frame, salt, &header, &mut body).map_err(|_| Unread::Damaged)?;
        let group = Group { header: header.group, body };
        if group.header.n == n { Ok(group) } else { Err(Unread::Damaged) }
    }

    /// Begins the file of a snapshot.
    pub(crate) fn create_snapshot(&self, io: &mut Io<'_>, from: u64) -> Result<Name, Trouble> {
        let draft = unfinished(self.shard, from, false);
        if io.disk.exists(draft) {
            io.disk.remove(io.faults, draft)?;
        }
        io.disk.create(io.faults, draft)?;
        Ok(draft)
    }

    /// Makes a snapshot the newest one, durably, and removes all but one older.
    pub(crate) fn publish(
        &mut self,
        io: &mut Io<'_>,
        draft: Name,
        replay_from: u64,
    ) -> Result<(), Trouble> {
        io.disk.flush(io.faults, draft)?;
        rename(io, draft, snapshot(self.shard, replay_from))?;
        let mut all = io.disk.list(self.shard, Sort::Snapshot);
        all.reverse();
        for old in all.iter().skip(SNAPSHOTS_KEPT) {
            remove(io, snapshot(self.shard, *old))?;
        }
        all.truncate(SNAPSHOTS_KEPT);
        self.snapshots = all;
        Ok(())
    }
}

/// Where a frame lies in a segment that recovery did not have to read.
fn find(disk: &Disk, name: Name, salt: u64, index: usize) -> Result<u64, Unread> {
    let mut offset = SEGMENT_HEADER_BYTES as u64;
    let mut block = [0; BLOCK_BYTES];
    for _ in 0..index {
        disk.read(name, offset, &mut block).map_err(|_| Unread::Damaged)?;
        let header = decode_header(&block, salt, None).map_err(|_| Unread::Damaged)?;
        offset += header.bytes as u64;
    }
    Ok(offset)
}

fn fill(io: &mut Io<'_>, draft: Name) -> Result<(), Trouble> {
    io.disk.create(io.faults, draft)?;
    let zeros = vec![0; usize::try_from(SEGMENT_BYTES).unwrap_or(0)];
    io.disk.write(io.faults, draft, 0, &zeros)?;
    io.disk.flush(io.faults, draft)?;
    io.disk.flush_names(io.faults)
}

/// Cuts off what was never finished and makes the end durable. Rotten frames stay.
fn settle(
    io: &mut Io<'_>,
    shard: u16,
    segments: &mut [SegmentInfo],
    verdict: &Verdict,
    n: u64,
) -> Result<(), Trouble> {
    let Some(last) = segments.last_mut() else { return Ok(()) };
    let name = segment(shard, last.header.segno);
    let is_rotten =
        matches!(verdict, Verdict::Rotten(Cut { segno, .. }) if *segno == last.header.segno);
    let used = last.offsets.as_ref().and_then(|offsets| offsets.last().copied());
    let end = used.map(|used| (used, used + BLOCK_BYTES as u64));
    if let Some((used, end)) = end.filter(|(_, end)| !is_rotten && *end < last.file_bytes) {
        io.disk.write(io.faults, name, used, &encode_end(last.header.salt, n))?;
        io.disk.flush(io.faults, name)?;
        io.disk.cut(io.faults, name, end)?;
        last.file_bytes = end;
    }
    io.disk.flush(io.faults, name)
}

fn take_stock(io: &mut Io<'_>, shard: u16) -> Result<(Vec<u64>, u64), Trouble> {
    for number in io.disk.list(shard, Sort::Unfinished) {
        remove(io, Name { shard, sort: Sort::Unfinished, number })?;
    }
    let (mut ready, mut next) = (Vec::new(), 1);
    for number in io.disk.list(shard, Sort::Spare) {
        next = number + 1;
        let fits = io.disk.len(spare(shard, number)) == SEGMENT_BYTES;
        if fits && ready.len() < SPARES_WANTED + DROPPED_MAX {
            ready.push(number);
        } else {
            remove(io, spare(shard, number))?;
        }
    }
    Ok((ready, next))
}
