//! See `ringwell_fuzz::link`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwell_fuzz::link(bytes));
