//! Who held a number, for the program's other parts: calls ask it.

use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_engine::Missing;
use ringwell_node::Handle;

use crate::v1::holder;

/// An allocation of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The pool that handed the number out, if its record could be read.
    pub pool: Option<PoolId>,
    /// When, by the wall clock.
    pub allocated_at: Millis,
    /// When its lockout ended or ends.
    pub locked_until: Millis,
    /// The marketing context, decoded, in the order in which it came.
    pub parameters: Vec<(String, String)>,
}

/// Why the holder of a number is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HolderError {
    /// A shard did not answer. Asking again may help.
    #[error("{0}")]
    Unavailable(String),
    /// The history does not go back so far, or cannot be read there.
    #[error("{0}")]
    Missing(&'static str),
}

/// Who held `number` at `at`, and who held it before that, newest first: `most` of them at most.
///
/// # Errors
/// [`HolderError`]; if only older ones cannot be found, those that were are returned.
pub async fn holders(
    node: &Handle,
    number: PromoNumber,
    at: Millis,
    most: usize,
) -> Result<Vec<Holder>, HolderError> {
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
        found.push(Holder {
            pool: held.pool,
            allocated_at: held.allocated_wall,
            locked_until: held.locked_until,
            parameters: ringwell_wire::params::decode(&held.params),
        });
    }
    Ok(found)
}

const fn gap(missing: Missing) -> HolderError {
    HolderError::Missing(match missing {
        Missing::NotKept => "the history does not go back so far",
        Missing::TooLong => "the number was handed out too often since",
        Missing::Damaged => "the history is damaged there",
    })
}
