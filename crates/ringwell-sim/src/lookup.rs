//! A look-up of who held a number: as `ringwell-node/src/lookup.rs`.

use ringwell_core::PromoNumber;
use ringwell_driver::store::{ReadError, Reader};
use ringwell_engine::{Clocks, Missing, Moment, Past, Step};
use ringwell_journal::{Record, position_parts};

use crate::thread::Thread;

pub(crate) fn attribution(
    thread: &Thread,
    number: u64,
    at: Moment,
    clocks: Clocks,
) -> Result<Past, &'static str> {
    let number = PromoNumber::from_code(number).ok_or("no promo number")?;
    let reader = thread.journal.reader();
    let (mut walk, mut step) = thread.engine.attribution(number, at);
    let shift = |record: &Record<'_>, group| reader.wall_less_shard(record, group, clocks);
    loop {
        let position = match step {
            Step::Done(past) => return Ok(past),
            Step::Read(position) => position,
        };
        let pending = thread.engine.pending_record(position);
        let pending = pending.map(|record| walk.feed(&record, shift(&record, Some(clocks))));
        let fed = if let Some(fed) = pending {
            fed
        } else {
            match reader.read(position_parts(position).0) {
                Ok(group) => {
                    let record = group.record(position).map_err(|_| "a record cannot be read")?;
                    walk.feed(&record, shift(&record, group.header.clocks))
                }
                Err(ReadError::Gone(_)) => return Ok(walk.end(Missing::NotKept)),
                Err(ReadError::NotYet(_) | ReadError::Damaged { .. } | ReadError::File(_)) => {
                    return Err("a group cannot be read");
                }
            }
        };
        step = fed.map_err(|_| "the history leads to a record of another number")?;
    }
}
