//! A batch of rows: reading, planning, serving by the owners, storing, and answering.

mod answer;
mod gather;

pub use answer::{Answered, answer};
pub use gather::{Job, Terms};
