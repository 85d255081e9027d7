//! Finds the streams' notes at startup, and stores notes that change while the process serves.

use std::collections::BTreeSet;
use std::time::Duration;

use ringwell_config::Replicated;
use ringwell_driver::store::{KeptNotes, LogEnd, LogNotes, Unreached};
use tokio::time::sleep;

use crate::error::NatsError;
use crate::notes::{read, write};
use crate::stream::Stream;

/// The interval at which notes that have changed are stored.
const EVERY: Duration = Duration::from_secs(1);

/// The pause after a failure.
const TRY_AGAIN: Duration = Duration::from_secs(30);

impl Stream {
    /// Returns the stream's notes, and the place after the last message that the stream ever had;
    /// `None` if the stream does not exist.
    pub(crate) async fn find(
        &self,
        settings: &Replicated,
    ) -> Result<Option<(LogNotes, u64)>, NatsError> {
        let found = self.info(settings).await?;
        Ok(found.map(|(config, last)| (read(&config), last + 1)))
    }

    /// Adds shards, gaps and overflow periods to the notes, and replaces the position at which a process noticed a
    /// loss.
    async fn note(
        &self,
        shards: &BTreeSet<u16>,
        kept: &KeptNotes,
        failed_at: Option<LogEnd>,
    ) -> Result<(), Unreached> {
        let mut config = self.config().await?;
        let before = read(&config);
        let mut notes = before.clone();
        notes.shards.extend(shards);
        notes.gaps.merge(&kept.gaps);
        notes.overflow.merge(&kept.overflow);
        notes.failed_at = failed_at.unwrap_or(notes.failed_at);
        if notes == before {
            return Ok(());
        }
        write(&mut config, &notes);
        self.update(&config).await
    }
}

/// Keeps the notes of these streams up to date as long as the process runs.
pub(crate) async fn keep(
    streams: Vec<(u16, Stream)>,
    shards: BTreeSet<u16>,
    facts: Box<dyn Fn() -> KeptNotes + Send>,
) {
    let mut kept = None;
    loop {
        let wanted = facts();
        let mut pause = EVERY;
        if kept.as_ref() != Some(&wanted) {
            let mut failed = None;
            for (shard, stream) in &streams {
                let failed_at = wanted.failed_at.get(shard).copied();
                failed = stream.note(&shards, &wanted, failed_at).await.err().or(failed);
            }
            match failed {
                None => kept = Some(wanted),
                Some(error) => {
                    tracing::warn!(
                        %error,
                        "the notes of the journal's streams cannot be updated; this needs the \
                         permission to publish $JS.API.STREAM.UPDATE.*"
                    );
                    pause = TRY_AGAIN;
                }
            }
        }
        sleep(pause).await;
    }
}
