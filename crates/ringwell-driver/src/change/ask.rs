//! Makes shards execute a change's steps.

use tokio::sync::oneshot;

use super::error::ChangeError;
use crate::message::{Message, Step, StepResult};
use crate::queue::Peers;

/// Makes one of this node's shards execute `step`.
///
/// # Errors
/// Returns [`ChangeError::Shard`] if the shard has ended.
pub async fn ask(peers: &Peers, shard: u16, step: Step) -> Result<StepResult, ChangeError> {
    let (reply, answer) = oneshot::channel();
    if !peers.send_when_there_is_room(shard, Message::Change(step, reply)).await {
        return Err(ChangeError::Shard(shard));
    }
    answer.await.map_err(|_| ChangeError::Shard(shard))
}
