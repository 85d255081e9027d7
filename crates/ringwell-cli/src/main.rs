//! The ringwell program.
fn main() {}
