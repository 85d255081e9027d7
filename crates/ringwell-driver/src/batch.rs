//! Processes a batch: reads and plans its rows, lets the owners serve them, stores the records, and
//! answers.

mod answer;
mod gather;
mod job;

pub use answer::{Answered, answer};
pub use gather::Terms;
pub use job::Job;
