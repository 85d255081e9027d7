//! The priority of threads that run beside the shards' threads.

use rustix::io;
use rustix::process::{getpid, getpriority_process, setpriority_process};

/// The amount by which a thread's niceness is raised. If the thread and a shard need the same core,
/// the thread then gets a third of the shard's CPU time.
const NICENESS: i32 = 5;
/// The niceness of a thread with the lowest priority.
const NICENESS_MAX: i32 = 19;

/// Lowers the calling thread's priority below that of the shards. Threads that it starts later
/// inherit this priority. The shards have the priority of the process. On Linux, each thread has
/// its own niceness.
pub fn lower_priority() {
    if let Err(error) = lower() {
        tracing::warn!(%error, "cannot lower the priority of a thread below that of the shards");
    }
}

fn lower() -> io::Result<()> {
    // Reads the priority of the process's first thread, which never changes. It is not always 0,
    // because the server may have been started with `nice`.
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
            lower_priority();
            let first = getpriority_process(None).unwrap();
            lower_priority();
            (first, std::thread::spawn(|| getpriority_process(None).unwrap()).join().unwrap())
        });
        let expected = (of_process + NICENESS).min(NICENESS_MAX);
        assert_eq!(stepped_back.join().unwrap(), (expected, expected));
        assert_eq!(getpriority_process(Some(getpid())).unwrap(), of_process);
    }
}
