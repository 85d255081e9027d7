use super::*;
use crate::bytes::Body;
use crate::place::{BODY_BYTES_MAX, position};
use proptest::prelude::*;

fn number() -> impl Strategy<Value = PromoNumber> {
    let world = (2_000_000_u64..=999_999_999_999_999).prop_filter_map("1", PromoNumber::from_e164);
    prop_oneof![
        (12_000_000_000_u64..=19_999_999_999).prop_map(|n| PromoNumber::from_e164(n).unwrap()),
        world
    ]
}

fn params() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..200)
}

fn clocks_of(boot: u16, time: u64) -> Clocks {
    let boot = u64::from(boot) + 1;
    Clocks { boot, shard_offset: time.cast_signed(), wall_offset: time.cast_signed() / 3 }
}

fn restored_of(time: u64, locked_until: Millis) -> Restored {
    Restored { allocated_at: Millis(time), local_at: Millis(time / 2), locked_until }
}

/// A record and its parameters, which are stored separately because a [`Record`] only borrows them.
#[expect(clippy::too_many_lines, reason = "one arm for each kind of record")]
fn record() -> impl Strategy<Value = (Record<'static>, Vec<u8>, Vec<u8>)> {
    let ids = (any::<u64>(), any::<u32>(), number(), any::<u64>(), any::<u64>());
    let options = (
        proptest::option::of(any::<[u8; 16]>()),
        proptest::option::of((any::<[u8; 16]>(), any::<u16>())),
        0..position(7, 0).0,
    );
    (0..8, ids, options, params(), params()).prop_map(|(kind, ids, options, first, second)| {
        let (pool, slot, number, time, until) = ids;
        let (visitor, row, previous) = options;
        let at = Millis(1_000 + time % 100_000);
        let pool = PoolId(pool);
        let until = Millis(until);
        // Group 1 is the first group, so positions in group 0 are replaced by `NONE`.
        let previous =
            if previous < position(1, 0).0 { Position::NONE } else { Position(previous) };
        let visitor = visitor.map(VisitorId);
        let idempotency = row.map(|(batch, row)| RowKey { batch, row });
        let none: [&'static [u8]; 2] = [&[], &[]];
        let record = match kind {
            0 => Record::Allocate {
                at,
                pool,
                slot,
                number,
                lockout: until,
                previous,
                was_doubted: until.0.is_multiple_of(2),
                visitor,
                idempotency,
                params: none,
            },
            1 => Record::Extend {
                at,
                number,
                slot,
                until,
                previous,
                allocation: if row.is_some() { previous } else { Position::NONE },
            },
            2 => {
                let restored = visitor.map(|_| restored_of(time, until));
                let forgotten = idempotency;
                Record::Release { at, number, slot, until, previous, restored, forgotten }
            }
            3 => Record::Answer {
                at,
                pool,
                row: idempotency.unwrap_or(RowKey { batch: [9; 16], row: 3 }),
                number: visitor.map(|_| number),
            },
            4 => Record::Carry {
                at,
                number,
                slot,
                pool,
                allocated_at: Millis(time),
                locked_until: until,
                clocks: row.map(|(_, boot)| clocks_of(boot, time)),
                visitor,
                params: none,
            },
            5 => Record::Adopt {
                at,
                number,
                pool,
                allocated_at: Millis(time),
                locked_until: until,
                local_at: Millis(time / 2),
                visitor,
                previous,
            },
            6 => Record::Hold { at, pool: visitor.map(|_| pool), until },
            _ => Record::Tick { at },
        };
        (record, first, second)
    })
}

fn with_params<'a>(record: Record<'a>, with: [&'a [u8]; 2]) -> Record<'a> {
    match record {
        Record::Allocate {
            at,
            pool,
            slot,
            number,
            lockout,
            previous,
            was_doubted,
            visitor,
            idempotency,
            ..
        } => Record::Allocate {
            at,
            pool,
            slot,
            number,
            lockout,
            previous,
            was_doubted,
            visitor,
            idempotency,
            params: with,
        },
        Record::Carry {
            at,
            number,
            slot,
            pool,
            allocated_at,
            locked_until,
            clocks,
            visitor,
            ..
        } => Record::Carry {
            at,
            number,
            slot,
            pool,
            allocated_at,
            locked_until,
            clocks,
            visitor,
            params: with,
        },
        other => other,
    }
}

proptest! {
    #[test]
    fn records_read_back_as_they_were_written(
        mut records in proptest::collection::vec(record(), 1..20)
    ) {
        let n = 7;
        records.sort_by_key(|(record, ..)| record.at());
        let base = records[0].0.at();
        let mut body = Body::default();
        let places: Vec<_> = records
            .iter()
            .map(|(record, first, second)| {
                let record = with_params(*record, [first, second]);
                let before = body.len();
                let place = record.encode(position(n, 0), base, &mut body);
                assert!(body.len() - before <= record.bytes_max());
                place
            })
            .collect();
        let read: Result<Vec<_>, _> = Records::new(n, base, body.as_slice()).collect();
        let read = read.unwrap();
        prop_assert_eq!(read.len(), records.len());
        for ((place, got), ((record, first, second), written)) in
            read.iter().zip(records.iter().zip(places))
        {
            let join = if first.is_empty() || second.is_empty() { &b""[..] } else { b"&" };
            let joined = [first, join, second].concat();
            prop_assert_eq!(*place, written);
            prop_assert_eq!(*got, with_params(*record, [&joined, &[]]));
            prop_assert_eq!(Records::new(n, base, body.as_slice()).at(written).unwrap(), *got);
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        n in any::<u64>(),
        base in any::<u64>(),
        body in proptest::collection::vec(any::<u8>(), 0..400),
        offset in any::<u64>(),
    ) {
        let records = Records::new(n, Millis(base), &body);
        let _ = records.at(Position(offset));
        let _ = records.at(Position((n << 20) | (offset % 400)));
        let _ = records.count();
    }

    #[test]
    fn no_damage_to_a_record_makes_the_reader_panic(
        (record, first, second) in record(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut gathering = Body::default();
        let record = with_params(record, [&first, &second]);
        record.encode(position(7, 0), Millis(1_000), &mut gathering);
        let mut body = gathering.take(Vec::new());
        let index = at.index(body.len());
        let cut = Records::new(7, Millis(1_000), &body[..index]).next();
        prop_assert!(cut.is_none_or(|result| result.is_err()));
        body[index] = value;
        let _ = Records::new(7, Millis(1_000), &body).count();
    }
}

#[test]
fn an_allocation_takes_about_twenty_bytes_before_its_parameters() {
    let record = Record::Allocate {
        at: Millis(1_700_000_000_250),
        pool: PoolId(150),
        slot: 75_000,
        number: PromoNumber::from_e164(18_005_550_142).unwrap(),
        lockout: Millis(3_600_000),
        previous: position(9_000, 20_000),
        was_doubted: false,
        visitor: None,
        idempotency: None,
        params: [b"utm_source=x", b""],
    };
    let mut body = Body::default();
    record.encode(position(10_000, 0), Millis(1_700_000_000_000), &mut body);
    assert_eq!(body.len() - b"utm_source=x".len(), 24);
}

#[test]
fn a_value_has_one_encoding() {
    // A tick whose time takes two bytes although one would be enough.
    let body = [kind::TICK, 0, 0x80, 0x00];
    let error = Records::new(1, Millis(0), &body).next().unwrap().unwrap_err();
    assert_eq!(error, DecodeError { n: 1, offset: 0, fault: DecodeFault::Short });
}

#[test]
fn a_record_earlier_than_its_predecessor_is_refused() {
    let body = [kind::TICK, 0, 5, kind::TICK, 0, 4];
    let read: Vec<_> = Records::new(1, Millis(100), &body).collect();
    assert_eq!(read[0].unwrap().1, Record::Tick { at: Millis(105) });
    assert_eq!(read[1].unwrap_err().fault, DecodeFault::Time);
    assert_eq!(read.len(), 2);
}

#[test]
fn unknown_kinds_and_flags_are_refused() {
    let fault = |body: &[u8]| Records::new(1, Millis(0), body).next().unwrap().unwrap_err().fault;
    assert_eq!(fault(&[0, 0, 0]), DecodeFault::Kind(0));
    assert_eq!(fault(&[9, 0, 0]), DecodeFault::Kind(9));
    assert_eq!(fault(&[kind::TICK, flag::POOL, 0]), DecodeFault::Flags(flag::POOL));
    assert_eq!(fault(&[kind::ALLOCATE, 0x80, 0]), DecodeFault::Flags(0x80));
}

/// Reads an allocation of number 2000000000 in pool 1, with slot 0 and lockout 0. It was made at
/// the base time.
fn read_allocation(flags: u8, rest: &[u8]) -> Result<(), DecodeFault> {
    let head = [kind::ALLOCATE, flags, 0, 0x00, 0x94, 0x35, 0x77, 0x00, 1, 0, 0];
    let body = [&head, rest].concat();
    let read = Records::new(3, Millis(0), &body).next().unwrap();
    read.map(|_| ()).map_err(|error| error.fault)
}

#[test]
fn positions_that_are_not_of_earlier_records_are_refused() {
    let read = |previous: &[u8]| read_allocation(flag::PREVIOUS, previous);
    assert_eq!(read(&[1, 5]), Ok(()), "offset 5 of the group before");
    assert_eq!(read(&[0, 0]), Err(DecodeFault::Previous), "the record itself");
    assert_eq!(read(&[0, 5]), Err(DecodeFault::Previous), "inside of the record");
    assert_eq!(read(&[3, 5]), Err(DecodeFault::Previous), "group 0");
    assert_eq!(read(&[1, 0x80, 0x80, 0x40]), Err(DecodeFault::Previous), "outside of a body");
}

#[test]
fn parameters_of_impossible_lengths_are_refused() {
    let read = |len: &[u8]| {
        let params = vec![b'x'; PARAMS_BYTES_MAX + 1];
        read_allocation(flag::PARAMS, &[len, &params].concat())
    };
    assert_eq!(read(&[0]), Err(DecodeFault::Params));
    assert_eq!(read(&[0x80, 0x80, 0x01]), Ok(()), "16,384");
    assert_eq!(read(&[0x81, 0x80, 0x01]), Err(DecodeFault::Params), "16,385");
}

#[test]
fn a_number_of_more_than_64_bits_is_refused() {
    let until = |record: &Record<'_>| match *record {
        Record::Hold { until, .. } => until,
        ref other => panic!("{other:?}"),
    };
    let hold = |last: u8| {
        let mut body = vec![kind::HOLD, 0, 0];
        body.extend([0xFF; 9]);
        body.push(last);
        let read = Records::new(1, Millis(0), &body).next().unwrap();
        read.map(|(_, record)| until(&record)).map_err(|error| error.fault)
    };
    assert_eq!(hold(1), Ok(Millis(u64::MAX)));
    assert_eq!(hold(2), Err(DecodeFault::Short));
}

/// Appends a release to group 7, whose base time is 100 ms. The release names `previous` as the
/// position of the record before it.
fn write_release(at: u64, previous: Position) {
    let number = PromoNumber::from_e164(12_000_000_000).unwrap();
    let (at, until) = (Millis(at), Millis(at));
    let (restored, forgotten) = (None, None);
    let release = Record::Release { at, number, slot: 0, until, previous, restored, forgotten };
    release.encode(position(7, 0), Millis(100), &mut Body::default());
}

#[test]
fn a_record_may_name_any_record_before_it() {
    write_release(100, Position::NONE);
    write_release(100, position(1, 0));
    write_release(100, position(6, BODY_BYTES_MAX - 1));
}

#[test]
#[should_panic(expected = "a record's time is before its group's")]
fn a_record_earlier_than_its_group_is_not_written() {
    write_release(99, position(1, 0));
}

#[test]
#[should_panic(expected = "the previous record's position is not before this one")]
fn a_record_that_follows_itself_is_not_written() {
    write_release(100, position(7, 0));
}

#[test]
#[should_panic(expected = "group numbers start at one")]
fn a_record_that_follows_one_of_group_0_is_not_written() {
    write_release(100, position(0, 5));
}

fn carry(params: [&[u8]; 2]) -> Record<'_> {
    Record::Carry {
        at: Millis(100),
        number: PromoNumber::from_e164(12_000_000_000).unwrap(),
        slot: 0,
        pool: PoolId(1),
        allocated_at: Millis(100),
        locked_until: Millis(100),
        clocks: None,
        visitor: None,
        params,
    }
}

#[test]
#[should_panic(expected = "parameters are too long for a record")]
fn unreadable_parameters_are_not_written() {
    let params = [b'x'; PARAMS_BYTES_MAX];
    // The parameters are one byte too long, because of the `&` between the slices.
    let carry = carry([&params[1..], b"y"]);
    carry.encode(position(7, 0), Millis(100), &mut Body::default());
}

#[test]
fn an_unreadable_body_is_reported_with_place_and_reason() {
    for (fault, words) in [
        (DecodeFault::Kind(9), "has the unknown kind 9"),
        (DecodeFault::Flags(0x80), "has unknown flags (0x80)"),
        (DecodeFault::Short, "is cut short"),
        (DecodeFault::Time, "is earlier than the record before it"),
        (DecodeFault::Number, "contains an invalid promo number"),
        (DecodeFault::Previous, "refers to a previous record that does not come before it"),
        (DecodeFault::Params, "has parameters of an impossible length"),
        (DecodeFault::Position, "does not exist"),
    ] {
        let error = DecodeError { n: 7, offset: 12, fault };
        let place = "the record at offset 12 in the body of frame 7";
        assert_eq!(error.to_string(), format!("{place} {words}"));
    }
}

#[test]
fn an_allocation_without_parameters_is_read_back() {
    let record = carry([b"", b""]);
    let mut body = Body::default();
    record.encode(position(7, 0), Millis(100), &mut body);
    let read = Records::new(7, Millis(100), body.as_slice()).next().unwrap();
    assert_eq!(read.unwrap().1, record);
}
