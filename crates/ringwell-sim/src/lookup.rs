//! A look-up of who held a number: as `ringwell-node/src/lookup.rs`.

use ringwell_core::PromoNumber;
use ringwell_engine::{Clocks, Missing, Moment, Past, Step};
use ringwell_journal::position_parts;

use crate::disk::Disk;
use crate::store::Unread;
use crate::thread::Thread;

pub(crate) fn attribution(
    thread: &Thread,
    disk: &Disk,
    number: u64,
    at: Moment,
    clocks: Clocks,
) -> Result<Past, &'static str> {
    let number = PromoNumber::from_code(number).ok_or("no promo number")?;
    let (mut walk, mut step) = thread.engine.attribution(number, at);
    let shift = |then| thread.store.wall_less_shard(then, clocks);
    loop {
        let position = match step {
            Step::Done(past) => return Ok(past),
            Step::Read(position) => position,
        };
        let pending = thread.engine.pending_record(position);
        let pending = pending.map(|record| walk.feed(&record, shift(record.clocks(Some(clocks)))));
        let fed = if let Some(fed) = pending {
            fed
        } else {
            match thread.store.read_group(disk, position_parts(position).0) {
                Ok(group) => {
                    let record = group.record(position).map_err(|_| "a record cannot be read")?;
                    walk.feed(&record, shift(record.clocks(group.header.clocks)))
                }
                Err(Unread::Gone) => return Ok(walk.end(Missing::NotKept)),
                Err(Unread::NotYet | Unread::Damaged) => return Err("a group cannot be read"),
            }
        };
        step = fed.map_err(|_| "the history leads to a record of another number")?;
    }
}
