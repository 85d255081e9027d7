//! Where a shard's groups are kept: one trait, and the stores behind it.
