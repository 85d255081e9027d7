//! Tests which CSV files with ring pools are accepted, and the faults reported for the others.

use ringwell_core::{Millis, PoolId};

use super::super::Overrides;
use super::super::tests::{check, lines, load_files};
use super::{guarded, unguarded};

#[track_caller]
fn check_csv(csv: &str, said: &str) {
    let toml = "data = \"/data\"\nring_pools = \"pools.csv\"";
    let faults = load_files(toml, csv, &[], Overrides::default()).err().unwrap_or_default();
    assert_eq!(lines(&faults), said);
}

#[test]
fn pools_come_from_csv_with_ranges() {
    let csv = "\
id,ring_pool_key,next_ring_pool_key,overflow_number,lifetime_seconds,numbers
1,key-of-pool-1,next-key-of-1,8885550199,1800,8885550100-8885550149;8885550160
2,key-of-pool-2,,,0.5, 8885550170
";
    let toml = "data = \"/data\"\nring_pools = \"pools.csv\"";
    let (_, directory) = load_files(toml, csv, &[], Overrides::default()).unwrap();
    let pool = |id| directory.pool(PoolId(id)).unwrap();
    assert_eq!((pool(1).number_count(), pool(2).number_count()), (51, 1));
    assert_eq!((pool(1).lifetime(), pool(2).lifetime()), (Millis(1_800_000), Millis(500)));
    assert_eq!((pool(1).next_key().is_some(), pool(2).next_key().is_some()), (true, false));
    assert_eq!((pool(1).overflow().is_some(), pool(2).overflow().is_some()), (true, false));
}

#[test]
fn the_list_written_by_the_demo_is_read_back() {
    let pools = crate::demo_pools(20, 30, Millis(10)).unwrap();
    let mut csv = Vec::new();
    crate::write_demo_csv(&pools, &mut csv).unwrap();
    let toml = "data = \"/data\"\nring_pools = \"pools.csv\"";
    let csv = String::from_utf8(csv).unwrap();
    let (_, directory) = load_files(toml, &csv, &[], Overrides::default()).unwrap();
    for pool in &pools {
        let read = directory.pool(pool.id()).unwrap();
        assert_eq!(read.key(), pool.key());
        assert_eq!(read.spec(), pool.spec());
        assert_eq!(read.overflow(), pool.overflow());
    }
}

#[test]
fn a_list_exported_from_a_database_is_read_with_all_ranges_of_a_pool() {
    let csv = "\
id,ring_pool_key,next_ring_pool_key,overflow_number,lifetime_seconds,first_number,numbers,name,network,advertiser,campaign,tracking_url,destination_url
1,key-of-pool-1,,8885550199,1800,8885550100,50,Spring,local,,local,https://t.example/,https://shop.example/
1,key-of-pool-1,,8885550199,1800,8885550160,10,Spring,local,,local,https://t.example/,https://shop.example/
2,key-of-pool-2,,,0.5,8885550170,1,,local,,local,,
";
    let toml = "data = \"/data\"\nring_pools = \"pools.csv\"";
    let (_, directory) = load_files(toml, csv, &[], Overrides::default()).unwrap();
    let pool = |id| directory.pool(PoolId(id)).unwrap();
    assert_eq!((pool(1).number_count(), pool(2).number_count()), (60, 1));
    assert_eq!(pool(1).name(), Some("Spring"));
    assert_eq!(pool(1).tracking().unwrap().destination_url, "https://shop.example/");
    assert!(pool(2).tracking().is_none());
}

/// Earlier versions kept only a pool's last line, and could lose the pool's only overflow number.
#[test]
fn lines_of_one_pool_complete_each_other_and_do_not_contradict() {
    let heading = "id,ring_pool_key,next_ring_pool_key,overflow_number,lifetime_seconds,\
                   first_number,numbers,name\n";
    let one = "1,key-of-pool-1,next-key-of-1,8885550199,1800,8885550100,50,Spring\n";
    let other = "1,key-of-pool-1,,,1800,8885550160,10,\n";
    let toml = "data = \"/data\"\nring_pools = \"pools.csv\"";
    for lines in [[one, other], [other, one]] {
        let csv = format!("{heading}{}", lines.concat());
        let (_, directory) = load_files(toml, &csv, &[], Overrides::default()).unwrap();
        let pool = directory.pool(PoolId(1)).unwrap();
        assert_eq!((pool.number_count(), pool.name()), (60, Some("Spring")));
        assert!(pool.overflow().is_some() && pool.next_key().is_some(), "{csv}");
    }
    let third = "1,key-of-pool-1,next-key-of-2,8885550198,900,8885550170,5,Summer\n";
    check_csv(
        &format!("{heading}{one}{other}{third}"),
        "pools.csv:4: lifetime_seconds: differs from an earlier line of this pool
pools.csv:4: overflow_number: differs from an earlier line of this pool
pools.csv:4: next_ring_pool_key: differs from an earlier line of this pool
pools.csv:4: name: differs from an earlier line of this pool
",
    );
}

