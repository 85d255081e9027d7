//! A journal's files in memory.

use std::collections::BTreeMap;
use std::convert::Infallible;

use ringwell_journal::{SegmentFile, Segments};

/// Segments in memory, by their numbers. Recovery only has a shared reference, so it cannot change
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(pub BTreeMap<u64, Vec<u8>>);

impl Segments for Files {
    type Error = Infallible;

    fn list(&self) -> Result<Vec<SegmentFile>, Infallible> {
        let file =
            |(&segno, file): (&u64, &Vec<u8>)| SegmentFile { segno, bytes: file.len() as u64 };
        Ok(self.0.iter().map(file).collect())
    }

    fn read_at(&self, segno: u64, offset: u64, out: &mut [u8]) -> Result<usize, Infallible> {
        let file = self.0.get(&segno).map_or(&[][..], Vec::as_slice);
        let rest = file.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}
