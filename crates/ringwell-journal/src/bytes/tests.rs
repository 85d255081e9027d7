use super::*;

/// Seven bits a byte, lowest first, the highest bit set in all but the last: said plainly.
fn leb128(value: u64) -> Vec<u8> {
    let last = (0..10).rev().find(|at| value >> (7 * at) > 0).unwrap_or(0);
    let part =
        |at: u32| u8::try_from(value >> (7 * at) & 0x7F).unwrap() + u8::from(at < last) * 0x80;
    (0..=last).map(part).collect()
}

/// Every power of two with its neighbours: wherever an encoding gets longer, and bits lie.
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
fn a_varint_that_is_longer_than_it_need_be_or_too_long_is_none() {
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
fn what_is_read_is_there_and_the_lowest_byte_comes_first() {
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