#[test]
fn faults_in_csv_have_line_and_column_name() {
    check_csv(
        "\
id,ring_pool_key,overflow_number,lifetime_seconds,numbers
x,secret,1,1h,8885550100-
2,key-of-pool-2,,0,8885550100
3,key-of-pool-3,,,
4,key-of-pool-4,1800
5,key-of-pool-5,,10,8885550100
6,key-of-pool-6,,10,8885550100
",
        "\
pools.csv:2: id: must be a whole number; write e.g. 16
pools.csv:2: ring_pool_key: a ring pool key has 8 to 64 bytes, not 6
pools.csv:2: lifetime_seconds: must be a number of seconds with at most three decimals; write e.g. 1800
pools.csv:2: numbers: a promo number needs ten digits without punctuation, or a + and its country code; this one has 0 bytes; write e.g. 8885550100-8885550149;8885550200
pools.csv:2: overflow_number: a promo number needs ten digits without punctuation, or a + and its country code; this one has 1 bytes; write e.g. \"8885550142\"
pools.csv:3: lifetime_seconds: must be at least 1 ms and at most 400 days; write e.g. 1800
pools.csv:4: lifetime_seconds: is missing
pools.csv:4: numbers: is missing
pools.csv:5: has 3 columns, but the header has 5
pools.csv:7: numbers: 8885550100 is in ring pool 5 too; a number can be in one pool only
",
    );
}

#[test]
fn a_bad_key_hides_no_other_fault_of_its_line() {
    check_csv(
        "\
id,ring_pool_key,overflow_number,lifetime_seconds,numbers
1,secret,8885550100,0,8885550100
2,secret,,1800,8885550101-
",
        "\
pools.csv:2: ring_pool_key: a ring pool key has 8 to 64 bytes, not 6
pools.csv:2: lifetime_seconds: must be at least 1 ms and at most 400 days; write e.g. 1800
pools.csv:2: overflow_number: 8885550100 is also in the pool's rotation, so calls to it would be attributed to one visitor
pools.csv:3: ring_pool_key: a ring pool key has 8 to 64 bytes, not 6
pools.csv:3: numbers: a promo number needs ten digits without punctuation, or a + and its country code; this one has 0 bytes; write e.g. 8885550100-8885550149;8885550200
",
    );
}

#[test]
fn a_csv_file_has_the_required_columns_and_no_others() {
    check_csv(
        "id,id,ring_pool_key,lifetime,numbers\n",
        "\
pools.csv:1: lifetime_seconds: the column is missing
pools.csv:1: id: the column occurs twice
pools.csv:1: lifetime: the column is unknown; the columns are id, ring_pool_key, lifetime_seconds, numbers, next_ring_pool_key, overflow_number, first_number, name, tracking_url, destination_url, network, advertiser, campaign
",
    );
    let none = "the column is unknown; the columns are id, ring_pool_key, lifetime_seconds, \
        numbers, \
        next_ring_pool_key, overflow_number, first_number, name, tracking_url, destination_url, \
        network, advertiser, campaign\n";
    // Without a header, the first line describes a pool, and the fault must not show its key.
    let columns = ["1", "2", "3", "4"].map(|nth| format!("pools.csv:1: column {nth}: {none}"));
    let missing = ["id", "ring_pool_key", "lifetime_seconds", "numbers"]
        .map(|name| format!("pools.csv:1: {name}: the column is missing\n"));
    check_csv("1,key-of-pool-1,1800,8885550100\n", &(missing.concat() + &columns.concat()));
    check_csv(
        "id,ring_pool_key,lifetime_seconds,first_number,numbers\n1,key-of-pool-1,1,8885550100,0\n",
        "pools.csv:2: numbers: must be the count of consecutive numbers, starting with \
         first_number\n",
    );
    let toml = "data = \"/data\"\nring_pools = \"/nowhere/other.csv\"";
    let why = "/nowhere/other.csv: cannot be read: No such file or directory (os error 2)";
    check(toml, &format!("ringwell.toml:2: ring_pools: {why}\n"));
    check_csv(
        "id,ring_pool_key,lifetime_seconds,numbers\n",
        "ringwell.toml:2: ring_pools: the file has no ring pool\n",
    );
    let toml = "data = \"/data\"\nring_pools = \"/proc\"";
    check(toml, "ringwell.toml:2: ring_pools: /proc: cannot be read: is a directory\n");
    // This file is endless.
    let toml = "data = \"/data\"\nring_pools = \"/dev/zero\"";
    check(toml, "/dev/zero: cannot be read: it is a device, not a file\n");
}

#[test]
fn a_cell_that_would_be_a_formula_is_escaped_and_reads_back_as_before() {
    for cell in
        ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''-1", "=cmd|' /C calc'!A0"]
    {
        let guarded = guarded(cell.to_owned());
        assert!(guarded.starts_with('\'') && unguarded(&guarded) == cell, "{guarded}");
    }
    for cell in ["", "a=1", "'", "'tis", "8885550100", "x-1"] {
        assert_eq!(guarded(cell.to_owned()), cell);
        assert_eq!(unguarded(cell), cell);
    }
}

#[test]
fn faults_name_the_line_whatever_ends_the_lines_before_it() {
    let header = "id,ring_pool_key,lifetime_seconds,numbers";
    for (bom, end) in [("", "\n"), ("", "\r\n"), ("\u{feff}", "\n"), ("\u{feff}", "\r\n")] {
        let good = "1,key-of-pool-1,1800,8885550100-8885550101";
        let bad = "2,short,1800,8885550110-8885550111";
        let cut = "3,key-of-pool-3";
        let quoted = "4,key-of-pool-4,\"1800\",8885550120-8885550121";
        let csv = [header, good, "", bad, quoted, cut, "", bad].join(end);
        check_csv(
            &format!("{bom}{csv}"),
            "\
pools.csv:4: ring_pool_key: a ring pool key has 8 to 64 bytes, not 5
pools.csv:6: has 2 columns, but the header has 4
pools.csv:8: ring_pool_key: a ring pool key has 8 to 64 bytes, not 5
",
        );
    }
}
