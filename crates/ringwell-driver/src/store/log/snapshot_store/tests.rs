use ringwell_journal::{SnapshotHeader, SnapshotWriter};

use super::*;

fn index() -> Index {
    let pieces = vec![5, 6, 9];
    Index { shard: 3, journal: [7; 16], replay_from: 40, through: 44, before: 2, pieces }
}

#[test]
fn an_index_equals_the_written_one() {
    for index in [index(), Index { pieces: Vec::new(), ..index() }] {
        assert_eq!(Index::decode(&index.encode()), Some(index));
    }
}

#[test]
fn a_changed_or_torn_index_is_refused() {
    let bytes = index().encode();
    for at in 0..bytes.len() {
        let mut changed = bytes.to_vec();
        changed[at] ^= 1;
        assert_eq!(Index::decode(&changed), None, "byte {at}");
        assert_eq!(Index::decode(&bytes[..at]), None, "{at} bytes");
    }
}

#[test]
fn an_index_with_a_wrong_beginning_or_count_is_refused_although_its_checksum_is_right() {
    let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = index().encode().to_vec();
        bytes.truncate(bytes.len() - CRC_BYTES);
        change(&mut bytes);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        Index::decode(&bytes)
    };
    assert_eq!(sealed(&|_| ()), Some(index()));
    assert_eq!(sealed(&|bytes| bytes[0] ^= 1), None);
    assert_eq!(sealed(&|bytes| bytes.extend_from_slice(&[0; 8])), None);
    assert_eq!(sealed(&|bytes| bytes.truncate(bytes.len() - 8)), None);
    for (count, is_read) in [(PIECES_MAX, true), (PIECES_MAX + 1, false)] {
        let most = Index { pieces: vec![1; count], ..index() };
        assert_eq!(Index::decode(&most.encode()).is_some(), is_read, "{count}");
    }
}

/// Pieces and indexes by place. The server refuses the piece for the place `refused`.
#[derive(Debug, Default)]
struct Server {
    stored: Mutex<Vec<Option<(bool, Bytes)>>>,
    refused: usize,
}

impl Server {
    fn store(&self, is_index: bool, bytes: Bytes) -> u64 {
        let mut stored = self.stored.lock().unwrap();
        stored.push(Some((is_index, bytes)));
        stored.len() as u64
    }

    fn places(&self) -> Vec<u64> {
        let stored = self.stored.lock().unwrap();
        (1..).zip(&*stored).filter(|it| it.1.is_some()).map(|it| it.0).collect()
    }

    fn damage(&self, place: u64) {
        let at = usize::try_from(place - 1).unwrap();
        self.stored.lock().unwrap()[at].as_mut().unwrap().1 = Bytes::from_static(b"damaged");
    }
}

impl SnapshotStore for Server {
    fn add(&self, piece: Bytes) -> Result<u64, Unreached> {
        if self.stored.lock().unwrap().len() + 1 == self.refused {
            self.store(false, Bytes::new());
            return Err(Unreached("no answer".to_owned()));
        }
        Ok(self.store(false, piece))
    }

    fn add_index(&self, index: Bytes) -> Result<u64, Unreached> {
        Ok(self.store(true, index))
    }

    fn newest_index(&self) -> Result<Option<(u64, Bytes)>, Unreached> {
        let stored = self.stored.lock().unwrap();
        let indexes = (1..).zip(&*stored).filter_map(|(at, it)| Some((at, it.as_ref()?)));
        Ok(indexes.filter(|(_, it)| it.0).last().map(|(at, it)| (at, it.1.clone())))
    }

    fn get(&self, at: u64) -> Result<Option<Bytes>, Unreached> {
        let at = usize::try_from(at - 1).unwrap();
        let found = self.stored.lock().unwrap().get(at).cloned().flatten();
        Ok(found.map(|it| it.1))
    }

    fn trim(&self, before: u64) -> Result<(), Unreached> {
        let before = usize::try_from(before - 1).unwrap();
        self.stored.lock().unwrap()[..before].fill(None);
        Ok(())
    }

