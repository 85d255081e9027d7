//! The C ABI: the only module with unsafe code.
//!
//! Every function takes and returns bytes, and catches panics. It rejects null pointers and, where
//! alignment matters, misaligned pointers. Handles are numbers, so this module dereferences
//! only pointers to the caller's memory. The C declarations are in `include/ringwell_embed.h`.
//! Source: docs/spec/embed.md.
#![allow(unsafe_code, reason = "this is the interface to other languages")]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ringwell_driver::Moment;
use ringwell_driver::shard::panic_text;
use ringwell_driver::store::Files;
use ringwell_os::OsFiles;
use ringwell_wire::RequestError;

use crate::engine::Embedded;
use crate::slots::{self, ENGINES_MAX, NoEngine};

/// The version of this interface. It increases with each incompatible change.
pub const ABI_VERSION: u32 = 1;

/// Success. A positive status is the HTTP status of a refused batch.
pub const OK: i32 = 0;
/// A required pointer is null or misaligned, or a length is impossible.
pub const INVALID: i32 = -1;
/// This process was forked from the one that opened the engine.
pub const FORKED: i32 = -2;
/// The engine panicked and refuses further calls. Close the engine and open it again.
pub const PANICKED: i32 = -3;
/// The handle is invalid: the engine was closed or never opened.
pub const CLOSED: i32 = -4;
/// The engine cannot be opened: its configuration is invalid, its data directory is locked, or its
/// files cannot be used.
pub const NOT_OPENED: i32 = -5;
/// Some records, or a snapshot, could not be stored.
pub const NOT_STORED: i32 = -6;

/// Bytes that the engine owns until the caller passes them to [`ringwell_embed_free`].
#[repr(C)]
#[derive(Debug)]
pub struct Bytes {
    /// The address of the bytes. Null if there are none.
    pub at: *mut u8,
    /// The count of bytes.
    pub len: usize,
    /// The capacity of the buffer, in bytes.
    pub room: usize,
}

impl Bytes {
    const NONE: Self = Self { at: std::ptr::null_mut(), len: 0, room: 0 };

    fn owned(bytes: Vec<u8>) -> Self {
        if bytes.capacity() == 0 {
            return Self::NONE;
        }
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        Self { at: bytes.as_mut_ptr(), len: bytes.len(), room: bytes.capacity() }
    }
}

// SAFETY: an engine may move to another thread although it contains `Rc`s and cells. All `Rc`s and
// cells that refer to one another belong to the same engine and its tasks, and no function of the
// engine returns any of them. The table of engines locks the engine for each call. The tasks'
// wakers are thread-safe. The engine keeps nothing in thread-local storage.
unsafe impl Send for Embedded {}

/// A status and the bytes to return with it.
type Reply = (i32, Vec<u8>);

/// Returns the version of this interface. Check that it is the expected version before you call any
/// other function.
#[unsafe(no_mangle)]
pub extern "C" fn ringwell_embed_abi_version() -> u32 {
    ABI_VERSION
}

/// Opens an engine with the JSON options in `options`. Writes the engine's handle to `handle`. On
/// failure, writes 0 to `handle` and the reason to `out`.
///
/// # Safety
/// `options` must point to `options_len` readable bytes. `handle` and `out` must point to writable
/// memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringwell_embed_open(
    options: *const u8,
    options_len: usize,
    handle: *mut u64,
    out: *mut Bytes,
) -> i32 {
    if handle.is_null() || !handle.is_aligned() {
        return INVALID;
    }
    let mut opened = 0;
    // SAFETY: the caller guarantees that `options` satisfies the requirements of `input`.
    let options = unsafe { input(options, options_len) };
    let work = || options.map_or_else(invalid, |options| open(options, &mut opened));
    // SAFETY: the caller guarantees that `out` satisfies the requirements of `reply`.
    let status = unsafe { reply(out, work) };
    // SAFETY: `handle` was checked above for null and alignment. The caller guarantees that it is
    // writable.
    unsafe { handle.write(opened) };
    status
}

