//! The names of the files for calls in a data directory.

/// The name of the call log's file in the data directory.
pub(crate) const CALLS: &str = "calls.sqlite";

/// The name of the file in the data directory for reports that are not in the call log yet.
pub(crate) const WAITING: &str = "calls-waiting.jsonl";

/// The name of the file that receives unreadable lines of [`WAITING`].
pub(crate) const UNREAD: &str = "calls-waiting.unread";
