//! The engine inside another program's process, behind a C ABI that takes the bytes of a batch and
//! returns the bytes of its answer.
//!
//! The engine has one shard, which the calling thread serves. It has no threads, runtime or
//! callbacks, because none of these survives a `fork`. It uses the same code as the server
//! (`ringwell-driver`), so that a server can read a journal written by an engine, and vice versa.
//!
//! Does not depend on Ruby or any other calling language. Invariants: no panic leaves [`abi`], the
//! only module with unsafe code. Answers are as durable as configured. Source: docs/spec/embed.md.

pub mod abi;
mod caller;
mod engine;
mod options;
mod slots;
