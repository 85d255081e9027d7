//! Heartbeats: a serving process reports that it is alive, and candidates wait until these reports
//! stop.
//!
//! Heartbeats are not stored. A heartbeat that is lost, late or stale can cause overflow numbers.
//! It never makes two processes hand out the same number, because only the log decides which
//! process owns a shard. The time without heartbeats (the *silence*) is measured with this
//! machine's clock, and only while the streams answer. The election of a stream's leader is
//! therefore not mistaken for a failed process. `ringwell_driver::store::Silence` decides when the
//! silence has lasted long enough. Source: docs/spec/log.md, "Standby".

use std::time::Duration;

use async_nats::Client;
use futures_util::StreamExt;
use ringwell_config::Replicated;
use ringwell_core::Millis;
use ringwell_driver::Moment;
use ringwell_driver::store::{APART, BEAT_EVERY, Beat, LastHeartbeat, Sign, Silence};
use tokio::time::{Instant, sleep, timeout};

use crate::stream::Stream;

/// The content of the last heartbeat that a process sends when it shuts down normally.
const END: &[u8] = b"end";

/// The content of the heartbeats that a process sends while it takes over the shards.
const STARTING: &[u8] = b"starting";

/// The pause before servers that do not answer are tried again.
const PAUSE: Duration = Duration::from_millis(250);

/// The subject on which heartbeats are published.
#[derive(Debug)]
pub(crate) struct Beats {
    client: Client,
    subject: String,
}

impl Beats {
    /// Selects the heartbeats of the processes that serve, or could serve, the shards from `first`
    /// on.
    pub(crate) fn new(client: Client, settings: &Replicated, first: u16) -> Self {
        Self { client, subject: format!("{}.beat.{first}", settings.stream.to_ascii_lowercase()) }
    }

    /// Sends heartbeats until `beat` returns `None`.
    pub(crate) async fn send(self, beat: impl Fn() -> Option<Beat>) {
        while let Some(beat) = beat() {
            // If this fails, the servers cannot be reached: no candidate receives the heartbeat,
            // and none can take over.
            let _ = self.client.publish(self.subject.clone(), text(&beat).into()).await;
            let _ = self.client.flush().await;
            sleep(BEAT_EVERY).await;
        }
    }

    /// Reports that this process has stored everything and no longer serves requests.
    pub(crate) async fn end(self) {
        let _ = self.client.publish(self.subject.clone(), text(&Beat::End).into()).await;
        let _ = self.client.flush().await;
    }

    /// Waits until the silence has lasted long enough, or until the serving process has reported
    /// its end. The silence does not count while the streams do not answer. Returns the last
    /// heartbeat that contained a time, if one arrived.
    pub(crate) async fn silence(&self, stream: &Stream) -> Option<LastHeartbeat> {
        let mut beats = loop {
            match self.client.subscribe(self.subject.clone()).await {
                Ok(beats) => break beats,
                Err(error) => {
                    tracing::warn!(%error, "the journal's servers do not answer yet");
                    sleep(PAUSE).await;
                }
            }
        };
        let begun = Instant::now();
        let now = || Moment(begun.elapsed());
        let (mut silence, mut has_reported) = (Silence::begin(now(), self.apart()), false);
        loop {
            let left = silence.left(now());
            match timeout(left.min(BEAT_EVERY), beats.next()).await {
                Ok(beat) => {
                    let beat = beat.map(|beat| parse(&beat.payload));
                    silence.received(beat.unwrap_or(Beat::Serving(None)), now());
                    if !has_reported {
                        tracing::info!("another process is serving: standing by");
                        has_reported = true;
                    }
                }
                // There are no more heartbeats to read.
                Err(_) if silence.left(now()).is_zero() => break,
                Err(_) => {
                    if !stream.answers().await {
                        sleep(PAUSE).await;
                        silence.unanswered(now());
                    }
                }
            }
        }
        silence.last_heartbeat(now())
    }

    /// A delay that differs from process to process.
    fn apart(&self) -> Duration {
        let drawn = u64::from(std::process::id()) ^ self.client.server_info().client_id;
        let apart = u64::try_from(APART.as_millis()).unwrap_or(u64::MAX).max(1);
        Duration::from_millis(drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15) % apart)
    }
}

/// Returns the content of a heartbeat. A serving process's heartbeat contains its shard time, its
/// shards' epochs, and each shard's newest stored group.
fn text(beat: &Beat) -> Vec<u8> {
    match beat {
        Beat::Starting => STARTING.to_vec(),
        Beat::End => END.to_vec(),
        Beat::Serving(None) => Vec::new(),
        Beat::Serving(Some(sign)) => {
            let list =
                |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            let (epochs, stored) = (list(&sign.epochs), list(&sign.stored));
            let stored = if stored.is_empty() { stored } else { format!(" stored {stored}") };
            format!("at {} epochs {epochs}{stored}", sign.at.0).into_bytes()
        }
    }
}

/// Parses the content of a heartbeat. Heartbeats of earlier releases are empty.
fn parse(beat: &[u8]) -> Beat {
    match beat {
        STARTING => Beat::Starting,
        END => Beat::End,
        serving => Beat::Serving(parse_sign(serving)),
    }
}

fn parse_sign(beat: &[u8]) -> Option<Sign> {
    let text = std::str::from_utf8(beat).ok()?.strip_prefix("at ")?;
    let (at, lists) = text.split_once(" epochs ")?;
    let list = |text: &str| text.split(',').map(|it| it.parse().ok()).collect::<Option<Vec<u64>>>();
    // Earlier releases do not report which groups are stored.
    let (epochs, stored) = match lists.split_once(" stored ") {
        Some((epochs, stored)) => (list(epochs)?, list(stored)?),
        None => (list(lists)?, Vec::new()),
    };
    Some(Sign { at: Millis(at.parse().ok()?), epochs, stored })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_has_the_time_and_the_epochs_or_is_invalid() {
        let at = Millis(1_700_000_000_123);
        let earlier = Sign { at, epochs: vec![3, 12], stored: Vec::new() };
        let sign = Sign { stored: vec![0, 99], ..earlier.clone() };
        let [earlier, serving] = [earlier, sign].map(|sign| Beat::Serving(Some(sign)));
        assert_eq!(text(&earlier), b"at 1700000000123 epochs 3,12");
        assert_eq!(text(&serving), b"at 1700000000123 epochs 3,12 stored 0,99");
        for beat in [earlier, serving, Beat::Serving(None), Beat::Starting, Beat::End] {
            assert_eq!(parse(&text(&beat)), beat);
        }
        for none in [
            "",
            "at ",
            "at 5",
            "at -1 epochs 1",
            "at 1 epochs ",
            "at 1 epochs 1,x",
            "at 1 epochs 1 stored ",
        ] {
            assert_eq!(parse(none.as_bytes()), Beat::Serving(None), "{none}");
        }
        assert_eq!(parse(b"\xff"), Beat::Serving(None));
    }
}
