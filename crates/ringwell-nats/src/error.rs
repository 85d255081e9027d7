//! The reasons why the servers cannot keep journals.

use ringwell_config::Replicated;

/// The server version that Ringwell is tested with: this minor version, with this patch version or
/// a later one.
pub(crate) const VERSION: (u32, u32, u32) = (2, 15, 2);

/// The reason why the servers cannot keep journals.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// A thread could not be started.
    #[error("cannot start the thread that talks to the journal's servers: {0}")]
    Thread(#[from] std::io::Error),
    /// No connection.
    #[error("the journal's servers ({servers}) cannot be reached: {reason}")]
    Unreached {
        /// The addresses of the servers.
        servers: String,
        /// The reason.
        reason: String,
    },
    /// A setting of a server or a stream could cause answered allocations to be lost.
    #[error(transparent)]
    Unfit(#[from] Unfit),
}

/// A setting that could cause answered allocations to be lost.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// Ringwell is not tested with this version of the server.
    #[error(
        "the journal's server {server} has version {version}, but Ringwell requires {}.{}.{} or a \
         newer {}.{} release: older versions have lost acknowledged messages, and other versions \
         are not tested",
        VERSION.0, VERSION.1, VERSION.2, VERSION.0, VERSION.1
    )]
    Version {
        /// The server's name.
        server: String,
        /// The server's version.
        version: String,
    },
    /// A server does not flush each message to its disk.
    #[error(
        "the journal's server {server} does not flush each message to its disk: set \
         `sync_interval: always` in `jetstream` of its configuration. With the default, a power \
         cut can lose two minutes of answered allocations"
    )]
    NotSynced {
        /// The server's name.
        server: String,
    },
    /// A journal's groups may be too long for the messages that the servers accept.
    #[error(
        "the journal's servers accept messages of at most {bytes} bytes: set `max_payload: 2MB` in \
         their configuration"
    )]
    Payload {
        /// The largest message that the servers accept, in bytes.
        bytes: usize,
    },
    /// A stream could not be created.
    #[error("the stream {stream} cannot be created: {reason}")]
    NotMade {
        /// The stream's name.
        stream: String,
        /// The server's answer.
        reason: String,
    },
    /// A stream was created for another placement of pools.
    #[error(
        "the stream {stream} was created for another placement of pools on shards ({made_for:?}; \
         the current one is {wanted:?}), so the lockouts of this shard's pools may be in the \
         streams of other shards. Go back to the previous cluster file; or stop all nodes for \
         the longest lifetime of any pool, and then start them with another `stream`"
    )]
    Placement {
        /// The stream's name.
        stream: String,
        /// The placement for which the stream was created.
        made_for: String,
        /// The placement of this process.
        wanted: String,
    },
    /// A stream does not record the placement of pools for which it was created.
    #[error(
        "the metadata of the stream {stream} are missing: they name the placement of pools on \
         shards, and another program has removed them. If neither the cluster file nor the number \
         of shards has changed since this stream was last used, write them back with `nats stream \
         edit {stream} --metadata={key}={wanted}`. Otherwise, stop all nodes for the longest \
         lifetime of any pool, and then start them with another `stream`"
    )]
    NoPlacement {
        /// The stream's name.
        stream: String,
        /// The name of the entry in the metadata.
        key: &'static str,
        /// The placement of this process.
        wanted: String,
    },
    /// A setting of a stream does not have the required value.
    #[error("the stream {stream} has {setting} = {found}, but must have {wanted}: {remedy}")]
    Setting {
        /// The stream's name.
        stream: String,
        /// The setting.
        setting: &'static str,
        /// The value of the setting.
        found: String,
        /// The required value.
        wanted: String,
        /// The remedy, as an instruction to the operator.
        remedy: String,
    },
}

pub(crate) fn unreached(settings: &Replicated, reason: &str) -> NatsError {
    NatsError::Unreached { servers: settings.shown_servers(), reason: reason.to_owned() }
}
