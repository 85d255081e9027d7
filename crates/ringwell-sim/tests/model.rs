//! Compiles the reference model alone, to run the model's unit tests.

#[path = "../src/model/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "some of it is only used by the simulator"
)]
mod model;
