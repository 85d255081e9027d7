//! The records in a group's body, without the checksums that protect them on a disk.

use ringwell_core::Millis;
use ringwell_journal::{Record, Records, Tip, Writer, position};

use crate::memory::bounded;

/// The number of the group that the body is assumed to belong to.
const N: u64 = 9;
const BASE: Millis = Millis(1_700_000_000_000);

/// Checks any body: readable records are written back as the same bytes, and reading at a position
/// without a record does not panic.
pub fn record(body: &[u8]) {
    let read = || Records::new(N, BASE, body).collect::<Result<Vec<_>, _>>();
    let records = bounded(body.len(), 400, read);
    for offset in (0..body.len()).step_by(1 + body.len() / 64) {
        // Reading at an arbitrary position may return a record or an error, but must not panic.
        let _ = Records::new(N, BASE, body).at(position(N, offset));
    }
    let Ok(records) = records else { return };
    let tip = Tip { next_n: N, last_at: BASE, ..Tip::FIRST };
    let mut writer = Writer::new(tip);
    for (place, record) in &records {
        assert!(writer.has_room(record.bytes_max()));
        let before = writer.pending_bytes();
        let written = writer.append(record);
        assert!(writer.pending_bytes() - before <= record.bytes_max());
        if begins_with_group(&records) {
            assert_eq!(written, *place);
            assert_eq!(Records::new(N, BASE, body).at(*place).as_ref(), Ok(record));
        }
    }
    let Some(group) = writer.seal(Vec::new()) else { return };
    if begins_with_group(&records) {
        assert_eq!(group.body, body, "a value has two encodings");
    }
    let again: Result<Vec<_>, _> = group.records().map(|r| r.map(|(_, record)| record)).collect();
    let wanted: Vec<_> = records.iter().map(|(_, record)| *record).collect();
    // If the first record's time differs from the group's time, the records may be written at other
    // positions, so their `previous` may differ too.
    assert!(!begins_with_group(&records) || again == Ok(wanted));
}

/// Whether the first record's time equals the group's time. A writer always makes them equal, but a
/// reader accepts any time.
fn begins_with_group(records: &[(ringwell_core::Position, Record<'_>)]) -> bool {
    records.first().is_some_and(|(_, record)| record.at() == BASE)
}
