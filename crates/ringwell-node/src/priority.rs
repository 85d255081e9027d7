//! The priority of the threads that run beside the shards.

use rustix::io;
use rustix::process::{getpid, getpriority_process, setpriority_process};

/// This niceness gives a third of a shard's share if both need the same core.
const NICENESS: i32 = 5;
/// The niceness of the lowest priority.
const NICENESS_MAX: i32 = 19;

/// Lowers the priority of the calling thread, and of the threads that it starts, below that of the
/// shards, which have the priority of the process. Linux applies niceness to threads.
pub fn step_back() {
    if let Err(error) = lower() {
        tracing::warn!(%error, "cannot lower the priority of a thread below that of the shards");
    }
}

fn lower() -> io::Result<()> {
    // Uses the priority of the first thread, which keeps it: the server may have been started with
    // `nice`.
    let of_process = getpriority_process(Some(getpid()))?;
    setpriority_process(None, (of_process + NICENESS).min(NICENESS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_steps_back_behind_the_process_once() {
        let of_process = getpriority_process(Some(getpid())).unwrap();
        let stepped_back = std::thread::spawn(|| {
            step_back();
            let first = getpriority_process(None).unwrap();
            step_back();
            (first, std::thread::spawn(|| getpriority_process(None).unwrap()).join().unwrap())
        });
        let expected = (of_process + NICENESS).min(NICENESS_MAX);
        assert_eq!(stepped_back.join().unwrap(), (expected, expected));
        assert_eq!(getpriority_process(Some(getpid())).unwrap(), of_process);
    }
}
