//! The table of all engines in a process, with handles that cannot dangle.
//!
//! A handle is a number that combines the id of the opening process, a count, and an index into a
//! table. Therefore, a handle can be recognized as invalid if its engine was closed, if it was
//! never issued, or if a forked child inherited it. The check neither accesses freed memory nor
//! waits for a lock that a thread of the parent holds.
//!
//! Invariants: only a thread inside a call locks an entry. A forked child never waits for an
//! inherited entry's lock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::engine::Embedded;

/// The maximum number of open engines in a process.
pub(crate) const ENGINES_MAX: usize = 64;

/// The widths, in bits, of the index and the count. Both are in the lower half of a handle. The
/// process id is in the upper half.
const PLACE_BITS: u32 = 8;
const COUNT_BITS: u32 = 24;

static TABLE: [Mutex<EngineSlot>; ENGINES_MAX] =
    [const { Mutex::new(EngineSlot::EMPTY) }; ENGINES_MAX];
static COUNT: AtomicU32 = AtomicU32::new(0);

/// An entry of the table.
#[derive(Debug)]
pub(crate) struct EngineSlot {
    handle: u64,
    engine: Option<Embedded>,
    /// Set while a call uses the engine. It remains set if the call panics.
    is_broken: bool,
}

/// The reason why an engine is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoEngine {
    /// The engine was opened by another process.
    Forked,
    /// No engine has this handle.
    Closed,
    /// A panic left the engine in an unknown state.
    Broken,
}

impl EngineSlot {
    const EMPTY: Self = Self { handle: 0, engine: None, is_broken: false };
}

/// Adds an engine to the table. Returns the engine as the error if the table is full.
pub(crate) fn put(engine: Embedded) -> Result<u64, Box<Embedded>> {
    let pid = std::process::id();
    for (at, place) in (0..).zip(&TABLE) {
        // Entries that are locked are skipped. Another thread is using such an entry, or a thread
        // of the parent was using it when this process was forked.
        let Some(mut place) = try_lock(place) else { continue };
        let is_inherited = place.engine.is_some() && process_of(place.handle) != pid;
        if place.engine.is_some() && !is_inherited {
            continue;
        }
        if let Some(inherited) = place.engine.take() {
            inherited.abandon();
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed) % (1 << COUNT_BITS);
        let handle = u64::from(pid) << 32 | u64::from(count << PLACE_BITS) | at;
        *place = EngineSlot { handle, engine: Some(engine), is_broken: false };
        return Ok(handle);
    }
    Err(Box::new(engine))
}

/// Passes an engine to `work`. If `work` panics, the engine is unusable from then on.
pub(crate) fn with<T>(handle: u64, work: impl FnOnce(&mut Embedded) -> T) -> Result<T, NoEngine> {
    let mut place = find(handle)?;
    if place.is_broken {
        return Err(NoEngine::Broken);
    }
    let EngineSlot { engine, is_broken, .. } = &mut *place;
    let engine = engine.as_mut().ok_or(NoEngine::Closed)?;
    // Remains set if `work` panics.
    *is_broken = true;
    let result = work(engine);
    *is_broken = false;
    Ok(result)
}

/// Removes an engine from the table. Returns the engine, and whether it is broken. If the engine
/// was opened by another process, abandons it, provided that its entry can be locked without
/// waiting.
pub(crate) fn take(handle: u64) -> Result<(Embedded, bool), NoEngine> {
    if process_of(handle) == std::process::id() {
        let mut place = find(handle)?;
        let is_broken = place.is_broken;
        return place.engine.take().map(|engine| (engine, is_broken)).ok_or(NoEngine::Closed);
    }
    let inherited = place_of(handle).and_then(try_lock);
    if let Some(mut place) = inherited.filter(|place| place.handle == handle)
        && let Some(engine) = place.engine.take()
    {
        engine.abandon();
    }
    Err(NoEngine::Forked)
}

fn find(handle: u64) -> Result<MutexGuard<'static, EngineSlot>, NoEngine> {
    if process_of(handle) != std::process::id() {
        return Err(if handle == 0 { NoEngine::Closed } else { NoEngine::Forked });
    }
    let place = place_of(handle).ok_or(NoEngine::Closed)?;
    // A poisoned lock can be ignored, because `is_broken` records a panic in a call.
    let place = place.lock().unwrap_or_else(PoisonError::into_inner);
    if place.handle == handle { Ok(place) } else { Err(NoEngine::Closed) }
}

fn process_of(handle: u64) -> u32 {
    // The upper half always fits into 32 bits.
    u32::try_from(handle >> 32).unwrap_or_default()
}

fn place_of(handle: u64) -> Option<&'static Mutex<EngineSlot>> {
    TABLE.get(usize::try_from(handle & ((1 << PLACE_BITS) - 1)).ok()?)
}

fn try_lock(place: &'static Mutex<EngineSlot>) -> Option<MutexGuard<'static, EngineSlot>> {
    match place.try_lock() {
        Ok(place) => Some(place),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
