//! The file with the buckets that this node serves.

use ringwell_directory::Owners;

use crate::node::Node;
use crate::platform::Platform;
use crate::store::{FileError, Files, Leaving, ServedMap};

/// Records durably which buckets this node serves by `owners`, and which are in transit.
///
/// # Errors
/// [`FileError`]
pub async fn keep<P: Platform>(
    platform: &P,
    node: &Node,
    owners: &Owners,
    leaving: Vec<Leaving>,
) -> Result<(), FileError> {
    let (holds, lists) = (node.bucket_holds(), node.lists());
    let (is_own, stale) = (|shard| node.is_own(shard), node.stale().into_iter().collect());
    let map = ServedMap::of(owners.clone(), is_own, leaving, holds, stale, lists);
    let data = node.config.data.clone();
    let files = platform.files();
    let written = platform.offload(move || {
        // With durability "memory" the directory does not exist yet.
        files.make_directory(&data)?;
        map.write(&files, &data)
    });
    written.await.unwrap_or_else(|| {
        let stopping = std::io::Error::other("the server is stopping");
        Err(FileError::new("write", &node.config.data, stopping))
    })
}
