//! A batch of rows: read, planned, served by its owners, stored, answered.

mod answer;
mod gather;

pub use answer::{Answered, answer};
pub use gather::{Job, Terms};
