use super::*;

fn traffic(numbers_per_second: f64) -> Traffic {
    Traffic {
        numbers_per_second,
        keep_alives_per_second: 0.0,
        rows_per_batch: 40.0,
        parameter_bytes: 44.0,
        lifetime: Duration::from_mins(30),
        numbers: None,
        pool_numbers: 500,
        target: 0.01,
        connections: 100.0,
        busy: 0.5,
        node_cores: 8,
        node_memory: 32.0 * 1_073_741_824.0,
        history_bytes: 8.0 * 1_073_741_824.0,
        history_age: Duration::from_hours(30 * 24),
    }
}

fn value(figures: &[Figure], what: &str) -> f64 {
    figures.iter().find(|figure| figure.what == what).unwrap().value
}

fn assert_near(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 0.01, "{value} is not {expected}");
}

#[test]
fn all_numbers_of_north_america_take_twelve_hours_and_one_core_is_hardly_busy() {
    let all = Traffic { numbers: Some(5.5e9), node_memory: 300e9, ..traffic(127_315.0) };
    let figures = estimate(&all).unwrap();
    assert_near(value(&figures, "time to hand out every number once"), 12.0 * 3_600.0);
    // Expects 3,183 batches a second of 18.19 us each, multiplied by 1.43 because there are many
    // numbers.
    assert_near(value(&figures, "cores that are busy"), 3_183.0 * 18.19e-6 * 1.43);
    assert_near(value(&figures, "memory of all nodes"), 5.5e9 * 45.5);
    assert_near(value(&figures, "nodes"), 1.0);
    assert_near(value(&figures, "shards, one per core"), 1.0);
}

#[test]
fn numbers_beyond_one_node_s_capacity_need_more_nodes_and_hops_between_them() {
    let all = Traffic { numbers: Some(5.5e9), ..traffic(127_315.0) };
    let figures = estimate(&all).unwrap();
    assert_near(value(&figures, "nodes"), 8.0);
    let one = estimate(&Traffic { node_memory: 300e9, ..all }).unwrap();
    let cores = [&figures, &one].map(|figures| value(figures, "cores that are busy"));
    assert!(cores[0] > 2.0 * cores[1], "{cores:?}");
    // Seven out of eight rows belong to another node.
    let between = 127_315.0 * 7.0 / 8.0 * (20.0 + 44.0);
    assert_near(value(&figures, "network, between nodes"), between);
}

#[test]
fn numbers_follow_from_lifetime_and_target() {
    let figures = estimate(&traffic(1_000.0)).unwrap();
    assert_near(value(&figures, "numbers locked out at once"), 1_800_000.0);
    // With an overflow of 1 %, a pool of 500 numbers carries a load of 474.
    assert_near(value(&figures, "numbers in all pools"), 1_800_000.0 / 474.0 * 500.0);
}

#[test]
fn a_journal_takes_full_blocks_when_batches_are_flushed_alone() {
    let figures = estimate(&traffic(40.0)).unwrap();
    assert_near(value(&figures, "journal, each batch flushed alone"), 4_096.0);
    assert_near(value(&figures, "journal, busy"), 40.0 * 61.3 * 4_096.0 / 4_088.0);
}

#[test]
fn requests_of_one_row_fill_the_history_of_a_shard_within_hours() {
    let figures = estimate(&Traffic { rows_per_batch: 1.0, ..traffic(50.0) }).unwrap();
    // Seconds until requests of 4 KiB each fill 8 GiB.
    let alone = 8.0 * 1_073_741_824.0 / (50.0 * 4_096.0);
    assert_near(value(&figures, "history, each batch flushed alone"), alone);
    assert_near(value(&figures, "history, busy"), 30.0 * 86_400.0);
    assert_near(value(&figures, "disk for journals"), 8.0 * 1_073_741_824.0);
}

#[test]
fn more_traffic_never_costs_less() {
    let mut before: Option<Vec<Figure>> = None;
    for rate in [1.0, 1e3, 1e5, 1e6] {
        let figures = estimate(&traffic(rate)).unwrap();
        for what in ["cores that are busy", "shards, one per core", "memory of all nodes", "nodes"]
        {
            let less = before.as_ref().map_or(0.0, |before| value(before, what));
            assert!(value(&figures, what) >= less, "{what} at {rate}");
        }
        before = Some(figures);
    }
}

#[test]
fn traffic_beyond_a_cluster_s_capacity_is_reported() {
    assert_eq!(estimate(&traffic(1e9)), Err(EstimateError::TooMuch));
    let none = EstimateError::NotAbove0("the count of numbers per second");
    assert_eq!(estimate(&traffic(0.0)), Err(none));
}

#[test]
fn every_measured_figure_names_the_command_that_prints_it() {
    for measured in MEASURED {
        let command = measured.command;
        let known = ["cargo xtask bench ", "ringwell ", "curl "];
        assert!(known.iter().any(|start| command.starts_with(start)), "{command}");
        assert!(measured.value > 0.0);
    }
}

#[test]
fn keep_alives_take_cpu_journal_and_history_and_a_longer_history_takes_disk() {
    let pages = Traffic { rows_per_batch: 1.0, connections: 1.0, ..traffic(10.0) };
    let kept = Traffic { keep_alives_per_second: 50.0, ..pages };
    let [none, all] = [pages, kept].map(|traffic| estimate(&traffic).unwrap());
    let both = |what| (value(&none, what), value(&all, what));
    // Each of the 10 allocations and 50 keep-alives writes one block of 4 KiB.
    let (before, after) = both("journal, each batch flushed alone");
    assert_near(before, 10.0 * 4_096.0);
    assert_near(after, 60.0 * 4_096.0);
    let (before, after) = both("journal, busy");
    assert_near(after - before, 50.0 * 17.3 * 4_096.0 / 4_088.0);
    // A request of one row costs the HTTP part of a batch of 40 rows, and a fortieth of the rest.
    let (before, after) = both("cores that are busy");
    assert_near(after - before, 50.0 * (9.04 + (18.19 - 9.04) / 40.0) * 1e-6);
    let (before, after) = both("history, each batch flushed alone");
    assert_near(before / after, 6.0);
    let longer =
        Traffic { history_bytes: 1e13, history_age: Duration::from_hours(90 * 24), ..kept };
    let longer = estimate(&longer).unwrap();
    assert_near(value(&longer, "history, each batch flushed alone"), 90.0 * 86_400.0);
    assert_near(value(&longer, "disk for journals"), 60.0 * 4_096.0 * 90.0 * 86_400.0);
}
