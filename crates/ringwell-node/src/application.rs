//! Requests unknown ring pools from the main application while the batches that name them wait.
//!
//! A pool that the application returns is added to the process's directory. If the application does
//! not return a pool, the process remembers this for a while. Rows of known pools do not wait for
//! the application. Source: docs/spec/application.md.

mod ages;
mod call;
mod fetch;
mod renew;
mod replays;
mod webhook;

pub(crate) use self::fetch::{Application, source};
pub(crate) use self::renew::renew;
pub use self::webhook::PushError;
pub(crate) use self::webhook::push as webhook;
