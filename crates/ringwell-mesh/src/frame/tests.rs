use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

const SHARD_AND_TIME: (u16, Millis) = (3, Millis(1_795_000_000_000));

/// A row with its own copy of the parameters, which an [`AskRow`] only borrows.
type OwnedRow = (PoolId, u16, [Vec<u8>; 2], Option<VisitorId>);

fn number(value: u64) -> PromoNumber {
    PromoNumber::from_e164(value).unwrap()
}

fn an_ask() -> Ask {
    let retry = core::array::from_fn(|index| u8::try_from(index).unwrap());
    Ask { shard: 3, remaining_ms: 187, map_version: 300, retry: Some(retry) }
}

fn two_rows() -> Vec<OwnedRow> {
    let visitor = core::array::from_fn(|index| 0xA0 + u8::try_from(index).unwrap());
    vec![
        (PoolId(7), 0, [b"a=1".to_vec(), b"b=2".to_vec()], None),
        (PoolId(70_000), 39, [Vec::new(), b"q=%C".to_vec()], Some(VisitorId(visitor))),
    ]
}

fn an_answer() -> Answer {
    let at = SHARD_AND_TIME.1;
    let rows = vec![
        RowAnswer::Allocated { number: number(18_885_550_142) },
        RowAnswer::Kept { number: number(12_000_000_000) },
        RowAnswer::Exhausted { until: at + Millis(30_000) },
        RowAnswer::JournalFull,
        RowAnswer::JournalFailed,
        RowAnswer::Late,
        RowAnswer::Busy,
        RowAnswer::Moved,
    ];
    Answer { at, map_version: 300, rows }
}

fn two_unanswered() -> Unanswered {
    let (shard, allocated_at) = SHARD_AND_TIME;
    Unanswered {
        shard,
        allocated_at,
        kept: false,
        numbers: vec![number(18_885_550_142), number(19_999_999_999)],
    }
}

fn ask_bytes(ask: &Ask, rows: &[OwnedRow]) -> Vec<u8> {
    let mut out = Vec::new();
    let rows = rows.iter().map(|(pool, row, params, visitor)| AskRow {
        pool: *pool,
        row: *row,
        params: [&params[0], &params[1]],
        visitor: *visitor,
    });
    write_ask(&mut out, ask, rows);
    out
}

fn answer_bytes(answer: &Answer) -> Vec<u8> {
    let mut out = Vec::new();
    write_answer(&mut out, answer);
    out
}

fn unanswered_bytes(unanswered: &Unanswered) -> Vec<u8> {
    let mut out = Vec::new();
    write_unanswered(&mut out, unanswered);
    out
}

fn ping_bytes(shard: u16) -> Vec<u8> {
    let mut out = Vec::new();
    write_ping(&mut out, shard);
    out
}

/// Reads an ask and copies the parameters of its rows.
fn ask_of(bytes: &[u8], limits: &Limits) -> Result<(Ask, Vec<OwnedRow>), FrameError> {
    let (ask, rows) = read_ask(bytes, limits)?;
    let owned = |row: ReadRow| {
        (row.pool, row.row, row.params.map(|part| bytes[part].to_vec()), row.visitor)
    };
    Ok((ask, rows.into_iter().map(owned).collect()))
}

/// Decodes `bytes` as a frame of `kind`, then encodes the decoded values again.
fn written_again(kind: u8, bytes: &[u8], rows_wanted: usize) -> Result<Vec<u8>, FrameError> {
    let limits = Limits::default();
    match kind {
        kind::ASK => ask_of(bytes, &limits).map(|(ask, rows)| ask_bytes(&ask, &rows)),
        kind::ANSWER => read_answer(bytes, rows_wanted).map(|answer| answer_bytes(&answer)),
        kind::UNANSWERED => read_unanswered(bytes, &limits).map(|read| unanswered_bytes(&read)),
        _ => read_ping(bytes).map(ping_bytes),
    }
}

