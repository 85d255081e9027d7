//! The limits on requests between nodes.

use crate::node::Node;
use crate::platform::Path;

/// The maximum size, in bytes, of a row in a frame, without its parameters.
const ROW_BYTES: usize = 64;

/// The maximum size, in bytes, of a request between nodes about owners, moves or journals. The
/// limits for clients do not apply to such requests. A request with all 1,024 buckets, their owners
/// and their holds takes a third of this size.
pub(super) const JSON_BYTES_MAX: usize = 256 * 1024;

/// Returns the maximum length of a frame with rows, which is enough for the longest batch.
pub fn frame_bytes_max(node: &Node) -> usize {
    let limits = &node.config.limits;
    limits.body_bytes + limits.rows * ROW_BYTES
}

/// Returns the maximum length of a request's body.
#[must_use]
pub fn body_bytes_max(node: &Node, path: Option<Path>) -> usize {
    match path {
        Some(
            Path::Prepare
            | Path::Adopt
            | Path::Take
            | Path::Abandon
            | Path::Owners
            | Path::Journals
            | Path::Locked,
        ) => JSON_BYTES_MAX,
        _ => frame_bytes_max(node),
    }
}