/// Reads the batch in `body` and returns its answer. If the batch is refused, returns the HTTP
/// status and the body of the refusal. `key` is the idempotency key of the batch, or null. If
/// `deadline_ms` is not 0 and is shorter than the configured deadline, it replaces that deadline.
///
/// # Safety
/// `body` must point to `body_len` readable bytes. `key` must be null or point to `key_len`
/// readable bytes. `out` must point to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringwell_embed_bulk(
    handle: u64,
    body: *const u8,
    body_len: usize,
    key: *const u8,
    key_len: usize,
    deadline_ms: u64,
    out: *mut Bytes,
) -> i32 {
    // SAFETY: the caller guarantees that `body` satisfies the requirements of `input`.
    let body = unsafe { input(body, body_len) };
    let key = if key.is_null() {
        None
    } else {
        // SAFETY: the caller guarantees that `key` satisfies the requirements of `input`.
        Some(unsafe { input(key, key_len) })
    };
    let work = || match (body, key) {
        (Some(body), None) => bulk(handle, body, None, deadline_ms),
        (Some(body), Some(Some(key))) => bulk(handle, body, Some(key), deadline_ms),
        (None, _) | (_, Some(None)) => invalid(),
    };
    // SAFETY: the caller guarantees that `out` satisfies the requirements of `reply`.
    unsafe { reply(out, work) }
}

/// Returns the engine's description and counts, as JSON.
///
/// # Safety
/// `out` must point to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringwell_embed_status(handle: u64, out: *mut Bytes) -> i32 {
    // SAFETY: the caller guarantees that `out` satisfies the requirements of `reply`.
    unsafe { reply(out, || with(handle, |engine| (OK, engine.status()))) }
}

/// Stores the groups that could not be stored because the disk was full. All other groups are
/// already stored.
///
/// # Safety
/// `out` must point to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringwell_embed_flush(handle: u64, out: *mut Bytes) -> i32 {
    // SAFETY: the caller guarantees that `out` satisfies the requirements of `reply`.
    unsafe { reply(out, || with(handle, |engine| stored(engine.flush()))) }
}

/// Takes a snapshot now, so that less of the journal must be read when the engine is next opened.
/// May take seconds.
///
/// # Safety
/// `out` must point to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringwell_embed_snapshot(handle: u64, out: *mut Bytes) -> i32 {
    // SAFETY: the caller guarantees that `out` satisfies the requirements of `reply`.
    unsafe { reply(out, || with(handle, |engine| stored(engine.snapshot()))) }
}

/// Closes an engine: takes a snapshot and unlocks the data directory. The handle is invalid
/// afterwards, even if the function fails. In a forked child, this function leaks memory, leaves
/// the parent's files unchanged, and returns `FORKED`.
///
/// # Safety
/// `out` must point to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringwell_embed_close(handle: u64, out: *mut Bytes) -> i32 {
    // SAFETY: the caller guarantees that `out` satisfies the requirements of `reply`.
    unsafe { reply(out, || close(handle)) }
}

/// Frees the bytes that another function wrote to `out`, and clears `out`. A second call has no
/// effect.
///
/// # Safety
/// `out` must be null, or point to [`Bytes`] that a function of this module wrote and that are
/// unchanged since then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringwell_embed_free(out: *mut Bytes) {
    if out.is_null() || !out.is_aligned() {
        return;
    }
    // SAFETY: `out` is not null and is aligned. The caller guarantees that `out` points to `Bytes`,
    // and that those bytes are not used again.
    let Bytes { at, len, room } = unsafe { out.replace(Bytes::NONE) };
    if !at.is_null() {
        // SAFETY: `Bytes::owned` took all three values from a `Vec` that was not dropped. After
        // `replace`, `out` no longer contains them, so the memory is freed only once.
        drop(unsafe { Vec::from_raw_parts(at, len, room) });
    }
}

