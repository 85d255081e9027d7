//! HTTP: webhooks of providers under `/t/`, and the paths of operators and programs under `/v1/`.
//!
//! Owns paths, limits and forms of answers. Opens no socket.

mod blocks;
mod calls;
mod endpoints;
mod erasures;
mod hooks;
mod outcomes;
mod problem;
mod sip;

pub use calls::{Tokens, routes as management};
pub use hooks::routes as providers;
