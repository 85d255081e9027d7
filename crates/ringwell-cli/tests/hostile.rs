//! Sends bad input to the real program over raw sockets. Every test vector must get the answer that
//! `docs/spec/http.md` describes, and the server must still answer a valid request afterwards.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "hostile/bodies.rs"]
mod bodies;
#[path = "hostile/connections.rs"]
mod connections;
#[path = "hostile/faults.rs"]
mod faults;
#[path = "hostile/framing.rs"]
mod framing;
#[path = "hostile/heads.rs"]
mod heads;
#[path = "hostile/management.rs"]
mod management;
#[path = "hostile/metrics.rs"]
mod metrics;
#[path = "hostile/proxied.rs"]
mod proxied;
#[path = "hostile/raw.rs"]
mod raw;
#[path = "hostile/raw_query.rs"]
mod raw_query;
#[path = "hostile/secrets.rs"]
mod secrets;
mod support;
