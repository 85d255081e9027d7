//! A look-up of who held a number: as `ringwell-node/src/lookup.rs`.

use ringwell_core::{Millis, PromoNumber};
use ringwell_engine::{Held, Step};
use ringwell_journal::position_parts;

use crate::disk::Disk;
use crate::store::Unread;
use crate::thread::Thread;

pub(crate) fn attribution(
    thread: &Thread,
    disk: &Disk,
    number: u64,
    at_ms: u64,
) -> Result<Option<Held>, &'static str> {
    let number = PromoNumber::from_u64(number).ok_or("no promo number")?;
    let (mut walk, mut step) = thread.engine.attribution(number, Millis(at_ms));
    loop {
        let position = match step {
            Step::Done(held) => return Ok(held),
            Step::Read(position) => position,
        };
        let pending = thread.engine.pending_record(position).map(|record| walk.feed(&record));
        let fed = if let Some(fed) = pending {
            fed
        } else {
            match thread.store.read_group(disk, position_parts(position).0) {
                Ok(group) => {
                    walk.feed(&group.record(position).map_err(|_| "a record cannot be read")?)
                }
                Err(Unread::Gone) => return Ok(walk.end()),
                Err(Unread::NotYet | Unread::Damaged) => return Err("a group cannot be read"),
            }
        };
        step = fed.map_err(|_| "the history leads to a record of another number")?;
    }
}
