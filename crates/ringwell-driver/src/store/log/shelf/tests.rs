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