/// Parses a file of hexadecimal bytes, ignoring the comment at the end of each line.
fn golden(text: &str) -> Vec<u8> {
    let bytes = text.lines().flat_map(|line| line.split('#').next().unwrap().split_whitespace());
    bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn numbers() -> impl Strategy<Value = PromoNumber> {
    let world = (2_000_000_u64..=999_999_999_999_999).prop_filter_map("1", PromoNumber::from_e164);
    prop_oneof![9 => (12_000_000_000_u64..=19_999_999_999).prop_map(number), 1 => world]
}

fn asks() -> impl Strategy<Value = Ask> {
    let retry = proptest::option::of(any::<[u8; 16]>());
    (any::<u16>(), any::<u32>(), any::<u64>(), retry).prop_map(
        |(shard, remaining_ms, map_version, retry)| Ask { shard, remaining_ms, map_version, retry },
    )
}

fn ask_rows() -> impl Strategy<Value = Vec<OwnedRow>> {
    let params = || proptest::collection::vec(any::<u8>(), 0..150);
    let visitor = proptest::option::of(any::<[u8; 16]>().prop_map(VisitorId));
    let row = (any::<u64>().prop_map(PoolId), [params(), params()], visitor);
    proptest::collection::btree_map(any::<u16>(), row, 0..12).prop_map(|rows| {
        rows.into_iter()
            .map(|(row, (pool, params, visitor))| (pool, row, params, visitor))
            .collect()
    })
}

fn answers() -> impl Strategy<Value = Answer> {
    let row = prop_oneof![
        numbers().prop_map(|number| RowAnswer::Allocated { number }),
        numbers().prop_map(|number| RowAnswer::Kept { number }),
        any::<u64>().prop_map(|until| RowAnswer::Exhausted { until: Millis(until) }),
        Just(RowAnswer::JournalFull),
        Just(RowAnswer::JournalFailed),
        Just(RowAnswer::Late),
        Just(RowAnswer::Busy),
        Just(RowAnswer::Moved),
    ];
    (any::<u64>(), any::<u64>(), proptest::collection::vec(row, 0..60))
        .prop_map(|(at, map_version, rows)| Answer { at: Millis(at), map_version, rows })
}

fn unanswereds() -> impl Strategy<Value = Unanswered> {
    (any::<u16>(), any::<u64>(), any::<bool>(), proptest::collection::vec(numbers(), 0..60))
        .prop_map(|(shard, at, kept, numbers)| Unanswered {
            shard,
            allocated_at: Millis(at),
            kept,
            numbers,
        })
}

/// Generates frames of all kinds. Each is returned as its kind, its number of rows and its bytes.
fn frames() -> impl Strategy<Value = (u8, usize, Vec<u8>)> {
    prop_oneof![
        (asks(), ask_rows()).prop_map(|(ask, rows)| (
            kind::ASK,
            rows.len(),
            ask_bytes(&ask, &rows)
        )),
        answers().prop_map(|answer| (kind::ANSWER, answer.rows.len(), answer_bytes(&answer))),
        unanswereds().prop_map(|un| (kind::UNANSWERED, un.numbers.len(), unanswered_bytes(&un))),
        any::<u16>().prop_map(|shard| (kind::PING, 0, ping_bytes(shard))),
    ]
}

proptest! {
    #[test]
    fn an_ask_reads_back_as_it_was_written(ask in asks(), rows in ask_rows()) {
        let read = ask_of(&ask_bytes(&ask, &rows), &Limits::default());
        prop_assert_eq!(read, Ok((ask, rows)));
    }

    #[test]
    fn an_answer_reads_back_as_it_was_written(answer in answers()) {
        prop_assert_eq!(read_answer(&answer_bytes(&answer), answer.rows.len()), Ok(answer));
    }

    #[test]
    fn unanswered_numbers_read_back_as_they_were_written(unanswered in unanswereds()) {
        let read = read_unanswered(&unanswered_bytes(&unanswered), &Limits::default());
        prop_assert_eq!(read, Ok(unanswered));
    }

    #[test]
    fn a_frame_that_is_cut_anywhere_is_too_short((kind, rows, bytes) in frames()) {
        for len in 0..bytes.len() {
            let read = written_again(kind, &bytes[..len], rows);
            prop_assert!(
                matches!(read, Err(FrameError::CutShort { bytes, .. }) if bytes == len),
                "{} of {} bytes: {:?}", len, bytes.len(), read
            );
        }
    }

    #[test]
    fn a_frame_with_something_behind_it_is_refused(
        (kind, rows, mut bytes) in frames(),
        behind in proptest::collection::vec(any::<u8>(), 1..20),
    ) {
        bytes.extend_from_slice(&behind);
        let read = written_again(kind, &bytes, rows);
        prop_assert_eq!(read, Err(FrameError::LeftOver { bytes: behind.len() }));
    }

    /// Each value has only one encoding. If a changed frame can still be decoded, encoding its
    /// values again must therefore reproduce the changed frame exactly.
    #[test]
    fn no_changed_bits_make_a_reader_panic(
        (kind, rows, mut bytes) in frames(),
        flips in proptest::collection::vec((any::<Index>(), 0..8_u8), 1..4),
    ) {
        for (index, bit) in flips {
            let index = index.index(bytes.len());
            bytes[index] ^= 1 << bit;
        }
        if let Ok(again) = written_again(kind, &bytes, rows) {
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        kind in kind::ASK..=kind::PING,
        rows in 0..4_usize,
        has_start in any::<bool>(),
        version in 1..=VERSION,
        mut bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0..4_u8], 0..200),
    ) {
        if has_start {
            bytes.splice(0..0, [version, kind]);
        }
        if let Ok(again) = written_again(kind, &bytes, rows) {
            prop_assert_eq!(again, bytes);
        }
    }
}

