//! Checks the part of a shard's history that startup did not read: the segments before the
//! snapshot. If this part is damaged, look-ups that need it fail. Without this check, the damage
//! would not be noticed before the first such look-up.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use crate::disk::{Damage, Reader};
use crate::shard::ShardThread;
use ringwell_driver::node::HistoryState;

/// The maximum number of groups that are read at once. Together, these groups take up a few
/// megabytes.
const GROUPS_AT_ONCE: u64 = 64;

/// The pause between two reads, so that other disk requests are not delayed.
const REST: Duration = Duration::from_millis(10);

/// Reads and checks the groups in `unread` until all are checked or the thread ends.
pub(crate) async fn history(thread: Rc<ShardThread>, reader: impl Reader, unread: Range<u64>) {
    let (mut n, mut damaged) = (unread.start, 0_u32);
    while n < unread.end {
        let until = unread.end.min(n + GROUPS_AT_ONCE);
        let reader = reader.clone();
        let Ok(checked) = tokio::task::spawn_blocking(move || reader.check(n..until)).await else {
            return;
        };
        n = match checked {
            Ok(()) => until,
            Err(Damage { error, next_n }) => {
                damaged += 1;
                thread.node.set_history(thread.id, HistoryState::Damaged);
                tracing::error!(
                    shard = thread.id,
                    %error,
                    "history is damaged: lockouts are not affected, but look-ups that need \
                     the damaged part find no visitor. Stop the server, and restore the damaged \
                     file from a copy"
                );
                next_n
            }
        };
        tokio::time::sleep(REST).await;
    }
    if damaged == 0 {
        thread.node.set_history(thread.id, HistoryState::Whole);
    }
}
