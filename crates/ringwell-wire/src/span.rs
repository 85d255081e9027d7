//! A part of a text, represented by its offsets. Rows contain spans instead of text, so moving a
//! row to another thread copies no text.

/// A range of bytes in a batch's text. Texts are shorter than 4 GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The empty span.
    pub const EMPTY: Self = Self { start: 0, end: 0 };

    /// Returns the span from `start` up to but not including `end`. Limits keep texts far below 4
    /// GiB. An offset that does not fit into 32 bits becomes `u32::MAX`.
    #[inline]
    #[must_use]
    pub fn new(start: usize, end: usize) -> Self {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self { start: place(start), end: place(end) }
    }

    /// Like [`Self::new`], for offsets that are known to fit into 32 bits.
    #[inline]
    pub(crate) const fn between(start: u32, end: u32) -> Self {
        Self { start, end }
    }

    /// Returns the text of the span. The result may be empty if the span was made for another text.
    #[inline]
    #[must_use]
    pub fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// The length of the span in bytes.
    #[inline]
    #[must_use]
    pub const fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// Whether the span is empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The offset of the first byte.
    #[inline]
    #[must_use]
    pub const fn start(self) -> usize {
        self.start as usize
    }

    /// The offset after the last byte.
    #[inline]
    #[must_use]
    pub const fn end(self) -> usize {
        self.end as usize
    }
}
