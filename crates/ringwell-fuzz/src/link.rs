//! The frames that nodes exchange.

use ringwell_mesh::frame::{
    AskRow, Limits, read_answer, read_ask, read_ping, read_unanswered, write_answer, write_ask,
    write_ping, write_unanswered,
};

use crate::memory::bounded;

/// A row of an answer takes at most 64 times as many bytes in memory as in the frame.
const MEMORY_TIMES: u64 = 64;

/// Reads any bytes as each kind of frame. Checks that each value has only one encoding, and that
/// the frame's length bounds the allocated memory. The first byte is the row count of the request
/// that an answer frame belongs to.
pub fn link(bytes: &[u8]) {
    let Some((&wanted, frame)) = bytes.split_first() else { return };
    for limits in [Limits::default(), Limits { rows_max: 2, params_bytes_max: 20 }] {
        let read = || read_ask(frame, &limits);
        if let Ok((ask, rows)) = bounded(frame.len(), MEMORY_TIMES, read) {
            assert!(rows.len() <= limits.rows_max && frame.len() <= limits.frame_bytes_max());
            let mut out = Vec::new();
            let rows = rows.iter().map(|row| AskRow {
                pool: row.pool,
                row: row.row,
                params: row.params.clone().map(|range| &frame[range]),
                visitor: row.visitor,
            });
            write_ask(&mut out, &ask, rows);
            assert_eq!(out, frame);
        }
        let read = || read_unanswered(frame, &limits);
        if let Ok(unanswered) = bounded(frame.len(), MEMORY_TIMES, read) {
            assert!(unanswered.numbers.len() <= limits.rows_max);
            let mut out = Vec::new();
            write_unanswered(&mut out, &unanswered);
            assert_eq!(out, frame);
        }
    }
    let rows = usize::from(wanted);
    if let Ok(answer) = bounded(frame.len(), MEMORY_TIMES, || read_answer(frame, rows)) {
        assert_eq!(answer.rows.len(), rows);
        let mut out = Vec::new();
        write_answer(&mut out, &answer);
        assert_eq!(out, frame);
        assert!(frame.len() <= ringwell_mesh::frame::Answer::bytes_max(rows));
    }
    if let Ok(shard) = read_ping(frame) {
        let mut out = Vec::new();
        write_ping(&mut out, shard);
        assert_eq!(out, frame);
    }
}
