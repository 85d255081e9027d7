//! The load generator: sends batches at a fixed rate or as fast as answers arrive, and reports
//! answers and times.
//!
//! Speaks HTTP/1.1 like any other client, and shares no code with the server. Owns the generator's
//! sockets, clocks and files. Does not read the command line.
//!
//! In an open loop, a batch's latency is measured from the time when the batch was due, not from
//! the time when it could be sent. If a server stalls, the latencies therefore include the waiting
//! time of every delayed batch.

mod answer;
mod clock;
mod compare;
mod connection;
mod curve;
mod feed;
mod finish;
mod gather;
mod history;
mod outcome;
mod pace;
mod plan;
mod pools;
mod request;
mod run;
mod tally;
mod target;
mod text;
mod timer;
mod worker;

pub use compare::{CompareError, Comparison, Line, compare};
pub use finish::{FinishError, LookUps, LookedUp, add_journal, add_state, look_up};
pub use outcome::{Latency, Outcome, Point, Sample, Setting};
pub use pace::{Pace, Spike, parse_duration, parse_rate};
pub use plan::{LoadPlan, Progress};
pub use pools::{Number, Pool, PoolsError};
pub use request::Spread;
pub use run::{LoadError, run};
pub use tally::Counts;
pub use target::Target;