    fn message(&self, _: u64) -> Result<Option<Bytes>, Unreached> {
        Ok(Some(Bytes::new()))
    }

    fn log_bytes(&self) -> Result<u64, Unreached> {
        Ok(0)
    }
}

struct NoFile;

impl Draft for NoFile {
    fn write(&mut self, _: &[u8]) -> Result<(), FileError> {
        Ok(())
    }

    fn publish(self, _: u64) -> Result<(), FileError> {
        Ok(())
    }

    fn stored(&self) -> u64 {
        0
    }
}

fn snapshots(refused: usize) -> (Arc<Server>, LogSnapshots) {
    let server = Arc::new(Server { refused, ..Server::default() });
    let kept = Vec::new();
    let snapshots =
        LogSnapshots::new(Arc::clone(&server) as _, 3, [7; 16], kept, Places::default());
    (server, snapshots)
}

fn put(snapshots: &LogSnapshots, replay_from: u64, bytes: &[u8]) {
    let mut draft = LogDraft::new(NoFile, replay_from, Some(snapshots.clone()));
    draft.write(bytes).unwrap();
    draft.publish(replay_from + 4).unwrap();
}

/// Returns the bytes of a snapshot without entries.
fn snapshot(replay_from: u64) -> Vec<u8> {
    let header = SnapshotHeader {
        shard: 3,
        journal: [7; 16],
        replay_from,
        prev_hash: 0,
        epoch: 1,
        created_at: Millis(1),
        last_at: Millis(1),
        numbers: 0,
        clocks: None,
    };
    SnapshotWriter::new(&header).finish(replay_from + 4)
}

#[test]
fn a_snapshot_that_lacks_a_piece_gets_no_index() {
    for refused in 0..4 {
        let (server, snapshots) = snapshots(refused);
        put(&snapshots, 40, &vec![1; 2 * PIECE_BYTES + 1]);
        assert_eq!(indexes(&*server).unwrap().len(), usize::from(refused == 0), "{refused}");
        assert_eq!(snapshots.places().len(), usize::from(refused == 0));
    }
}

#[test]
fn the_newest_two_snapshots_are_kept_and_the_older_one_counts_if_the_index_is_damaged() {
    let (server, snapshots) = snapshots(0);
    for replay_from in [40, 50, 60] {
        put(&snapshots, replay_from, &vec![1; PIECE_BYTES + 1]);
    }
    assert_eq!(server.places(), [4, 5, 6, 7, 8, 9]);
    assert_eq!(snapshots.places(), [9, 6]);
    let found = || indexes(&*server).unwrap().into_iter().map(|it| (it.0, it.1.replay_from));
    assert!(found().eq([(9, 60), (6, 50)]));
    server.damage(9);
    assert!(found().eq([(6, 50)]));
}

#[test]
fn only_the_damaged_one_of_two_snapshots_is_no_longer_kept() {
    for damaged in 0..3 {
        let (server, snapshots) = snapshots(0);
        put(&snapshots, 40, &snapshot(40));
        put(&snapshots, 50, &snapshot(50));
        if damaged > 0 {
            server.damage(2 * damaged - 1);
        }
        snapshots.drop_damaged().unwrap();
        let wanted = [vec![4, 2], vec![4], vec![2]];
        assert_eq!(snapshots.places(), wanted[usize::try_from(damaged).unwrap()]);
    }
}

#[test]
fn a_snapshot_of_another_place_or_journal_does_not_count_as_the_one_of_its_index() {
    let (server, snapshots) = snapshots(0);
    put(&snapshots, 40, &snapshot(40));
    let (_, index) = indexes(&*server).unwrap().pop().unwrap();
    let is_whole = |index: &Index| is_whole(&*server, index).unwrap();
    assert!(is_whole(&index));
    assert!(!is_whole(&Index { shard: 4, ..index.clone() }));
    assert!(!is_whole(&Index { journal: [8; 16], ..index.clone() }));
    assert!(!is_whole(&Index { replay_from: 41, ..index.clone() }));
    assert!(!is_whole(&Index { through: 45, ..index.clone() }));
}
