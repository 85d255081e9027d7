//! The engine inside another program's process, behind one C ABI: bytes of a batch in, bytes of its
//! answer out.
//!
//! One shard, served by the calling thread: no threads, no runtime, no callbacks, because none of
//! these survives a `fork`. The code is the server's (`ringwell-driver`): a server reads a journal
//! written here, and the other way round.
//!
//! Knows nothing of Ruby or any other language that loads it. Invariants: no panic leaves [`abi`],
//! which alone has unsafe code; answers are as durable as configured. Source: docs/spec/embed.md.

pub mod abi;
mod caller;
mod engine;
mod options;
mod slots;
