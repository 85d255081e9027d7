//! One line of a history, as stored in the file. Every member except `k` is optional.
//!
//! Owns the names of the JSON members. The module `read` defines which members each kind of line
//! requires.

use serde::Deserialize;
use serde_json::Value;

/// All members that any kind of line may have. Unknown members are ignored.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Line {
    pub(crate) k: String,
    pub(crate) v: Option<u64>,
    pub(crate) t: Option<i64>,
    pub(crate) run: Option<String>,
    pub(crate) deadline_ms: Option<i64>,
    pub(crate) pool: Option<u64>,
    pub(crate) lifetime_ms: Option<i64>,
    pub(crate) overflow: Option<String>,
    /// The ranges of a pool's numbers, or the count of numbers in a state.
    pub(crate) numbers: Option<Value>,
    pub(crate) wall_ms: Option<i64>,
    pub(crate) id: Option<String>,
    pub(crate) op: Option<String>,
    pub(crate) node: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) rows: Option<Vec<Row>>,
    pub(crate) st: Option<u16>,
    pub(crate) bad: Option<String>,
    pub(crate) phase: Option<String>,
    pub(crate) shard: Option<u64>,
    pub(crate) segment: Option<u64>,
    pub(crate) frame: Option<u64>,
    pub(crate) first_frame: Option<u64>,
    pub(crate) epoch: Option<u64>,
    pub(crate) journal: Option<String>,
    pub(crate) at_ms: Option<i64>,
    pub(crate) last_at_ms: Option<i64>,
    pub(crate) records: Option<u64>,
    pub(crate) previous_hash: Option<String>,
    pub(crate) record: Option<String>,
    pub(crate) position: Option<u64>,
    pub(crate) number: Option<String>,
    pub(crate) lockout_ms: Option<i64>,
    pub(crate) until_ms: Option<i64>,
    pub(crate) params: Option<String>,
    pub(crate) allocated_at_ms: Option<i64>,
    pub(crate) locked_until_ms: Option<i64>,
    pub(crate) rid: Option<String>,
    pub(crate) outcome: Option<String>,
    /// The parameters: the encoded text in a row, or the decoded object in a look-up.
    pub(crate) par: Option<Value>,
}

/// One row of a batch or of its answer.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Row {
    pub(crate) pool: Option<u64>,
    pub(crate) rid: Option<String>,
    pub(crate) num: Option<String>,
    #[serde(default)]
    pub(crate) ovf: bool,
    pub(crate) err: Option<String>,
}
