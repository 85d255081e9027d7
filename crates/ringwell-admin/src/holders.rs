//! The holder of a number, for calls and other parts of the program.

use ringwell_calls::{HolderError, ReportedAllocation};
use ringwell_core::{Millis, PromoNumber};
use ringwell_engine::Missing;
use ringwell_node::Handle;

use crate::v1::holder;

/// The holder of `number` at `at`, and the holders before, newest first: at most `most`.
///
/// # Errors
/// [`HolderError`]; if only older holders cannot be found, the others are returned.
pub async fn holders(
    node: &Handle,
    number: PromoNumber,
    at: Millis,
    most: usize,
) -> Result<Vec<ReportedAllocation>, HolderError> {
    let (mut found, mut at) = (Vec::new(), at);
    while found.len() < most {
        let past = match holder(node, number, at).await {
            Ok((past, _)) => past,
            Err(_) if !found.is_empty() => break,
            Err(problem) => return Err(HolderError::Unavailable(problem.detail().to_owned())),
        };
        let held = match (past.held, past.missing) {
            (Some(held), _) => held,
            (None, Some(missing)) if found.is_empty() => return Err(gap(missing)),
            (None, _) => break,
        };
        at = Millis(held.allocated_wall.0.saturating_sub(1));
        found.push(ReportedAllocation {
            pool: held.pool,
            allocated_at: held.allocated_wall,
            locked_until: held.locked_until,
            parameters: ringwell_wire::params::decode(&held.params),
            // The call log records taps.
            tapped_at: None,
        });
    }
    Ok(found)
}

fn gap(missing: Missing) -> HolderError {
    let reason = match missing {
        Missing::NotKept => "the history does not go back so far",
        Missing::TooLong => "the number was handed out too often since then",
        Missing::Damaged => "the history is damaged there",
    };
    HolderError::Gone(reason.to_owned())
}
