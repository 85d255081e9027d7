//! The engine inside another program's process, behind one C ABI: bytes of a batch in, bytes of its
//! answer out.
//!
//! One shard, served by whichever thread calls: no thread of its own, no runtime, no callback,
//! because none of these lives on after a `fork`. What a row means is the server's code
//! ([`ringwell_driver::rows`]), so are the files ([`ringwell_node::disk`]): a journal written here is
//! read by the server, and the other way round.
//!
//! Knows nothing of Ruby or any other language that loads it. Invariants: no panic leaves
//! [`abi`], which alone has unsafe code; what was answered is as durable as configured.
//! Source: docs/spec/embed.md.

pub mod abi;
mod engine;
mod options;
mod shard;
mod slots;
mod upkeep;
