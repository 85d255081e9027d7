//! See `ringwell_fuzz::snapshot`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwell_fuzz::snapshot(bytes));
