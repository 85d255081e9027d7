//! Records the buckets and overflow numbers that this node serves, and the gaps in its history.

use std::sync::Arc;

use ringwell_directory::{Directory, Owners};

use crate::node::Node;
use crate::platform::Platform;
use crate::store::{FileError, Files, Gaps, Leaving, ServedMap, ServedOverflow};
use crate::withheld::ends;

/// Reads the record from [`write_served`]; `None` if there is none.
///
/// # Errors
/// [`FileError`]
pub(crate) fn read_served<P: Platform>(
    platform: &P,
    node: &Node,
) -> Result<Option<ServedMap>, FileError> {
    ServedMap::read(&platform.files(), &node.config.data)
}

/// Records durably which buckets this node serves according to `owners`, and which ones are in
/// transit.
///
/// # Errors
/// [`FileError`]
pub(crate) async fn write_served<P: Platform>(
    platform: &P,
    node: &Node,
    owners: &Owners,
    leaving: Vec<Leaving>,
) -> Result<(), FileError> {
    let (lists, served_at) = node.recorded_lists(platform.wall());
    let (is_own, stale) = (|shard| node.is_own(shard), node.stale().into_iter().collect());
    let map = ServedMap::of(owners.clone(), is_own, leaving, node.bucket_holds(), stale);
    let map = ServedMap { abandoned: node.abandoned(), lists, served_at, ..map };
    let data = node.config.data.clone();
    let files = platform.files();
    let written = platform.offload(move || {
        // With durability `memory`, the data directory does not exist yet.
        files.make_directory(&data)?;
        map.write(&files, &data)
    });
    written.await.unwrap_or_else(|| {
        let stopping = std::io::Error::other("the server is stopping");
        Err(FileError::new("write", &node.config.data, stopping))
    })
}

/// Sets and records the periods in which answers may have been lost.
///
/// # Errors
/// The reason, as text for the operator.
pub(crate) async fn write_gaps<P: Platform>(
    platform: &P,
    node: &Node,
    gaps: Gaps,
) -> Result<(), String> {
    node.set_gaps(gaps.clone());
    let (files, data) = (platform.files(), node.config.data.clone());
    let written = platform.offload(move || {
        files.make_directory(&data)?;
        gaps.write(&files, &data)
    });
    let written = written.await;
    written.ok_or("the server is stopping")?.map_err(|error| error.to_string())
}

/// Records the overflow numbers in `directory` and those that are withheld, for the next startup.
pub(crate) async fn write_overflow<P: Platform>(
    platform: &P,
    node: &Node,
    directory: Arc<Directory>,
) {
    if !node.begun.withholds_others || !node.answers_wait() {
        return;
    }
    let (files, data, withheld) =
        (platform.files(), node.config.data.clone(), ends(&node.withheld()));
    let write = move || ServedOverflow::of(&directory, &withheld).write(&files, &data);
    if let Some(Err(error)) = platform.offload(write).await {
        tracing::warn!(
            %error,
            "the overflow numbers could not be recorded: if the directory's database is restored \
             from an older copy and this server is restarted, a number that a visitor holds may \
             become an overflow number"
        );
    }
}
