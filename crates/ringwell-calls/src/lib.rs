//! Calls: telephony providers, the call log, attribution of ringing calls, and outgoing webhooks.
//!
//! Owns calls and their events, from the first ring to the last webhook. Queries the node through
//! [`Numbers`]. Opens no sockets; the program owns them. Runs on its own thread, so that calls do
//! not delay the shards. Source: docs/spec/calls.md.

pub mod account;
pub mod attribution;
pub mod block;
pub mod call;
pub mod caller;
pub mod clock;
pub mod confidence;
pub mod digest;
pub mod form;
pub mod http;
pub mod log;
pub mod markup;
pub mod number;
pub mod parse_fault;
pub mod provider;
pub mod robocall;
pub mod route;
mod router;
pub mod service;
mod trace;
pub mod webhook;

pub use account::{Account, Warnings};
pub use attribution::{
    Attributed, Attribution, FoundKeepAlives, History, HolderError, Holders, KeepAlives, Numbers,
    ReportedAllocation, Serving,
};
pub use call::{CallEvent, CallState, EventKind, Facts, Outcome};
pub use caller::Caller;
pub use log::{
    CallDetail, CallFilter, CallRow, Cursor, EndpointCounts, EndpointRow, EventRow, Log, LogError,
    Waiting,
};
pub use route::RoutePlan;
pub use service::{Decision, Destination, Exhausting, IncomingCall, NotStored, Service};
