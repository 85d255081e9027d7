//! A shard's part of an attribution look-up: follows a number's records through memory and files.

use std::rc::Rc;

use ringwell_core::{Millis, Position, PromoNumber};
use ringwell_engine::{Held, Step};
use ringwell_journal::{Group, position_parts};

use crate::disk::{JournalReader, ReadError};
use crate::shard::ShardThread;

/// Records that one look-up reads at most: a day of a number that is handed out every second.
const RECORDS_MAX: usize = 100_000;

/// Who held `number` at `at`, as far as this shard knows.
///
/// # Errors
/// What could not be read, for the operator.
pub(crate) async fn attribution(
    thread: Rc<ShardThread>,
    reader: JournalReader,
    number: PromoNumber,
    at: Millis,
) -> Result<Option<Held>, String> {
    let (mut walk, mut step) = thread.engine.borrow().attribution(number, at);
    for _ in 0..RECORDS_MAX {
        let position = match step {
            Step::Done(held) => return Ok(held),
            Step::Read(position) => position,
        };
        let pending = thread.engine.borrow().pending_record(position).map(|r| walk.feed(&r));
        let fed = if let Some(fed) = pending {
            fed
        } else {
            // Older history than is kept ends the walk.
            let group = read(&thread, &reader, position).await?;
            let Some(group) = group else { return Ok(walk.end()) };
            walk.feed(&group.record(position).map_err(|error| error.to_string())?)
        };
        step = fed.map_err(|broken| {
            format!("the history of {} leads to a record of another number", broken.number)
        })?;
    }
    Err(format!("the history of {number} since then has more than {RECORDS_MAX} records"))
}

/// The group that `position` lies in, if it is still kept; one that is being written is waited
/// for.
async fn read(
    thread: &ShardThread,
    reader: &JournalReader,
    position: Position,
) -> Result<Option<Group>, String> {
    let (group, _) = position_parts(position);
    thread.commit.wait(group).await.map_err(|_| "the journal takes no writes".to_owned())?;
    let reader = reader.clone();
    let read = tokio::task::spawn_blocking(move || reader.read_group(group)).await;
    match read.map_err(|error| error.to_string())? {
        Ok(group) => Ok(Some(group)),
        Err(ReadError::Gone(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
