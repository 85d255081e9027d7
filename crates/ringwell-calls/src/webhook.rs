//! Outgoing webhooks according to Standard Webhooks 1.0: the endpoints, and the schedule and result
//! of each delivery.
//!
//! Owns the schedule and its state in the log. Functions take the current time as an argument. Only
//! [`send`] uses sockets. Invariant: no event is deleted before its retention time ends, so every
//! event can be replayed until then. Source: docs/spec/calls.md, "Webhooks".

pub mod address;
mod endpoint;
mod outbox;
pub mod schedule;
pub mod send;
pub mod sign;
mod worker;

pub use endpoint::{Made, NewEndpoint, Replay, Replayed, Rotated, TYPES, Which};
pub use outbox::{Due, Ended, LEASE, Result as DeliveryResult};
pub use worker::{Transport, Worker};
