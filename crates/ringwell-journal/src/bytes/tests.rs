use super::*;

/// A simple reference encoder for varints: seven bits per byte, the lowest first, with the highest
/// bit set in every byte but the last.
fn leb128(value: u64) -> Vec<u8> {
    let last = (0..10).rev().find(|at| value >> (7 * at) > 0).unwrap_or(0);
    let part =
        |at: u32| u8::try_from(value >> (7 * at) & 0x7F).unwrap() + u8::from(at < last) * 0x80;
    (0..=last).map(part).collect()
}

/// Every power of two with values near it, and some other values. These include the values at which
/// the encoding becomes longer.
fn values() -> impl Iterator<Item = u64> {
    let powers = (0..64).map(|bits| 1_u64 << bits);
    let near = powers.flat_map(|power| [power - 1, power, power + 1, power | power >> 1]);
    near.chain([u64::MAX, 0x0123_4567_89AB_CDEF, 0x0555_5555, 0x0AAA_AAAA])
}

#[test]
fn a_varint_has_seven_bits_a_byte_and_is_read_back() {
    for value in values() {
        let mut bytes = [0; ROOM];
        let mut scratch = Scratch::new(&mut bytes);
        scratch.byte(0xEE);
        scratch.varint(value);
        let end = scratch.len();
        scratch.array(b"next");
        assert_eq!(scratch.len(), end + 4);
        scratch.set(0, 0xDD);
        let wanted = [&[0xDD], leb128(value).as_slice(), b"next"].concat();
        assert_eq!(bytes[..end + 4], wanted, "{value}");
        let mut cursor = Cursor::new(&bytes[1..]);
        assert_eq!(cursor.varint(), Some(value));
        assert_eq!(cursor.remaining(), ROOM - end);
        let narrow = Cursor::new(&bytes[1..]).varint_u32();
        assert_eq!(narrow, u32::try_from(value).ok(), "{value}");
    }
}

#[test]
fn a_varint_that_is_longer_than_necessary_or_too_long_is_refused() {
    for value in values() {
        let mut longer = leb128(value);
        *longer.last_mut().unwrap() |= 0x80;
        longer.push(0);
        assert_eq!(Cursor::new(&longer).varint(), None, "{value} with a zero more");
        let cut = leb128(value).len() - 1;
        assert_eq!(Cursor::new(&leb128(value)[..cut]).varint(), None, "{value} without its end");
    }
    let all_bits = [[0xFF; 9].as_slice(), &[0x01]].concat();
    assert_eq!(Cursor::new(&all_bits).varint(), Some(u64::MAX));
    let more = [[0xFF; 9].as_slice(), &[0x02]].concat();
    assert_eq!(Cursor::new(&more).varint(), None, "65 bits");
    assert_eq!(Cursor::new(&[0xFF; 12]).varint(), None, "it does not end");
}

#[test]
fn the_bytes_are_present_and_the_lowest_comes_first() {
    let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    assert_eq!(Cursor::new(&bytes).byte(), Some(1));
    assert_eq!(Cursor::new(&bytes).u16(), Some(0x0201));
    assert_eq!(Cursor::new(&bytes).u32(), Some(0x0403_0201));
    assert_eq!(Cursor::new(&bytes).u64(), Some(0x0807_0605_0403_0201));
    assert_eq!(Cursor::new(&bytes).uint::<3>(), Some(0x03_0201));
    assert_eq!(Cursor::new(&bytes).uint::<9>(), None, "more than 64 bits");
    let mut cursor = Cursor::new(&bytes);
    assert_eq!(cursor.slice(7), Some(&bytes[..7]));
    assert_eq!((cursor.slice(3), cursor.u32(), cursor.uint::<3>()), (None, None, None));
    assert_eq!((cursor.remaining(), cursor.array()), (2, Some([8, 9])));
    assert_eq!((cursor.remaining(), cursor.byte()), (0, None));
}

/// Returns the bytes that `write` appends after a first byte.
fn written(write: impl FnOnce(&mut Scratch<'_>)) -> Vec<u8> {
    let mut bytes = [0; ROOM];
    let mut scratch = Scratch::new(&mut bytes);
    scratch.byte(0xEE);
    write(&mut scratch);
    let end = scratch.len();
    bytes[1..end].to_vec()
}

#[test]
fn reading_two_varints_at_once_equals_reading_both_in_turn() {
    let values: Vec<(u64, Vec<u8>)> = values().map(|value| (value, leb128(value))).collect();
    for (first, its_bytes) in &values {
        for (second, bytes) in &values {
            let wanted = [its_bytes.as_slice(), bytes].concat();
            assert_eq!(written(|scratch| scratch.varints(*first, *second)), wanted);
        }
    }
}

#[test]
fn a_varint_that_is_expected_to_be_small_may_have_any_length() {
    for value in values() {
        assert_eq!(written(|scratch| scratch.small_varint(value)), leb128(value), "{value}");
    }
}

#[test]
fn five_bytes_are_the_lowest_and_the_rest_follows() {
    let bytes = written(|scratch| {
        scratch.five_bytes(0x0807_0605_0403_0201);
        scratch.array(&[0xAA; 3]);
    });
    assert_eq!(bytes, [1, 2, 3, 4, 5, 0xAA, 0xAA, 0xAA]);
}

/// Writes `pieces` pieces of increasing length. Returns the written bytes, and the number of times
/// that the buffer of `body` had to grow.
fn gather(body: &mut Body, pieces: u8) -> (Vec<u8>, usize) {
    let (mut wanted, mut grown) = (Vec::new(), 0);
    for piece in 0..pieces {
        let len = usize::from(piece) * 30;
        let before = body.bytes.len();
        body.room(len)[..len].fill(piece);
        grown += usize::from(body.bytes.len() > before);
        body.advance(len);
        wanted.extend(vec![piece; len]);
    }
    (wanted, grown)
}

#[test]
fn a_body_equals_what_was_written_whatever_its_spare_buffer_contained() {
    let mut body = Body::default();
    for spare in [Vec::new(), vec![0xAA; 100_000], vec![0xBB; 10]] {
        assert!(body.is_empty() && body.as_slice().is_empty());
        let (wanted, _) = gather(&mut body, 200);
        assert!(!body.is_empty() && body.as_slice() == wanted);
        assert!(body.len() == wanted.len() && body.take(spare) == wanted);
    }
}

#[test]
fn a_body_is_filled_as_far_as_needed_moves_seldom_and_starts_as_large_as_the_last_one() {
    let mut body = Body::default();
    let (mut moves, mut capacity) = (0, 0);
    for _ in 0..10_000 {
        body.room(60);
        body.advance(60);
        moves += usize::from(body.bytes.capacity() != capacity);
        capacity = body.bytes.capacity();
        assert!(body.bytes.len() <= body.len() + 60 + Body::GROWTH, "{}", body.bytes.len());
    }
    assert!((2..=9).contains(&moves), "{moves} times");
    let _ = body.take(Vec::new());
    let (wanted, grown) = gather(&mut body, 200);
    assert_eq!(
        (wanted.len(), grown),
        (597_000, 1),
        "the room of the previous group is available at once"
    );
}
