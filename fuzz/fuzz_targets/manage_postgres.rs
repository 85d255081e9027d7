//! See `ringwell_fuzz::manage_postgres`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwell_fuzz::manage_postgres(bytes));