/// Returns a caller's bytes, or `None` if the pointer or length is invalid.
///
/// # Safety
/// `at` must point to `len` bytes that are readable and remain unchanged until the calling ABI
/// function returns. The lifetime `'a` must not outlast that function call.
unsafe fn input<'a>(at: *const u8, len: usize) -> Option<&'a [u8]> {
    if len == 0 {
        return Some(&[]);
    }
    if at.is_null() || isize::try_from(len).is_err() {
        return None;
    }
    // SAFETY: the pointer is not null, bytes need no alignment, and `len` is at most `isize::MAX`.
    // The caller guarantees that the bytes are readable and unchanged during the call.
    Some(unsafe { std::slice::from_raw_parts(at, len) })
}

/// Runs `work`, catches its panics, and writes its bytes to `out`. If `out` is invalid, `work` does
/// not run, because numbers must not be handed out for an answer that the caller cannot read.
///
/// # Safety
/// If `out` is neither null nor misaligned, it must point to writable memory for [`Bytes`].
unsafe fn reply(out: *mut Bytes, work: impl FnOnce() -> Reply) -> i32 {
    if out.is_null() || !out.is_aligned() {
        return INVALID;
    }
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let (status, bytes) = outcome.unwrap_or_else(|panic| (PANICKED, reason(panic.as_ref())));
    // SAFETY: `out` was checked above for null and alignment. The caller guarantees that it is
    // writable. The old contents are not dropped, because they may be uninitialized.
    unsafe { out.write(Bytes::owned(bytes)) };
    status
}

fn invalid() -> Reply {
    (INVALID, b"a pointer is null, or a length is too large".to_vec())
}

fn reason(panic: &(dyn Any + Send)) -> Vec<u8> {
    let text = panic_text(panic);
    format!("the engine panicked: {text}; close it and open it again").into_bytes()
}

fn open(options: &[u8], handle: &mut u64) -> Reply {
    let engine = match Embedded::open(options) {
        Ok(engine) => engine,
        Err(error) => return (NOT_OPENED, error.into_bytes()),
    };
    match slots::put(engine) {
        Ok(put) => {
            *handle = put;
            (OK, Vec::new())
        }
        Err(engine) => {
            drop(engine);
            (
                NOT_OPENED,
                format!("{ENGINES_MAX} engines already exist: close one first").into_bytes(),
            )
        }
    }
}

fn bulk(handle: u64, body: &[u8], key: Option<&[u8]>, deadline_ms: u64) -> Reply {
    // The time spent waiting for another thread's call to end counts toward the deadline.
    let started = Moment(OsFiles.moment());
    with(handle, |engine| {
        let deadline = engine.deadline(started, deadline_ms);
        match engine.answer(body, key, deadline) {
            Ok(answer) => (OK, answer),
            Err(error) => refused(&error),
        }
    })
}

fn refused(error: &RequestError) -> Reply {
    (i32::from(error.status()), error.body())
}

fn stored(result: Result<(), String>) -> Reply {
    match result {
        Ok(()) => (OK, Vec::new()),
        Err(error) => (NOT_STORED, error.into_bytes()),
    }
}

fn close(handle: u64) -> Reply {
    match slots::take(handle) {
        Ok((engine, false)) => stored(engine.close()),
        // After a panic, the engine's state must not be written to a snapshot. The records of all
        // earlier answers are already stored.
        Ok((_, true)) => (OK, Vec::new()),
        Err(none) => no_engine(none),
    }
}

fn with(handle: u64, work: impl FnOnce(&mut Embedded) -> Reply) -> Reply {
    slots::with(handle, work).unwrap_or_else(no_engine)
}

fn no_engine(none: NoEngine) -> Reply {
    let (status, text) = match none {
        NoEngine::Forked => (
            FORKED,
            "this process is a forked child, and the engine belongs to its parent: open an engine \
            after the fork, in only one process, or use a server",
        ),
        NoEngine::Closed => (CLOSED, "the engine is closed"),
        NoEngine::Broken => {
            (PANICKED, "the engine panicked in an earlier call: close it and open it again")
        }
    };
    (status, text.into())
}

#[cfg(test)]
mod tests;
