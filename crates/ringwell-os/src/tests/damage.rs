//! Tests with real files that were truncated or changed while no process used them.

use super::*;

/// Stores a few groups in the first segment of a journal, and returns them with the path of the
/// segment.
fn journal(settings: &Settings) -> (Vec<Group>, PathBuf) {
    let mut shard = open(settings);
    let groups = [100, 9_000, 10, 5_000].map(|bytes| shard.store(bytes)).to_vec();
    shard.journal.close().unwrap();
    (groups, settings.shard_directory(0).join("0000000000000001.rpj"))
}

/// Recovers the journal, and returns whether every loss was reported.
fn is_judged_well(settings: &Settings, groups: &[Group]) -> bool {
    let Ok((seen, _, recovered)) = recover(settings) else { return true };
    groups.starts_with(&seen) && (seen.len() == groups.len() || recovered.is_in_doubt())
}

/// The file is truncated next to every block boundary, and at its beginning and its end.
#[test]
fn a_file_that_lost_its_tail_is_refused_wherever_it_was_cut() {
    let data = TempDir::new().unwrap();
    let settings = settings(data.path());
    let (_, path) = journal(&settings);
    let bytes = fs::read(&path).unwrap();
    for boundary in (0..=bytes.len()).step_by(4096) {
        for len in [boundary.saturating_sub(1), boundary, boundary + 1, boundary + 84] {
            if len >= bytes.len() {
                continue;
            }
            fs::write(&path, &bytes[..len]).unwrap();
            let refused = recover(&settings).map(|_| ()).unwrap_err().to_string();
            let words = ["was longer when it was created", "is not the head of a segment"];
            assert!(words.iter().any(|it| refused.contains(it)), "length {len}: {refused}");
        }
    }
}

/// A start marks the position where it truncates a file. The next start may truncate the same file
/// again.
#[test]
fn a_file_cut_by_a_start_is_complete_until_it_is_cut_again() {
    let data = TempDir::new().unwrap();
    let settings = settings(data.path());
    let (groups, path) = journal(&settings);
    open(&settings).journal.close().unwrap();
    let cut = fs::read(&path).unwrap();
    assert!(cut.len() < 128 << 10, "the start cut nothing");
    // Simulates a process that ended during startup, before it created its own segment.
    for other in names(&settings).iter().filter(|name| !path.ends_with(name)) {
        fs::remove_file(settings.shard_directory(0).join(other)).unwrap();
    }
    assert_eq!(recover(&settings).unwrap().0, groups);
    for len in [cut.len() - 1, cut.len() - 4096, cut.len() - 4097] {
        fs::write(&path, &cut[..len]).unwrap();
        assert!(recover(&settings).is_err(), "length {len}");
    }
    fs::write(&path, &cut).unwrap();
    assert_eq!(open(&settings).seen, groups);
}

#[test]
fn no_cut_and_no_flip_of_a_real_file_loses_a_group_silently() {
    let data = TempDir::new().unwrap();
    let settings = settings(data.path());
    let (groups, path) = journal(&settings);
    let bytes = fs::read(&path).unwrap();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for round in 0..400 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let place = usize::try_from(state >> 33).unwrap() % 40_000;
        let mut damaged = bytes.clone();
        if round % 2 == 0 {
            damaged.truncate(place);
        } else {
            damaged[place] ^= 1 << (round % 8);
        }
        fs::write(&path, &damaged).unwrap();
        assert!(is_judged_well(&settings, &groups), "round {round}, byte {place}");
    }
}
