//! See `ringwell_fuzz::config`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwell_fuzz::config(bytes));
