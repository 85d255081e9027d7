//! Properties that must hold for any bytes, whether a stranger sends them or a disk returns them.
//! Each target is a function that panics if its property fails.
//!
//! The fuzzer (`fuzz/`) searches for inputs that break these properties. `cargo test` tries every
//! input in the fuzzer's corpus (`fuzz/corpus`) without the fuzzer. The properties go beyond the
//! absence of panics. For example, accepted input is written back unchanged, two readers of the
//! same format agree, and the input's length bounds the allocated memory. Recovery of a damaged
//! journal returns a true prefix or refuses the journal. This crate does not depend on the fuzzer.
//! Source: docs/reliability.md, "Fuzzing".

#![expect(clippy::unwrap_used, reason = "a test program reports failures by panicking")]
#![expect(clippy::missing_panics_doc, reason = "every target panics if its property is broken")]

mod batch;
pub mod disk;
mod files;
mod link;
mod manage;
mod memory;
mod query;
mod record;
#[path = "../../ringwell-store/tests/rig/mod.rs"]
mod rig;
mod snapshot;

pub use batch::bulk;
pub use disk::journal;
pub use files::{cluster, config, pools_csv};
pub use link::link;
pub use manage::{import, manage, manage_postgres};
pub use query::{legacy, suffix};
pub use record::record;
pub use snapshot::snapshot;

/// A function that checks its property for the given bytes.
pub type Target = fn(&[u8]);

/// All targets, with their names in `fuzz/`.
pub const TARGETS: [(&str, Target); 13] = [
    ("bulk", bulk),
    ("cluster", cluster),
    ("config", config),
    ("import", import),
    ("journal", journal),
    ("legacy", legacy),
    ("link", link),
    ("manage", manage),
    ("manage_postgres", manage_postgres),
    ("pools_csv", pools_csv),
    ("record", record),
    ("snapshot", snapshot),
    ("suffix", suffix),
];
