//! The ids of traces and spans, and the header that contains them (W3C Trace Context, level 1).

use std::fmt;

/// The id of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId([u8; 16]);

/// The header's name.
pub const TRACEPARENT: &str = "traceparent";

/// The number of bytes in a trace id and a span id together.
const PLACE_BYTES: usize = 24;

/// The context of a span in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The id of the trace.
    pub trace: TraceId,
    /// The id of the span.
    pub span: [u8; 8],
    /// Whether the trace is recorded.
    pub is_sampled: bool,
}

impl TraceId {
    /// Derives an id from an object's name. The same name always results in the same id.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        // FNV-1a is sufficient, because ids must differ but need not be secret.
        let hash =
            name.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
                (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
            });
        Self((hash | 1).to_be_bytes())
    }

    /// Creates a random id. Returns `None` if no random bytes are available.
    #[must_use]
    pub fn random() -> Option<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).ok()?;
        bytes[15] |= 1;
        Some(Self(bytes))
    }

    /// The number that decides whether the trace is sampled.
    pub(crate) fn sum(self) -> u64 {
        let (high, low) = self.0.split_at(8);
        let half = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        // Drops the lowest bit, because it is not random.
        (half(high) ^ half(low)) >> 1
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl Context {
    /// Creates a span in a recorded trace. Returns `None` if no random bytes are available.
    pub(crate) fn within(trace: TraceId) -> Option<Self> {
        let mut span = [0; 8];
        getrandom::fill(&mut span).ok()?;
        span[7] |= 1;
        Some(Self { trace, span, is_sampled: true })
    }

    /// Restores the context of a span in a recorded trace from the bytes that [`Self::place`]
    /// returned.
    #[must_use]
    pub fn kept(place: [u8; PLACE_BYTES]) -> Self {
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&place[..16]);
        span.copy_from_slice(&place[16..]);
        Self { trace: TraceId(trace), span, is_sampled: true }
    }

    /// The ids of the trace and the span as bytes, which can be sent to another node.
    #[must_use]
    pub fn place(&self) -> [u8; PLACE_BYTES] {
        let mut place = [0; PLACE_BYTES];
        place[..16].copy_from_slice(&self.trace.0);
        place[16..].copy_from_slice(&self.span);
        place
    }

    /// Parses the value of `traceparent`. In later versions of the header, more fields may follow
    /// the first four.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.trim().split('-');
        let version: [u8; 1] = bytes(fields.next()?)?;
        let (trace, span): ([u8; 16], [u8; 8]) = (bytes(fields.next()?)?, bytes(fields.next()?)?);
        let flags: [u8; 1] = bytes(fields.next()?)?;
        let is_whole = version[0] != 0xff && (version[0] > 0 || fields.next().is_none());
        let is_given = trace != [0; 16] && span != [0; 8];
        (is_whole && is_given).then_some(Self {
            trace: TraceId(trace),
            span,
            is_sampled: flags[0] & 1 == 1,
        })
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, is_sampled } = self;
        write!(f, "00-{trace}-{}-0{}", hex(span), u8::from(*is_sampled))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// Parses hexadecimal digits. Accepts only lower case, as W3C Trace Context requires.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | value;
        }
    }
    Some(bytes)
}

#[cfg(test)]
#[test]
fn a_header_is_read_by_the_standard_and_written_the_same() {
    let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let context = Context::parse(text).unwrap();
    assert_eq!(context.to_string(), text);
    assert_eq!(Context::kept(context.place()), context);
    assert!(Context::parse(&text.replace("00-0af", "01-0af")).is_some());
    assert!(Context::parse(&format!("{}-more", text.replace("00-0af", "cc-0af"))).is_some());
    for wrong in [
        "",
        "-",
        "00",
        &text[..54],
        &format!("{text}-more"),
        &text.replace("00-0af", "ff-0af"),
        &text.to_uppercase(),
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319ü-b7ad6b7169203331-01",
    ] {
        assert_eq!(Context::parse(wrong), None, "{wrong}");
    }
    assert_eq!(TraceId::of(b"c_1"), TraceId::of(b"c_1"));
    assert_ne!(TraceId::of(b"c_1"), TraceId::of(b"c_2"));
}
