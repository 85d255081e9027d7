//! Outgoing webhooks, by Standard Webhooks 1.0: the endpoints, the schedule of each delivery, and
//! its result.
//!
//! Owns the schedule and its state in the log; time comes in as an argument. Sockets are in
//! [`send`]. Invariant: nothing is deleted before its retention ends, so that everything can be
//! replayed. Source: docs/spec/calls.md, "Webhooks".

pub mod address;
mod endpoint;
mod outbox;
pub mod schedule;
pub mod send;
pub mod sign;
mod worker;

pub use endpoint::{Made, NewEndpoint, Replay, Rotated, TYPES, Which};
pub use outbox::{Due, Ended, LEASE, Result as DeliveryResult};
pub use worker::{Transport, Worker};
