//! The engine inside another program's process, behind one C ABI: the bytes of a batch go in, the
//! bytes of its answer come out.
//!
//! One shard, served by the calling thread: no threads, no runtime, no callbacks, because none of
//! these survives a `fork`. The code is the server's (`ringwell-driver`), so a server can read a
//! journal written here, and vice versa.
//!
//! Knows nothing of Ruby or any other language that loads it. Invariants: no panic leaves [`abi`],
//! the only module with unsafe code; answers are as durable as configured. Source:
//! docs/spec/embed.md.

pub mod abi;
mod caller;
mod engine;
mod options;
mod slots;
