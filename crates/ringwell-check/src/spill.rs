//! Stores facts in unnamed files until their part is judged.
//!
//! Owns the assignment of facts to parts. Does not interpret the facts. The contents of a part are
//! returned in the order in which they were stored.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _};

use crate::history::{Fact, Part};

/// The size of each part's write buffer, in bytes.
const BUFFER: usize = 1 << 16;

/// The files, one per part.
pub(crate) struct Spill {
    parts: Vec<BufWriter<File>>,
    frame: Vec<u8>,
}

impl Spill {
    /// Creates `parts` files, at least one, in the directory for temporary files.
    pub(crate) fn new(parts: usize) -> io::Result<Self> {
        let file = || Ok(BufWriter::with_capacity(BUFFER, tempfile::tempfile()?));
        let parts = (0..parts.max(1)).map(|_| file()).collect::<io::Result<_>>()?;
        Ok(Self { parts, frame: Vec::new() })
    }

    /// Stores a fact in the part that `by` selects; facts with the same `by` are in the same part.
    pub(crate) fn put(&mut self, by: u64, fact: &Fact) -> io::Result<()> {
        self.frame.clear();
        self.frame = postcard::to_extend(fact, std::mem::take(&mut self.frame))
            .map_err(|error| io::Error::other(error.to_string()))?;
        let index = index(by, self.parts.len());
        let part = &mut self.parts[index];
        let length = u32::try_from(self.frame.len()).map_err(io::Error::other)?;
        part.write_all(&length.to_le_bytes())?;
        part.write_all(&self.frame)
    }

    /// The count of parts.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Passes every fact of a part to `take`. A part may be read more than once.
    pub(crate) fn each(&mut self, part: usize, mut take: impl FnMut(Fact)) -> io::Result<()> {
        let part = &mut self.parts[part];
        part.flush()?;
        part.get_mut().rewind()?;
        let mut file = BufReader::with_capacity(BUFFER, part.get_ref());
        let (mut length, mut frame) = ([0; 4], Vec::new());
        loop {
            match file.read_exact(&mut length) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
            frame.resize(u32::from_le_bytes(length) as usize, 0);
            file.read_exact(&mut frame)?;
            let fact = postcard::from_bytes(&frame);
            take(fact.map_err(|error| io::Error::other(error.to_string()))?);
        }
    }

    /// A part with all its facts.
    pub(crate) fn part(&mut self, part: usize) -> io::Result<Part> {
        let mut facts = Part::default();
        self.each(part, |fact| match fact {
            Fact::Row(row) => facts.rows.push(row),
            Fact::Record(record) => facts.records.push(record),
            Fact::Lookup(lookup) => facts.lookups.push(lookup),
            Fact::Held(held) => facts.held.push(held),
            Fact::Span(span) => facts.spans.push(span),
        })?;
        Ok(facts)
    }
}

/// A pool's numbers are consecutive; the multiplication spreads them over the parts.
fn index(by: u64, parts: usize) -> usize {
    let spread = by.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(spread).unwrap_or(0) % parts
}
