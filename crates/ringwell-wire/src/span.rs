//! A part of a text, by its offsets: rows move between threads without copying their text.

/// A range in a batch's text. Texts are shorter than 4 GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The empty span.
    pub const EMPTY: Self = Self { start: 0, end: 0 };

    /// From `start` up to but not including `end`. Limits keep texts far below 4 GiB; a range
    /// beyond that would be empty.
    #[inline]
    #[must_use]
    pub fn new(start: usize, end: usize) -> Self {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self { start: place(start), end: place(end) }
    }

    /// Like [`Self::new`], for offsets that are known to fit.
    #[inline]
    pub(crate) const fn between(start: u32, end: u32) -> Self {
        Self { start, end }
    }

    /// The text of the span; empty if `text` is not the text that the span was made for.
    #[inline]
    #[must_use]
    pub fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// The length in bytes.
    #[inline]
    #[must_use]
    pub const fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// Whether it is empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The offset of its first byte.
    #[inline]
    #[must_use]
    pub const fn start(self) -> usize {
        self.start as usize
    }

    /// The offset after its last byte.
    #[inline]
    #[must_use]
    pub const fn end(self) -> usize {
        self.end as usize
    }
}
