//! See `ringwell_fuzz::suffix`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwell_fuzz::suffix(bytes));
