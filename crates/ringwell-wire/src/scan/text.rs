//! Reads pieces of JSON text, sixteen bytes at a time: spaces, strings, numbers and escapes.
//!
//! Each function takes the rest of the body, and returns the text after the piece. It returns
//! `None` if the text is malformed or ends within the piece.

use wide::{i8x16, u8x16};

/// The lowest byte that is skipped in a key. `"`, `%`, `&` and `+` are lower.
pub(crate) const FIRST_OF_KEY: u8 = b',';

/// The size in bytes of the blocks that strings are read in.
pub(crate) const BLOCK: usize = 16;

/// Returns the text after `fixed`, if `text` begins with `fixed`. The length of `fixed` is a
/// constant, so the compiler inlines the comparison.
#[expect(clippy::inline_always, reason = "called for each row by `usual::Reader::read`")]
#[inline(always)]
pub(super) fn after<'a, const N: usize>(text: &'a [u8], fixed: &[u8; N]) -> Option<&'a [u8]> {
    let (head, rest) = text.split_first_chunk::<N>()?;
    // The slices are needed because arrays whose length is not a power of two are compared piece by
    // piece.
    (head.as_slice() == fixed.as_slice()).then_some(rest)
}

/// Skips ASCII bytes that are neither less than `first` nor a backslash. Returns the rest, which
/// begins with the first other byte, or `None` if there is no such byte.
#[expect(clippy::inline_always, reason = "so that `first` is a constant in `usual::Reader::read`")]
#[inline(always)]
pub(crate) fn pass(text: &[u8], first: u8) -> Option<&[u8]> {
    let mut rest = text;
    while let Some((block, behind)) = rest.split_first_chunk() {
        let stops = stops_below(i8x16::new(block.map(u8::cast_signed)), first);
        if stops != 0 {
            return rest.get(stops.trailing_zeros() as usize..);
        }
        rest = behind;
    }
    let stops = |byte: &u8| *byte < first || *byte == b'\\' || !byte.is_ascii();
    rest.get(rest.iter().position(stops)?..)
}

/// Marks the bytes of a block that are less than `first`, a backslash or not ASCII.
#[expect(clippy::inline_always, reason = "called for each block in two loops")]
#[inline(always)]
fn stops_below(block: i8x16, first: u8) -> u32 {
    // As signed bytes, non-ASCII bytes are less than any ASCII byte.
    let less = i8x16::splat(first.cast_signed()).simd_gt(block);
    (less | block.simd_eq(i8x16::splat(b'\\'.cast_signed()))).to_bitmask()
}

/// Like [`pass`], for a query that begins with an `&`. Also returns whether the query may contain
/// `ring_pool_key` or `ringwell_visitor`, which both begin with `r`.
#[expect(clippy::inline_always, reason = "so that `first` is a constant in `usual::Reader::read`")]
#[inline(always)]
pub(super) fn pass_params(text: &[u8], first: u8) -> Option<(&[u8], bool)> {
    let mut rest = text;
    let mut ours = u8x16::ZERO;
    // The window is one byte longer than a block, because the block's last byte may be an `&`.
    while let Some(window) = rest.first_chunk::<{ BLOCK + 1 }>() {
        let (block, next): (&[u8; BLOCK], &[u8; BLOCK]) =
            (window.first_chunk()?, window.last_chunk()?);
        // The bytes are unsigned, because the compiler would load signed bytes one by one and shift
        // them.
        ours |= u8x16::new(*block).simd_eq(u8x16::splat(b'&'))
            & u8x16::new(*next).simd_eq(u8x16::splat(b'r'));
        let stops = stops_below(i8x16::new(block.map(u8::cast_signed)), first);
        if stops != 0 {
            let behind = rest.get(stops.trailing_zeros() as usize..)?;
            return Some((behind, ours.to_bitmask() != 0));
        }
        rest = rest.get(BLOCK..)?;
    }
    // The rest is shorter than a window. It is too short to contain both the batch's end and
    // `ring_pool_key` or `ringwell_visitor`.
    Some((pass(rest, first)?, ours.to_bitmask() != 0))
}

/// Skips white space.
#[expect(clippy::inline_always, reason = "nearly always, at most one space is skipped")]
#[inline(always)]
pub(super) fn blanks(text: &[u8]) -> &[u8] {
    match text {
        [first, ..] if *first > b' ' => text,
        // Most programs write one space after a colon or a comma.
        [b' ', second, ..] if *second > b' ' => &text[1..],
        _ => many_blanks(text),
    }
}

