//! Requests to the servers of a log at startup.

use std::future::{Future, ready};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::platform::{Moment, Platform};
use crate::store::{Log, Unreached};

/// The pause before a server that did not answer is tried again.
pub(super) const PAUSE: Duration = Duration::from_millis(250);

/// The maximum time to wait for a single message.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// Returns the range of groups that the log has.
pub(super) async fn ends<P: Platform>(
    platform: &P,
    log: &impl Log,
    until: Moment,
) -> Result<Range<u64>, Unreached> {
    answered(platform, until, || log.ends()).await
}

/// Returns message `n`, or `None` if the log does not have it.
pub(super) async fn get<P: Platform>(
    platform: &P,
    log: &impl Log,
    n: u64,
    until: Moment,
) -> Result<Option<Bytes>, Unreached> {
    answered(platform, until, || log.read(n)).await
}

/// Sends a request about the snapshots that are stored beside the log, and repeats it for up to a
/// minute while the servers do not answer.
pub(super) async fn answered_beside<P: Platform, T>(
    platform: &P,
    request: impl Fn() -> Result<T, Unreached>,
) -> Result<T, Unreached> {
    answered(platform, platform.moment() + PATIENCE, || ready(request())).await
}

/// Repeats a request while the servers do not answer, but not after `until`.
async fn answered<P: Platform, T, A: Future<Output = Result<T, Unreached>>>(
    platform: &P,
    until: Moment,
    request: impl Fn() -> A,
) -> Result<T, Unreached> {
    loop {
        match request().await {
            Err(_) if platform.moment() < until => {
                platform.sleep_until(platform.moment() + PAUSE).await;
            }
            answered => return answered,
        }
    }
}