#[test]
fn the_bytes_of_version_1_do_not_change() {
    let ask = golden(include_str!("../../../../fixtures/link/v1/ask.hex"));
    assert_eq!(ask_bytes(&an_ask(), &two_rows()), ask);
    assert_eq!(ask_of(&ask, &Limits::default()), Ok((an_ask(), two_rows())));

    let answer = golden(include_str!("../../../../fixtures/link/v1/answer.hex"));
    assert_eq!(answer_bytes(&an_answer()), answer);
    assert_eq!(read_answer(&answer, 8), Ok(an_answer()));

    let without_rows = golden(include_str!("../../../../fixtures/link/v1/answer-to-ping.hex"));
    let alive = Answer { rows: Vec::new(), ..an_answer() };
    assert_eq!(answer_bytes(&alive), without_rows);
    assert_eq!(read_answer(&without_rows, 0), Ok(alive));

    let unanswered = golden(include_str!("../../../../fixtures/link/v1/unanswered.hex"));
    assert_eq!(unanswered_bytes(&two_unanswered()), unanswered);
    assert_eq!(read_unanswered(&unanswered, &Limits::default()), Ok(two_unanswered()));

    let ping = golden(include_str!("../../../../fixtures/link/v1/ping.hex"));
    assert_eq!(ping_bytes(513), ping);
    assert_eq!(read_ping(&ping), Ok(513));
}

/// An answer with two numbers, one of which has a country code other than 1.
fn answer_of_the_world() -> Answer {
    let mut answer = an_answer();
    answer.rows[0] = RowAnswer::Allocated { number: number(493_012_345_678) };
    answer
}

#[test]
fn the_bytes_of_version_2_do_not_change() {
    let answer = golden(include_str!("../../../../fixtures/link/v2/answer.hex"));
    assert_eq!(answer_bytes(&answer_of_the_world()), answer);
    assert_eq!(read_answer(&answer, 8), Ok(answer_of_the_world()));

    let numbers = vec![number(493_012_345_678), number(19_999_999_999)];
    let of_the_world = Unanswered { numbers, ..two_unanswered() };
    let unanswered = golden(include_str!("../../../../fixtures/link/v2/unanswered.hex"));
    assert_eq!(unanswered_bytes(&of_the_world), unanswered);
    assert_eq!(read_unanswered(&unanswered, &Limits::default()), Ok(of_the_world));
}

