//! See `ringwell_fuzz::pools_csv`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwell_fuzz::pools_csv(bytes));
