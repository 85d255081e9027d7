//! See `ringwell_fuzz::import`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwell_fuzz::import(bytes));
