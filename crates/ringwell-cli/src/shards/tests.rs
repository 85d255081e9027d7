use super::*;

fn owner(shard: u16, node: &str, buckets: &str) -> Owner {
    let buckets = if buckets.is_empty() { BTreeSet::new() } else { read(buckets) };
    Owner { shard, node: node.to_owned(), listen: vec!["127.0.0.1:8080".to_owned()], buckets }
}

fn read(text: &str) -> BTreeSet<u16> {
    parse_buckets(text).unwrap().0
}

fn overview(owners: Vec<Owner>) -> Overview {
    Overview { owners, json: Value::Null }
}

#[test]
fn lists_of_buckets_are_read_and_written_or_refused() {
    for text in ["3", "0-2,5", "0-1023"] {
        assert_eq!(ranges(&read(text)), text);
    }
    assert_eq!(ranges(&read("2-3, 0-2")), "0-3");
    for bad in ["", "1024", "3-2", "a", "1-", "-1", "1,,2"] {
        assert!(parse_buckets(bad).is_err(), "{bad}");
    }
}

#[test]
fn draining_a_node_distributes_its_buckets_evenly() {
    let owners = vec![
        owner(0, "a", "0-99"),
        owner(1, "a", "100-499"),
        owner(2, "b", "500-1023"),
        owner(3, "c", ""),
    ];
    let mut now: BTreeMap<u16, usize> =
        owners.iter().map(|owner| (owner.shard, owner.buckets.len())).collect();
    let shares = shares(&overview(owners), "b");
    let all: BTreeSet<u16> = shares.iter().flat_map(|(_, piece)| piece).copied().collect();
    assert_eq!(ranges(&all), "500-1023");
    for (shard, piece) in shares {
        assert!(piece.len() <= PIECE);
        *now.get_mut(&shard).unwrap() += piece.len();
    }
    assert_eq!((now[&0], now[&1], now[&3]), (312, 400, 312));
}

#[test]
fn the_table_has_a_line_for_each_shard() {
    let states = BTreeMap::from([("first", "ready"), ("b", "no answer")]);
    let text = overview(vec![owner(0, "first", "0-2,9"), owner(1, "b", "")]).table(&states);
    let wanted = "\
shard  node   state      listen          count  buckets
    0  first  ready      127.0.0.1:8080      4  0-2,9
    1  b      no answer  127.0.0.1:8080      0
";
    assert_eq!(text, wanted);
}
