//! The memory that a reader allocates for its input.

/// Calls `read`, and checks that the memory allocated by `read` never exceeds `times` × `input`
/// bytes plus 64 KiB.
pub(crate) fn bounded<T>(input: usize, times: u64, read: impl FnOnce() -> T) -> T {
    let mut result = None;
    let info = allocation_counter::measure(|| result = Some(read()));
    let allowed = times * input as u64 + (64 << 10);
    assert!(
        info.bytes_max <= allowed,
        "{} bytes were allocated for an input of {input} bytes; the limit is {allowed}",
        info.bytes_max
    );
    // `measure` calls its argument exactly once.
    result.unwrap()
}
