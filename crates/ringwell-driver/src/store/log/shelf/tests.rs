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