#[inline(never)]
fn many_blanks(text: &[u8]) -> &[u8] {
    const SPACES: u64 = u64::from_le_bytes([b' '; 8]);
    let mut rest = text;
    while let [b' ' | b'\n' | b'\r' | b'\t', behind @ ..] = rest {
        rest = behind;
        // Indented lines begin with several spaces.
        while let Some((eight, behind)) = rest.split_first_chunk() {
            let others = u64::from_le_bytes(*eight) ^ SPACES;
            if others != 0 {
                rest = &rest[(others.trailing_zeros() / 8) as usize..];
                break;
            }
            rest = behind;
        }
    }
    rest
}

/// Marks the bytes of a block that are not plain ASCII text: quotes, backslashes, control
/// characters and bytes greater than 127.
#[expect(clippy::inline_always, reason = "called for each block in two loops")]
#[inline(always)]
fn stops(block: [u8; BLOCK]) -> u32 {
    let block = i8x16::new(block.map(u8::cast_signed));
    // As signed bytes, non-ASCII bytes are less than any ASCII byte.
    let less = i8x16::splat(0x20).simd_gt(block);
    let quotes = block.simd_eq(i8x16::splat(b'"'.cast_signed()));
    let escapes = block.simd_eq(i8x16::splat(b'\\'.cast_signed()));
    (less | quotes | escapes).to_bitmask()
}

/// Skips plain text. The rest begins with a quote, a backslash or a control character. The skipped
/// bytes are valid UTF-8.
#[inline]
pub(super) fn plain(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    while let Some((block, behind)) = rest.split_first_chunk() {
        let stops = stops(*block);
        if stops != 0 {
            rest = rest.get(stops.trailing_zeros() as usize..)?;
            return if rest.first()?.is_ascii() { Some(rest) } else { foreign(rest) };
        }
        rest = behind;
    }
    foreign(rest)
}

/// Like [`plain`], for text that is not ASCII or is near the end of the body.
#[inline(never)]
fn foreign(text: &[u8]) -> Option<&[u8]> {
    let is_end = |byte: &u8| matches!(byte, 0..0x20 | b'"' | b'\\');
    let (plain, rest) = text.split_at(text.iter().position(is_end)?);
    str::from_utf8(plain).is_ok().then_some(rest)
}

/// Skips a string and the closing quote. Escapes are checked but not decoded. Surrogates are not
/// checked: the JSON library does not check them either if it keeps a value unchanged.
pub(super) fn string(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    loop {
        rest = plain(rest)?;
        match rest {
            [b'"', behind @ ..] => return Some(behind),
            [b'\\', b'u', behind @ ..] => {
                hex(behind)?;
                rest = behind.get(4..)?;
            }
            [b'\\', name, behind @ ..] => {
                simple(*name)?;
                rest = behind;
            }
            _ => return None,
        }
    }
}

/// Skips a number.
pub(super) fn number(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let mut rest = digits(text)?;
    if text[0] == b'0' && text.len() - rest.len() > 1 {
        return None;
    }
    if let [b'.', behind @ ..] = rest {
        rest = digits(behind)?;
    }
    if let [b'e' | b'E', behind @ ..] = rest {
        let behind = match behind {
            [b'+' | b'-', behind @ ..] => behind,
            _ => behind,
        };
        rest = digits(behind)?;
    }
    Some(rest)
}

/// Skips one or more digits.
#[inline]
fn digits(text: &[u8]) -> Option<&[u8]> {
    let count = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    (count > 0).then(|| &text[count..])
}

/// The count of bytes that [`decode`] reads in one step: a block, and an escape that begins at the
/// end of the block.
const WINDOW: usize = 2 * BLOCK;
/// The count of bytes that are free after the decoded text each time the buffer is enlarged.
const ROOM: usize = 256;