#[test]
fn a_frame_that_a_lower_version_can_express_is_refused_in_a_higher_one() {
    for version in [2, 3] {
        let mut frame = vec![version, kind::ANSWER, 100, 1, 1, outcome::KEPT];
        frame.extend_from_slice(&8_885_550_142_u64.to_le_bytes()[..7]);
        for bytes in [&frame[..], &[version, kind::PING, 3]] {
            let read = written_again(bytes[1], bytes, 1);
            let is_refused = matches!(read, Err(FrameError::OutOfRange { field: "version", .. }));
            assert!(is_refused, "{read:?}");
        }
    }
    let mut of_the_world = golden(include_str!("../../../../fixtures/link/v2/answer.hex"));
    of_the_world[0] = 3;
    assert!(read_answer(&of_the_world, 8).is_err());
}

#[test]
fn the_bytes_of_version_3_do_not_change() {
    let kept = Unanswered { kept: true, ..two_unanswered() };
    let unanswered = golden(include_str!("../../../../fixtures/link/v3/unanswered.hex"));
    assert_eq!(unanswered_bytes(&kept), unanswered);
    assert_eq!(read_unanswered(&unanswered, &Limits::default()), Ok(kept));
}

#[test]
fn another_version_is_reported_before_anything_else_is_checked() {
    for found in [0, VERSION + 1, 255] {
        for rest in [&[][..], &[kind::ASK], &[99, 1, 2, 3]] {
            let bytes = [&[found], rest].concat();
            for kind in kind::ASK..=kind::PING {
                let read = written_again(kind, &bytes, 0);
                assert_eq!(read, Err(FrameError::Version { found }));
            }
        }
    }
}

#[test]
fn a_frame_is_not_mistaken_for_one_of_another_kind() {
    let frames = [
        ask_bytes(&an_ask(), &two_rows()),
        answer_bytes(&an_answer()),
        unanswered_bytes(&two_unanswered()),
        ping_bytes(3),
        vec![1, 5],
    ];
    for (found, bytes) in (kind::ASK..).zip(&frames) {
        for wanted in kind::ASK..=kind::PING {
            let read = written_again(wanted, bytes, 8);
            if found == wanted {
                assert_eq!(read.as_ref(), Ok(bytes));
            } else {
                assert_eq!(read, Err(FrameError::Kind { found, wanted }));
            }
        }
    }
}

#[test]
fn the_limit_of_rows_is_accepted_and_not_one_more() {
    let limits = Limits { rows_max: 2, ..Limits::default() };
    let mut rows = two_rows();
    assert!(ask_of(&ask_bytes(&an_ask(), &rows), &limits).is_ok());
    rows.push((PoolId(1), 40, [Vec::new(), Vec::new()], None));
    let read = ask_of(&ask_bytes(&an_ask(), &rows), &limits);
    assert_eq!(read, Err(FrameError::TooManyRows { rows: 3, rows_max: 2 }));

    let mut unanswered = two_unanswered();
    assert!(read_unanswered(&unanswered_bytes(&unanswered), &limits).is_ok());
    unanswered.numbers.push(number(13_000_000_000));
    let read = read_unanswered(&unanswered_bytes(&unanswered), &limits);
    assert_eq!(read, Err(FrameError::TooManyRows { rows: 3, rows_max: 2 }));
}

#[test]
fn parameters_count_with_their_separators() {
    let limits = Limits { params_bytes_max: 9, ..Limits::default() };
    for (first, second, counted) in [(4, 4, 9), (9, 0, 9), (0, 9, 9), (0, 0, 0)] {
        let row = |more: usize| {
            let params = [vec![b'x'; first + more], vec![b'y'; second]];
            ask_of(&ask_bytes(&an_ask(), &[(PoolId(1), 5, params, None)]), &limits)
        };
        assert!(row(0).is_ok());
        let bytes = counted + 10 + u64::from(first == 0 && second > 0);
        assert_eq!(row(10), Err(FrameError::ParamsTooLong { row: 5, bytes, bytes_max: 9 }));
    }
}

