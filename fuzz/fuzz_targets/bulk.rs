//! See `ringwell_fuzz::bulk`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwell_fuzz::bulk(bytes));
