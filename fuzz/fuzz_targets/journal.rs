//! See `ringwell_fuzz::journal`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwell_fuzz::journal(bytes));
