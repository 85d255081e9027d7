//! See `ringwell_fuzz::cluster`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwell_fuzz::cluster(bytes));
