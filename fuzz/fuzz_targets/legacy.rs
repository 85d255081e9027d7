//! See `ringwell_fuzz::legacy`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwell_fuzz::legacy(bytes));