#[test]
fn lengths_whose_sum_exceeds_64_bits_are_too_long() {
    let mut frame = vec![1, kind::ASK, 0, 3, 100, 1, 1, 0, 7, 5];
    put_varint(&mut frame, u64::MAX);
    put_varint(&mut frame, 5);
    let Limits { params_bytes_max: bytes_max, .. } = Limits::default();
    let read = read_ask(&frame, &Limits::default());
    assert_eq!(read, Err(FrameError::ParamsTooLong { row: 5, bytes: u64::MAX, bytes_max }));
}

/// If the reader did not check the number of rows, it would request more memory than the machine
/// has, and the process would be aborted.
#[test]
fn no_memory_is_allocated_for_rows_that_the_frame_cannot_contain() {
    let limits = Limits { rows_max: usize::MAX, params_bytes_max: usize::MAX };
    let is_cut_short = |error| matches!(error, FrameError::CutShort { .. });
    for count in [1_u64 << 40, u64::MAX >> 4, u64::MAX] {
        let mut frame = vec![1, kind::ASK, 0, 3, 100, 1];
        put_varint(&mut frame, count);
        frame.extend_from_slice(&[0; 100]);
        assert!(is_cut_short(read_ask(&frame, &limits).unwrap_err()));

        let mut frame = vec![1, kind::UNANSWERED, 3, 100];
        put_varint(&mut frame, count);
        frame.extend_from_slice(&[0; 100]);
        assert!(is_cut_short(read_unanswered(&frame, &limits).unwrap_err()));

        let mut frame = vec![1, kind::ANSWER, 100, 1];
        put_varint(&mut frame, count);
        let wanted = usize::try_from(count).unwrap();
        frame.extend_from_slice(&[outcome::LATE; 100]);
        assert!(is_cut_short(read_answer(&frame, wanted).unwrap_err()));

        // A frame that contains a length greater than the rest of the frame must also be refused as
        // cut short.
        let mut frame = vec![1, kind::ASK, 0, 3, 100, 1, 1, 0, 7, 0];
        put_varint(&mut frame, count);
        put_varint(&mut frame, count);
        assert!(is_cut_short(read_ask(&frame, &limits).unwrap_err()));
    }
}

#[test]
fn an_answer_with_another_number_of_rows_is_refused() {
    let bytes = answer_bytes(&an_answer());
    for wanted in [0, 7, 9, usize::MAX] {
        assert_eq!(read_answer(&bytes, wanted), Err(FrameError::RowCount { found: 8, wanted }));
    }
}

#[test]
fn row_numbers_rise() {
    for numbers in [[4, 4], [4, 3]] {
        let rows = numbers.map(|row| (PoolId(1), row, [Vec::new(), Vec::new()], None));
        let read = ask_of(&ask_bytes(&an_ask(), &rows), &Limits::default());
        assert!(matches!(read, Err(FrameError::OutOfRange { field: "row number", .. })));
    }
}

