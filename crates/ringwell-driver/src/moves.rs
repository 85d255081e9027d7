//! Buckets that move between nodes with their lockouts.

mod payload;

pub use payload::{
    Adopted, AnswerWord, HoldWord, NumberWord, OwnersCopy, Prepare, Prepared, Take, answer_word,
    hold_word, in_time_of, number_word, read_answer, read_hold, read_number,
};
