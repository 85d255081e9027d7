//! A batch of rows: it is read, planned, served by the owners of its rows, stored, and answered.

mod answer;
mod gather;

pub use answer::{Answered, answer};
pub use gather::{Job, Terms};