#[test]
fn values_outside_of_their_range_are_refused() {
    let check = |bytes: &[u8], field: &str, offset: usize| {
        let read = written_again(bytes[1], bytes, 1).unwrap_err();
        let FrameError::OutOfRange { field: found, offset: at } = read else {
            panic!("{bytes:?}: {read}");
        };
        assert_eq!((found, at), (field, offset), "{bytes:?}");
    };
    let ask = |rest: &[u8]| [&[1, kind::ASK], rest].concat();
    let answer = |row: &[u8]| [&[1, kind::ANSWER, 100, 1, 1], row].concat();
    // Flags that version 1 does not have.
    check(&ask(&[2]), "flags", 3);
    check(&ask(&[0, 3, 100, 1, 1, 0x80, 7, 0, 0, 0]), "flags of a row", 8);
    // A shard that exceeds 16 bits, a remaining time that exceeds 32 bits, and a row index that
    // exceeds 16 bits.
    check(&ask(&[0, 0x80, 0x80, 4]), "shard", 6);
    check(&ask(&[0, 3, 0x80, 0x80, 0x80, 0x80, 0x10]), "remaining time", 9);
    check(&ask(&[0, 3, 100, 1, 1, 0, 7, 0x80, 0x80, 4, 0, 0]), "row number", 12);
    // A varint in a longer form than necessary, and one that exceeds 64 bits.
    check(&ask(&[0, 0x83, 0]), "shard", 5);
    let too_long = [&[0, 3, 100][..], &[0xFF; 9], &[2]].concat();
    check(&ask(&too_long), "map version", 15);
    // Numbers whose first digit is 0 or 1, or that have eleven digits.
    check(&answer(&[outcome::ALLOCATED, 0, 0, 0, 0, 0]), "promo number", 11);
    let one_below = [&[outcome::KEPT][..], &1_999_999_999_u64.to_le_bytes()[..5]].concat();
    check(&answer(&one_below), "promo number", 11);
    let one_above = [&[outcome::KEPT][..], &10_000_000_000_u64.to_le_bytes()[..5]].concat();
    check(&answer(&one_above), "promo number", 11);
    // In version 2: the long code of a number that also has a short code, and a number with 16
    // digits.
    let long = |code: u64| {
        [&[2, kind::ANSWER, 100, 1, 1, outcome::KEPT][..], &code.to_le_bytes()[..7]].concat()
    };
    check(&long(1_000_018_885_550_142), "promo number", 13);
    check(&long(2_000_000_000_000_000), "promo number", 13);
    // Answers that version 1 does not have.
    check(&answer(&[0]), "answer of a row", 6);
    check(&answer(&[outcome::MOVED + 1]), "answer of a row", 6);
}

#[test]
fn the_longest_frames_fit_into_the_longest_bodies() {
    let limits = Limits { rows_max: 3, params_bytes_max: 1000 };
    let ask = Ask {
        shard: u16::MAX,
        remaining_ms: u32::MAX,
        map_version: u64::MAX,
        retry: Some([255; 16]),
    };
    let params = [vec![b'x'; 500], vec![b'y'; 499]];
    let rows: Vec<OwnedRow> = (u16::MAX - 2..=u16::MAX)
        .map(|row| (PoolId(u64::MAX), row, params.clone(), Some(VisitorId([255; 16]))))
        .collect();
    let bytes = ask_bytes(&ask, &rows);
    assert!(ask_of(&bytes, &limits).is_ok());
    assert!(bytes.len() <= limits.frame_bytes_max());

    let numbers = vec![number(19_999_999_999); 3];
    let (allocated_at, kept) = (Millis(u64::MAX), true);
    let unanswered = Unanswered { shard: u16::MAX, allocated_at, kept, numbers };
    assert!(unanswered_bytes(&unanswered).len() <= limits.frame_bytes_max());

    let rows = vec![RowAnswer::Exhausted { until: Millis(u64::MAX) }; 3];
    let answer = Answer { at: Millis(u64::MAX), map_version: u64::MAX, rows };
    assert!(answer_bytes(&answer).len() <= Answer::bytes_max(3));
}

#[test]
fn frames_are_appended_to_existing_bytes() {
    let mut out = b"HTTP".to_vec();
    write_ping(&mut out, 3);
    write_answer(&mut out, &an_answer());
    assert_eq!(out, [&b"HTTP"[..], &ping_bytes(3), &answer_bytes(&an_answer())].concat());
}

#[test]
fn errors_explain_the_operator_s_action() {
    let text = FrameError::Version { found: 4 }.to_string();
    assert_eq!(
        text,
        "frame of link version 4, but this release speaks versions 1 to 3: upgrade the older of \
         the two nodes"
    );
    let text = read_ping(&[1, kind::PING]).unwrap_err().to_string();
    assert_eq!(
        text,
        "frame is cut short: it ends after 2 bytes, before the end of this field: shard"
    );
}
