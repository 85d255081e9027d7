//! See `ringwell_fuzz::record`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwell_fuzz::record(bytes));