/// Decodes the string at the beginning of `text`. Writes it to `out` from the offset `to` onward,
/// over the existing contents. Leaves space for one window after the decoded string. Returns the
/// rest of `text`, which begins with the closing quote, and the end of the decoded string in `out`.
/// The decoded string is valid UTF-8, and never longer than the original string.
#[expect(clippy::inline_always, reason = "there is only one caller")]
#[inline(always)]
pub(super) fn decode<'a>(
    text: &'a [u8],
    out: &mut Vec<u8>,
    mut to: usize,
) -> Option<(&'a [u8], usize)> {
    let mut rest = text;
    loop {
        if out.len() < to + WINDOW {
            out.resize(to + ROOM, 0);
        }
        let Some(window) = rest.first_chunk::<WINDOW>() else {
            return decode_slowly(rest, out, to);
        };
        let written: &mut [u8; WINDOW] = out.get_mut(to..)?.first_chunk_mut()?;
        let block: [u8; BLOCK] = *window.first_chunk()?;
        // Copies the whole block, because its size is a constant. The surplus bytes are
        // overwritten.
        *written.first_chunk_mut()? = block;
        let stops = stops(block);
        if stops == 0 {
            (rest, to) = (&rest[BLOCK..], to + BLOCK);
            continue;
        }
        // The remainder does not change the value, but shows the compiler that the index is within
        // the window.
        let length = stops.trailing_zeros() as usize % BLOCK;
        if window[length] == b'"' {
            return Some((&rest[length..], to + length));
        }
        let escape: &[u8; 6] = window[length..].first_chunk()?;
        if let Some((character, used)) = ascii(escape) {
            written[length] = character;
            (rest, to) = (&rest[length + used..], to + length + 1);
        } else {
            (rest, to) = rare(&rest[length..], out, to + length)?;
        }
    }
}

/// Decodes a slash, which PHP escapes, or an ASCII character in the form `\u0026`, which Go writes
/// for an ampersand.
#[expect(clippy::inline_always, reason = "called for each escape by `decode`")]
#[inline(always)]
fn ascii(escape: &[u8; 6]) -> Option<(u8, usize)> {
    let [b'\\', name, _, _, high, low] = *escape else { return None };
    if name == b'/' {
        return Some((b'/', 2));
    }
    let code = nibble(high) << 4 | nibble(low);
    (escape.starts_with(b"\\u00") && code < 0x80).then_some((code.to_le_bytes()[0], 6))
}

/// Like [`decode`], but piece by piece, for the end of the body.
#[inline(never)]
fn decode_slowly<'a>(text: &'a [u8], out: &mut Vec<u8>, to: usize) -> Option<(&'a [u8], usize)> {
    let (mut rest, mut to) = (text, to);
    while *rest.first()? != b'"' {
        (rest, to) = rare(rest, out, to)?;
    }
    out.resize(to + ROOM, 0);
    Some((rest, to))
}

/// Decodes one escape, or copies plain text. One of the two must be present.
#[inline(never)]
fn rare<'a>(text: &'a [u8], out: &mut Vec<u8>, to: usize) -> Option<(&'a [u8], usize)> {
    out.truncate(to);
    let [b'\\', name, behind @ ..] = text else {
        let rest = foreign(text)?;
        out.extend_from_slice(&text[..text.len() - rest.len()]);
        return (rest.len() < text.len()).then_some((rest, out.len()));
    };
    if *name != b'u' {
        out.push(simple(*name)?);
        return Some((behind, out.len()));
    }
    let first = hex(behind)?;
    let mut rest = behind.get(4..)?;
    let code = match first {
        0xD800..=0xDBFF => {
            let low = after(rest, b"\\u")?;
            let second = hex(low)?.checked_sub(0xDC00).filter(|second| *second < 0x400)?;
            rest = low.get(4..)?;
            0x1_0000 + ((first - 0xD800) << 10) + second
        }
        _ => first,
    };
    // One half of a surrogate pair alone is not a character.
    out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
    Some((rest, out.len()))
}

/// Returns the character that an escape of two bytes stands for.
fn simple(name: u8) -> Option<u8> {
    Some(match name {
        b'"' | b'\\' | b'/' => name,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        _ => return None,
    })
}

/// Four hexadecimal digits.
fn hex(text: &[u8]) -> Option<u32> {
    let digits: [u16; 4] = text.first_chunk::<4>()?.map(nibble);
    let code = digits.iter().fold(0, |code, digit| code << 4 | u32::from(*digit));
    digits.iter().all(|digit| *digit != NO_NIBBLE).then_some(code)
}

/// Returns the value of a hexadecimal digit, or [`NO_NIBBLE`].
#[inline]
fn nibble(digit: u8) -> u16 {
    NIBBLES[usize::from(digit)]
}

/// Marks a byte that is not a hexadecimal digit. If either of two digits has this value, their
/// combined value does not fit into a byte.
const NO_NIBBLE: u16 = 0x100;

/// The value of each hexadecimal digit, indexed by the digit's byte.
static NIBBLES: [u16; 256] = {
    let mut nibbles = [NO_NIBBLE; 256];
    let mut value = 0_u16;
    while value < 16 {
        nibbles[b"0123456789abcdef"[value as usize] as usize] = value;
        nibbles[b"0123456789ABCDEF"[value as usize] as usize] = value;
        value += 1;
    }
    nibbles
};
