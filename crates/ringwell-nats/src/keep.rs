//! Finds the notes of streams at startup, and stores changed ones while the process serves.

use std::collections::BTreeSet;
use std::time::Duration;

use ringwell_directory::Replicated;
use ringwell_driver::store::{Gaps, LogNotes, Unreached};
use tokio::time::sleep;

use crate::error::NatsError;
use crate::notes::{read, write};
use crate::stream::Stream;

/// The interval at which changed notes are stored.
const EVERY: Duration = Duration::from_secs(1);

/// The pause after a failure.
const TRY_AGAIN: Duration = Duration::from_secs(30);

impl Stream {
    /// Its notes, and the place after the last message that it has ever had; `None` if it does not exist.
    pub(crate) async fn find(
        &self,
        settings: &Replicated,
    ) -> Result<Option<(LogNotes, u64)>, NatsError> {
        let found = self.info(settings).await?;
        Ok(found.map(|(config, last)| (read(&config), last + 1)))
    }

    /// Adds shards and gaps to its notes.
    async fn note(&self, shards: &BTreeSet<u16>, gaps: &Gaps) -> Result<(), Unreached> {
        let mut config = self.config().await?;
        let before = read(&config);
        let mut notes = before.clone();
        notes.shards.extend(shards);
        notes.gaps.merge(gaps);
        if notes == before {
            return Ok(());
        }
        write(&mut config, &notes);
        self.update(&config).await
    }
}

/// Keeps the notes of these streams, as long as the process runs.
pub(crate) async fn keep(
    streams: Vec<Stream>,
    shards: BTreeSet<u16>,
    gaps: Box<dyn Fn() -> Gaps + Send>,
) {
    let mut kept = None;
    loop {
        let wanted = gaps();
        let mut pause = EVERY;
        if kept.as_ref() != Some(&wanted) {
            let mut failed = None;
            for stream in &streams {
                failed = stream.note(&shards, &wanted).await.err().or(failed);
            }
            match failed {
                None => kept = Some(wanted),
                Some(error) => {
                    tracing::warn!(
                        %error,
                        "the notes of the journal's streams cannot be updated, which needs the \
                         permission to publish $JS.API.STREAM.UPDATE.*"
                    );
                    pause = TRY_AGAIN;
                }
            }
        }
        sleep(pause).await;
    }
}
