//! A running node: the threads, HTTP, files, clock and signals around the engine.
//!
//! This crate is thin on purpose. The rules are in `ringwell-core`, the meaning of records is in
//! `ringwell-engine`, and the public API is in `ringwell-wire`. Each shard has one thread with a
//! current-thread runtime. Threads exchange messages, and share no mutable state except a few
//! flags.

mod api;
mod application;
mod bulk;
mod certificates;
mod coding;
mod conn;
mod descriptors;
mod directories;
pub mod disk;
mod edge;
mod error;
mod fields;
mod fitness;
mod handle;
mod handshakes;
mod http;
mod legacy;
mod link;
mod listen;
mod lock_watch;
mod membership;
mod memory;
mod origin;
mod platform;
mod pools;
mod priority;
mod proof;
mod reload;
mod request;
mod response;
mod run;
mod running_node;
mod secure;
mod server;
mod shard;
mod shared_logs;
mod signals;
mod site;
mod start;
mod sweep;
mod tasks;
mod timing;

pub use application::PushError;
pub use directories::{Check, Directories, Reload, ReloadSettings};
pub use error::ServeError;
pub use fitness::unfit;
pub use handle::{GiveError, Handle, Routes, SiteStats, Unread};
pub use link::tls::TlsError;
pub use listen::{ListenError, check_free, try_bind};
pub use membership::Membership;
pub use memory::bodies_bytes;
pub use priority::lower_priority;
pub use ringwell_driver::holder::{AskError, HolderError, Joined};
pub use ringwell_driver::membership::Membership as Member;
pub use ringwell_driver::moves::MoveReport;
pub use ringwell_driver::node::{HistoryState, JournalState, Phase};
pub use ringwell_driver::pool_query::{PoolAsked, PoolState, REST_BOUNDS, Rested};
pub use ringwell_driver::stats::{JournalStats, LinkStats, Reason, ShardStats};
pub use ringwell_driver::store::Logs;
pub use ringwell_os::Clock;
pub use run::{OnReady, serve};
pub use running_node::{OrderError, Orders, RunningNode, order_channel};
pub use secure::warn_of_validity;
pub use signals::StartSignals;
pub use site::{Script, script};
