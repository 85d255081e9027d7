//! The HTTP interface: webhooks from providers under `/t/`, and paths for operators and programs
//! under `/v1/`.
//!
//! Owns the paths, the request limits, and the answers' formats. Opens no sockets.

mod blocks;
mod calls;
mod endpoints;
mod erasures;
mod hooks;
mod outcomes;
mod page;
mod problem;
mod sip;

pub use calls::{Tokens, routes as management};
pub use hooks::routes as providers;
