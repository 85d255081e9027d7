//! Reads many messages from a stream in order, through a temporary consumer.
//!
//! The servers send the messages unencoded, many for each request. If each message is read with its
//! own request, reading takes several times as long, because the servers then send each message as
//! base64 in JSON. The consumer may be on a server that is not the stream's leader, so its messages
//! cannot be trusted. The driver accepts them only as long as they form a hash chain, and reads the
//! remaining messages one by one. Source: docs/spec/log.md, "JetStream".

use std::ops::Range;
use std::time::Duration;

use async_nats::{Client, Request};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The time limit for creating the consumer. If the permissions on the servers were configured for
/// an earlier release of Ringwell, the servers do not answer the request to create it.
const CREATE_MAX: Duration = Duration::from_millis(500);

/// The time limit for the next message to arrive.
const NEXT_MAX: Duration = Duration::from_secs(1);

/// The time without a request after which the servers remove the consumer.
const UNUSED_MAX: Duration = Duration::from_secs(10);

/// The number of messages that one request asks for. Two requests are in progress at a time. A
/// message is at most 1 MiB long.
const BATCH: u64 = 64;

/// The maximum number of messages that are waiting for the caller to receive them.
const QUEUE: usize = 64;

/// Reads the messages at `places` in a stream. If reading fails, the returned receiver ends before
/// the last of them.
pub(crate) fn read(
    client: Client,
    runtime: &Handle,
    stream: String,
    places: Range<u64>,
) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    runtime.spawn(async move {
        if let Err(reason) = pull(&client, &stream, places, &sender).await {
            tracing::info!(
                stream,
                reason,
                "cannot prefetch the stream's messages: reading them one by one"
            );
        }
    });
    receiver
}

async fn pull(
    client: &Client,
    stream: &str,
    places: Range<u64>,
    sender: &mpsc::Sender<Bytes>,
) -> Result<(), String> {
    let inbox = client.new_inbox();
    let consumer = format!("ringwell_{}", inbox.rsplit('.').next().unwrap_or_default());
    create(client, stream, &consumer, places.start).await?;
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut messages = client.subscribe(inbox.clone()).await.map_err(|e| text(&e))?;
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
    let expires = u64::try_from(UNUSED_MAX.as_nanos()).unwrap_or(u64::MAX);
    let request = Bytes::from(json!({ "batch": BATCH, "expires": expires }).to_string());
    let ask = || client.publish_with_reply(next.clone(), inbox.clone(), request.clone());
    for _ in 0..2 {
        ask().await.map_err(|e| text(&e))?;
    }
    let mut received = 0;
    loop {
        let message = timeout(NEXT_MAX, messages.next()).await;
        let message = message.ok().flatten().ok_or("the next message did not arrive in time")?;
        if let Some(status) = message.status {
            return Err(format!("the servers answer {status}"));
        }
        let place = message.reply.as_deref().and_then(place);
        let place = place.ok_or("a message does not contain its position in the stream")?;
        // If the caller has dropped the receiver, it needs no more messages.
        if sender.send(message.payload).await.is_err() || place + 1 >= places.end {
            return Ok(());
        }
        received += 1;
        if received % BATCH == 0 {
            ask().await.map_err(|e| text(&e))?;
        }
    }
}

async fn create(client: &Client, stream: &str, name: &str, first: u64) -> Result<(), String> {
    let config = json!({
        "name": name,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": first,
        "ack_policy": "none",
        "replay_policy": "instant",
        "inactive_threshold": u64::try_from(UNUSED_MAX.as_nanos()).unwrap_or(u64::MAX),
        "mem_storage": true,
        "num_replicas": 1,
    });
    let body = json!({ "stream_name": stream, "config": config, "action": "create" });
    let request = Request::new().payload(body.to_string().into()).timeout(Some(CREATE_MAX));
    let subject = format!("$JS.API.CONSUMER.CREATE.{stream}.{name}");
    let answer = client.send_request(subject, request).await.map_err(|error| error.to_string())?;
    let answer: Value =
        serde_json::from_slice(&answer.payload).map_err(|error| error.to_string())?;
    match &answer["error"]["description"] {
        Value::Null => Ok(()),
        error => Err(error.to_string()),
    }
}

/// Returns a message's place in its stream. It is part of the subject for the acknowledgement:
/// `$JS.ACK.<stream>.<consumer>.<deliveries>.<place>...`. In newer versions of NATS, a domain and
/// an account precede the stream.
fn place(reply: &str) -> Option<u64> {
    let parts: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
    parts.get(if parts.len() < 8 { 3 } else { 5 })?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_message_is_read_from_both_forms_of_its_reply() {
        assert_eq!(place("$JS.ACK.R_0.ringwell_x.1.4711.17.1700000000000000000.5"), Some(4_711));
        let later = "$JS.ACK._.ACCOUNT.R_0.ringwell_x.1.4711.17.1700000000000000000.5.abc";
        assert_eq!(place(later), Some(4_711));
        assert_eq!(place("_INBOX.x.y"), None);
        assert_eq!(place("$JS.ACK.R_0"), None);
    }
}
