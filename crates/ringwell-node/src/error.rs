//! The reasons why a node does not start, or shuts down with unsaved data. The messages are for the
//! operator.

use std::io;
use std::path::PathBuf;

use ringwell_driver::open::StartError;

use crate::disk;
use crate::listen::ListenError;

/// The reason why a node did not start, or shut down with unsaved data.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another process is already serving from this data directory.
    #[error(transparent)]
    Lock(#[from] disk::LockError),
    /// The node cannot listen on an address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The TLS certificate for client connections cannot be used.
    #[error(transparent)]
    Tls(#[from] crate::TlsError),
    /// A journal or a snapshot cannot be opened.
    #[error(transparent)]
    Open(#[from] disk::OpenError),
    /// The data directory cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Data {
        /// The file that could not be read.
        path: PathBuf,
        /// The reason why it could not be read.
        error: io::Error,
    },
    /// The path of the data directory is not a directory, and no directory can be created there.
    #[error(
        "cannot create the data directory {}: {error}. Set another directory with `data` or --data",
        path.display()
    )]
    DataDirectory {
        /// The part of the path that causes the failure.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The data directory was created by a node with other shards.
    #[error(
        "{} contains the journal of shard {shard}, but the cluster file does not assign that shard \
         to node {node}, so the journal's lockouts would be lost: start with the cluster file with \
         which the data was created, or set another data directory",
        data.display()
    )]
    ForeignShard {
        /// The shard.
        shard: u16,
        /// The data directory.
        data: PathBuf,
        /// The name of this node.
        node: String,
    },
    /// A node of a cluster would keep its allocations only in memory.
    #[error(
        "a node of a cluster cannot use durability `memory`: after a restart, other nodes would \
         name earlier visitors for the numbers that it handed out. Use \"disk\" or \"os\""
    )]
    MemoryInCluster,
    /// The files in the data directory contradict the pools or the cluster file, or cannot be used.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The store that keeps the journals cannot be used.
    #[error("{0}")]
    Log(String),
    /// A file of the journal cannot be used.
    #[error(transparent)]
    File(#[from] disk::FileError),
    /// A thread or a runtime could not be started.
    #[error(
        "cannot start a thread: {0}. Each shard needs four threads: use fewer shards (`shards`), \
         or allow more threads (TasksMax= of the service, `ulimit -u`, the container's process \
         limit) or more memory"
    )]
    Thread(io::Error),
    /// A bug in Ringwell caused a failure while a journal was read.
    #[error(
        "reading a journal failed because of a bug in Ringwell: see the log for the line of \
        code, and report the bug"
    )]
    ReaderPanicked,
    /// A bug in Ringwell ended a shard's thread while the node was serving.
    #[error(
        "a shard's thread ended because of a bug in Ringwell: see the log for the line of \
        code, and report the bug"
    )]
    ShardPanicked,
    /// Lockouts were lengthened because the clock was far ahead of the journal, but the change
    /// could not be stored.
    #[error(
        "shard {shard}: the clock is far ahead of the journal, so lockouts were lengthened, but \
            the snapshot that records the change could not be written: {reason}. Correct the \
            cause (for example, free up disk space), and start the server again"
    )]
    NoSnapshot {
        /// The shard.
        shard: u16,
        /// The reason.
        reason: String,
    },
    /// A shard could not write its last records to the disk.
    #[error(
        "shard {shard} stopped before its last records were written to the disk; the numbers in \
            those records were not handed out"
    )]
    Unsaved {
        /// The shard.
        shard: u16,
    },
}
