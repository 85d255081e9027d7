//! Signs of life of the process that serves, and waiting for their end.
//!
//! Messages without storage: a beat that is lost, late or stale costs overflow numbers, never a number
//! twice, because only the log decides who owns a shard. Silence is counted on this machine's clock, and
//! only while the streams answer, so that the election of a leader does not look like a death.
//! Source: docs/spec/log.md, "Standing by".

use std::time::Duration;

use async_nats::Client;
use futures_util::StreamExt;
use ringwell_directory::Replicated;
use tokio::time::{Instant, sleep, timeout};

use crate::stream::Stream;

/// The interval at which a serving process reports.
const EVERY: Duration = Duration::from_millis(500);

/// Silence for this long means that no node serves.
const SILENCE: Duration = Duration::from_secs(3);

/// Candidates wait up to this longer, each for another time.
const APART: Duration = Duration::from_secs(1);

/// The content of the last beat of a process that stops in order.
const END: &[u8] = b"end";

/// Pause before servers that do not answer are asked again.
const PAUSE: Duration = Duration::from_millis(250);

/// The subject of beats.
#[derive(Debug)]
pub(crate) struct Beats {
    client: Client,
    subject: String,
}

impl Beats {
    /// Of the processes that serve, or would serve, the shards of which `first` is the first.
    pub(crate) fn new(client: Client, settings: &Replicated, first: u16) -> Self {
        Self { client, subject: format!("{}.beat.{first}", settings.stream.to_ascii_lowercase()) }
    }

    /// Beats until the process ends or does not serve any more.
    pub(crate) async fn send(self, is_serving: impl Fn() -> bool) {
        while is_serving() {
            // Without a connection no node receives it, and none can take over.
            let _ = self.client.publish(self.subject.clone(), "".into()).await;
            let _ = self.client.flush().await;
            sleep(EVERY).await;
        }
    }

    /// Says that this process has stored everything and serves no more.
    pub(crate) async fn end(self) {
        let _ = self.client.publish(self.subject.clone(), END.into()).await;
        let _ = self.client.flush().await;
    }

    /// Returns when no beat has come for long enough while the streams answered, or when the process
    /// that serves has said that it has ended.
    pub(crate) async fn silence(&self, stream: &Stream) {
        let mut wanted = SILENCE + self.apart();
        let mut beats = loop {
            match self.client.subscribe(self.subject.clone()).await {
                Ok(beats) => break beats,
                Err(error) => {
                    tracing::warn!(%error, "the journal's servers do not answer yet");
                    sleep(PAUSE).await;
                }
            }
        };
        let (mut since, mut has_reported) = (Instant::now(), false);
        while since.elapsed() < wanted {
            match timeout(EVERY, beats.next()).await {
                Ok(beat) => {
                    since = Instant::now();
                    let is_end = beat.is_some_and(|beat| *beat.payload == *END);
                    wanted = self.apart() + if is_end { Duration::ZERO } else { SILENCE };
                    if !has_reported {
                        tracing::info!("another process serves: standing by");
                        has_reported = true;
                    }
                }
                Err(_) => {
                    if !stream.answers().await {
                        sleep(PAUSE).await;
                        since = Instant::now();
                    }
                }
            }
        }
    }

    /// A time of this process's own.
    fn apart(&self) -> Duration {
        let drawn = u64::from(std::process::id()) ^ self.client.server_info().client_id;
        let apart = u64::try_from(APART.as_millis()).unwrap_or(u64::MAX).max(1);
        Duration::from_millis(drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15) % apart)
    }
}
