//! One shard's stream: appending, reading, and interpreting the answers.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_nats::client::{RequestError, RequestErrorKind};
use async_nats::{Client, HeaderMap, Message, Request};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ringwell_config::Replicated;
use ringwell_driver::store::{LogNotes, NotAppended, SharedLog, Unreached, Waiting};
use ringwell_journal::decode_message;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::ahead;
use crate::check::{
    PLACEMENT, config as wanted_config, placement as check_placement, stream as check_stream,
};
use crate::error::{NatsError, Unfit, unreached};
use crate::notes;
use crate::reach::Reach;

/// The time after which an append without an answer counts as possibly lost, because the stream's
/// leader may have failed.
const APPEND_MAX: Duration = Duration::from_secs(2);

/// The time after which any other request without an answer counts as lost.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// The initial and the maximum delay before an unanswered read-only request is sent again. While a
/// stream has no leader, no server answers. The next leader does not receive the requests that were
/// sent before its election.
const AGAIN_MIN: Duration = Duration::from_millis(250);
const AGAIN_MAX: Duration = Duration::from_millis(500);

/// The time after which a caller stops waiting for an answer.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);

/// The stream does not end at the place that the append expected: `JSStreamWrongLastSequenceErrF`.
const WRONG_LAST_SEQUENCE: u64 = 10_071;
/// The stream has no space left: `JSStreamStoreFailedF`, `JSInsufficientResourcesErr`,
/// `JSStorageResourcesExceededErr`.
const NO_ROOM: [u64; 3] = [10_077, 10_023, 10_047];
/// The message is too long for the stream: `JSStreamMessageExceedsMaximumErr`.
const TOO_LONG: u64 = 10_054;
/// The stream has no message with the requested number: `JSNoMessageFoundErr`.
const NO_MESSAGE: u64 = 10_037;
/// The requested stream does not exist: `JSStreamNotFoundErr`.
const NO_STREAM: u64 = 10_059;

/// The number of other servers that a look-up asks for a message that the stream's leader has lost.
const OTHERS: u32 = 2;

/// A stream.
#[derive(Clone)]
pub(crate) struct Stream {
    client: Client,
    reach: Arc<Reach>,
    runtime: Handle,
    name: String,
    /// The subjects of messages: one for groups, or two for the pieces of snapshots and for their
    /// indexes.
    subjects: Vec<String>,
}

/// The kind of a message in a snapshot stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Piece,
    Index,
}

/// The answer from a stream or from JetStream's API.
#[derive(Debug, Deserialize)]
struct StreamReply {
    error: Option<ApiError>,
    seq: Option<u64>,
    #[serde(default)]
    duplicate: bool,
    message: Option<StoredMessage>,
    config: Option<Value>,
    state: Option<StreamState>,
    cluster: Option<Cluster>,
}

#[derive(Debug, Deserialize)]
struct ApiError {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

#[derive(Debug, Deserialize)]
struct StoredMessage {
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    data: String,
    #[serde(default)]
    subject: String,
    #[serde(default)]
    time: String,
    /// The message's headers, in base64.
    #[serde(default)]
    hdrs: String,
}

#[derive(Debug, Deserialize)]
struct StreamState {
    first_seq: u64,
    last_seq: u64,
    #[serde(default)]
    bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
struct Cluster {
    #[serde(default)]
    leader: String,
    #[serde(default)]
    replicas: Vec<Replica>,
}

#[derive(Debug, Deserialize)]
struct Replica {
    name: String,
    #[serde(default)]
    current: bool,
}

/// The current state of a stream.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The server that is the stream's leader.
    pub(crate) leader: String,
    /// The servers that do not have the whole stream.
    pub(crate) behind: Vec<String>,
    /// The length of the stream.
    pub(crate) bytes: u64,
    /// The number of messages from other programs; 0 if it is unknown because the last message is
    /// not a group.
    pub(crate) foreign: u64,
}

impl Stream {
    pub(crate) fn new(client: Client, reach: Arc<Reach>, runtime: Handle, name: String) -> Self {
        let subjects = vec![format!("{}.groups", name.to_ascii_lowercase())];
        Self { client, reach, runtime, name, subjects }
    }

    /// Creates a handle to a snapshot stream.
    pub(crate) fn of_snapshots(client: Client, runtime: Handle, name: String) -> Self {
        let prefix = name.to_ascii_lowercase();
        let subjects = vec![format!("{prefix}.pieces"), format!("{prefix}.index")];
        Self { client, reach: Arc::default(), runtime, name, subjects }
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Opens the stream, checks whether it can be trusted, and creates it with `notes` if it does
    /// not exist. `placement` identifies the stream's pools. If `placement` is empty, the stream
    /// may contain any pools.
    pub(crate) async fn open(
        &self,
        settings: &Replicated,
        placement: &str,
        notes: &LogNotes,
    ) -> Result<(), NatsError> {
        let config = match self.ask("INFO", &json!({})).await {
            Ok(answer) => answer.config,
            Err(Problem::Api(error)) if error.err_code == NO_STREAM => {
                let mut wanted = wanted_config(&self.name, &self.subjects, settings);
                if !placement.is_empty() {
                    wanted["metadata"] = json!({ PLACEMENT: placement });
                }
                notes::write(&mut wanted, notes);
                match self.ask("CREATE", &wanted).await {
                    Ok(answer) => answer.config,
                    Err(Problem::Api(error)) => {
                        let (stream, reason) = (self.name.clone(), error.description);
                        return Err(Unfit::NotMade { stream, reason }.into());
                    }
                    Err(Problem::Silent(why)) => return Err(unreached(settings, &why)),
                }
            }
            Err(Problem::Api(error)) => return Err(unreached(settings, &error.description)),
            Err(Problem::Silent(why)) => return Err(unreached(settings, &why)),
        };
        let config = config.unwrap_or_default();
        check_stream(&self.name, &self.subjects, &config, settings)?;
        check_placement(&self.name, &config, placement)?;
        Ok(())
    }

    /// Returns the stream's configuration and the number of its last message; `None` if the stream
    /// does not exist.
    pub(crate) async fn info(
        &self,
        settings: &Replicated,
    ) -> Result<Option<(Value, u64)>, NatsError> {
        match self.ask("INFO", &json!({})).await {
            Ok(StreamReply { config, state, .. }) => {
                let last = state.map_or(0, |state| state.last_seq);
                Ok(Some((config.unwrap_or_default(), last)))
            }
            Err(Problem::Api(error)) if error.err_code == NO_STREAM => Ok(None),
            Err(Problem::Api(error)) => Err(unreached(settings, &error.description)),
            Err(Problem::Silent(why)) => Err(unreached(settings, &why)),
        }
    }

    /// Returns the stream's configuration.
    pub(crate) async fn config(&self) -> Result<Value, Unreached> {
        let config = self.ask("INFO", &json!({})).await?.config;
        config.ok_or_else(|| Unreached("the response contains no configuration".to_owned()))
    }

    /// Replaces the stream's configuration.
    pub(crate) async fn update(&self, config: &Value) -> Result<(), Unreached> {
        Ok(self.ask("UPDATE", config).await.map(|_| ())?)
    }

    /// Sends a request about this stream to JetStream's API.
    async fn ask(&self, what: &str, body: &Value) -> Result<StreamReply, Problem> {
        let subject = format!("$JS.API.STREAM.{what}.{}", self.name);
        let body = Bytes::from(body.to_string());
        let asked = Instant::now();
        let answer = self.answer(subject, body, ["INFO", "MSG.GET"].contains(&what)).await;
        let read = answer
            .map_err(|error| Problem::Silent(error.to_string()))
            .and_then(|answer| read_reply(&answer));
        // A server that has been cut off from the others for some time replies that JetStream is
        // not available.
        let is_answered = match &read {
            Ok(_) => true,
            Err(Problem::Api(error)) => [NO_MESSAGE, NO_STREAM].contains(&error.err_code),
            Err(Problem::Silent(_)) => false,
        };
        if !is_answered {
            self.reach.stuck(&self.client, asked).await;
        }
        read
    }

    /// Returns the first answer to a request. A request that changes nothing is sent repeatedly
    /// until an answer arrives.
    async fn answer(
        &self,
        subject: String,
        body: Bytes,
        is_repeatable: bool,
    ) -> Result<Message, RequestError> {
        let send = || {
            let request = Request::new().payload(body.clone()).timeout(Some(ANSWER_MAX));
            self.client.send_request(subject.clone(), request)
        };
        let (mut asked, mut pause) = (FuturesUnordered::from_iter([send()]), AGAIN_MIN);
        loop {
            tokio::select! {
                Some(answer) = asked.next() => return answer,
                () = sleep(pause), if is_repeatable => {
                    asked.push(send());
                    pause = (pause * 2).min(AGAIN_MAX);
                }
            }
        }
    }

    /// Reads the stream's state and settings without creating the stream; `None` if it does not
    /// exist.
    pub(crate) async fn look(&self, settings: &Replicated) -> Result<Option<Seen>, NatsError> {
        let answer = match self.ask("INFO", &json!({})).await {
            Ok(answer) => answer,
            Err(Problem::Api(error)) if error.err_code == NO_STREAM => return Ok(None),
            Err(Problem::Api(error)) => return Err(unreached(settings, &error.description)),
            Err(Problem::Silent(why)) => return Err(unreached(settings, &why)),
        };
        let config = answer.config.unwrap_or_default();
        check_stream(&self.name, &self.subjects, &config, settings)?;
        let Cluster { leader, replicas } = answer.cluster.unwrap_or_default();
        let behind = replicas.into_iter().filter(|it| !it.current).map(|it| it.name).collect();
        let (last, bytes) = answer.state.map_or((0, 0), |state| (state.last_seq, state.bytes));
        let newest = self.clone().read_now(last).await.ok().flatten();
        let group = newest.and_then(|bytes| Some(decode_message(&bytes).ok()?.1));
        let foreign = group.map_or(0, |group| last.saturating_sub(group.header.n));
        Ok(Some(Seen { leader, behind, bytes, foreign }))
    }

    /// Whether the stream's leader answers, or a server reports that the stream does not exist yet.
    pub(crate) async fn answers(&self) -> bool {
        match self.ask("INFO", &json!({})).await {
            Ok(_) => true,
            Err(Problem::Api(error)) => error.err_code == NO_STREAM,
            Err(Problem::Silent(_)) => false,
        }
    }

    async fn append_now(self, n: u64, message: Bytes) -> Result<(), NotAppended> {
        let asked = Instant::now();
        let appended = self.request_append(n, message).await;
        match &appended {
            Ok(()) | Err(NotAppended::Full | NotAppended::Refused(_)) => self.reach.progressed(),
            // A leader that is cut off from the other servers refuses messages because of its own
            // unfinished proposals.
            Err(NotAppended::Taken | NotAppended::Unknown) => {
                self.reach.stuck(&self.client, asked).await;
            }
        }
        appended
    }

    async fn request_append(&self, n: u64, message: Bytes) -> Result<(), NotAppended> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Stream", self.name.as_str());
        headers.insert("Nats-Expected-Last-Sequence", (n - 1).to_string().as_str());
        let request = Request::new().headers(headers).payload(message).timeout(Some(APPEND_MAX));
        let answer = match self.client.send_request(self.subjects[0].clone(), request).await {
            Ok(answer) => answer,
            Err(error) if error.kind() == RequestErrorKind::MaxPayloadExceeded => {
                return Err(NotAppended::Refused(error.to_string()));
            }
            Err(_) => return Err(NotAppended::Unknown),
        };
        judge(n, &answer.payload)
    }

    /// Appends a part of a snapshot to the stream, and returns its position.
    pub(crate) async fn add(self, kind: Kind, message: Bytes) -> Result<u64, Unreached> {
        let subject = match kind {
            Kind::Piece => &self.subjects[0],
            Kind::Index => &self.subjects[1],
        };
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Stream", self.name.as_str());
        let request = Request::new().headers(headers).payload(message).timeout(Some(ANSWER_MAX));
        let answer = self.client.send_request(subject.clone(), request).await;
        let answer = answer.map_err(|error| Unreached(error.to_string()))?;
        let read = serde_json::from_slice::<StreamReply>(&answer.payload);
        match read.map_err(|error| Unreached(error.to_string()))? {
            StreamReply { error: None, seq: Some(place), .. } => Ok(place),
            StreamReply { error, .. } => Err(Unreached(match error {
                Some(error) => format!("{} ({})", error.description, error.err_code),
                None => "the response contains no position".to_owned(),
            })),
        }
    }

    /// Returns the newest index of a snapshot, and its position.
    pub(crate) async fn newest_index(self) -> Result<Option<(u64, Bytes)>, Unreached> {
        self.message(json!({ "last_by_subj": self.subjects[1] })).await
    }

    pub(crate) async fn read_now(self, n: u64) -> Result<Option<Bytes>, Unreached> {
        Ok(self.message(json!({ "seq": n })).await?.map(|it| it.1))
    }

    /// Reads a message that the stream's leader has lost or damaged, by making other servers the
    /// leader, one after the other. Returns `None` if the stream ends before this message, or if no
    /// server has the message intact.
    pub(crate) async fn read_from_others(self, n: u64) -> Result<Option<Bytes>, Unreached> {
        if !self.clone().ends_now().await?.contains(&n) {
            return Ok(None);
        }
        tracing::error!(
            stream = self.name,
            place = n,
            "a journal server has lost a message: trying another server. Check the disk of \
            the server that lost the message"
        );
        let mut found = None;
        for _ in 0..OTHERS {
            self.clone().step_down().await?;
            found = self.clone().read_now(n).await?;
            if found.as_ref().is_some_and(|message| decode_message(message).is_ok()) {
                break;
            }
        }
        Ok(found)
    }

    async fn message(&self, which: Value) -> Result<Option<(u64, Bytes)>, Unreached> {
        match self.ask("MSG.GET", &which).await {
            Ok(StreamReply { message: Some(message), .. }) => {
                let bytes = STANDARD.decode(message.data);
                let bytes = bytes.map_err(|error| Unreached(error.to_string()))?;
                Ok(Some((message.seq, bytes.into())))
            }
            Ok(_) => Err(Unreached("the response contains no message".to_owned())),
            // If the stream was deleted, it contains no messages.
            Err(Problem::Api(error)) if [NO_MESSAGE, NO_STREAM].contains(&error.err_code) => {
                Ok(None)
            }
            Err(problem) => Err(problem.into()),
        }
    }

    /// The subject, the time and the headers of a message, as text.
    async fn origin_now(self, n: u64) -> String {
        let answer = self.ask("MSG.GET", &json!({ "seq": n })).await;
        let Ok(StreamReply { message: Some(it), .. }) = answer else { return String::new() };
        let headers = STANDARD.decode(it.hdrs).unwrap_or_default();
        let headers = headers.escape_ascii().to_string();
        let headers = if headers.is_empty() { "no headers" } else { &headers };
        format!("stream {}, subject {}, at {}, {headers}", self.name, it.subject, it.time)
    }

    async fn ends_now(self) -> Result<Range<u64>, Unreached> {
        let state = match self.ask("INFO", &json!({})).await {
            Err(Problem::Api(error)) if error.err_code == NO_STREAM => return Ok(1..1),
            answer => answer?.state,
        };
        let StreamState { first_seq, last_seq, .. } =
            state.ok_or_else(|| Unreached("the response contains no state".to_owned()))?;
        Ok(first_seq.max(1)..last_seq + 1)
    }

    /// Returns the stream's length in bytes.
    pub(crate) async fn bytes(self) -> Result<u64, Unreached> {
        let state = self.ask("INFO", &json!({})).await?.state;
        Ok(state.map_or(0, |state| state.bytes))
    }

    /// Makes the stream's leader step down in favor of another server.
    async fn step_down(self) -> Result<(), Unreached> {
        Ok(self.ask("LEADER.STEPDOWN", &json!({})).await.map(|_| ())?)
    }

    pub(crate) async fn trim_now(self, before: u64) -> Result<(), Unreached> {
        Ok(self.ask("PURGE", &json!({ "seq": before })).await.map(|_| ())?)
    }

    /// Runs `work` on the thread that talks to the servers.
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        ended: impl FnOnce() -> T + Send + 'static,
    ) -> Waiting<T> {
        let done = self.runtime.spawn(work);
        Box::pin(async move { done.await.unwrap_or_else(|_| ended()) })
    }
}

impl SharedLog for Stream {
    fn append(&self, n: u64, message: Bytes) -> Waiting<Result<(), NotAppended>> {
        self.run(self.clone().append_now(n, message), || Err(NotAppended::Unknown))
    }

    fn read(&self, n: u64) -> Waiting<Result<Option<Bytes>, Unreached>> {
        self.run(self.clone().read_now(n), || Err(stopping()))
    }

    fn read_ahead(&self, messages: Range<u64>) -> mpsc::Receiver<Bytes> {
        ahead::read(self.client.clone(), &self.runtime, self.name.clone(), messages)
    }

    fn ends(&self) -> Waiting<Result<Range<u64>, Unreached>> {
        self.run(self.clone().ends_now(), || Err(stopping()))
    }

    fn trim(&self, before: u64) -> Waiting<Result<(), Unreached>> {
        self.run(self.clone().trim_now(before), || Err(stopping()))
    }

    fn change_leader(&self) -> Waiting<Result<(), Unreached>> {
        self.run(self.clone().step_down(), || Err(stopping()))
    }

    fn origin(&self, place: u64) -> Waiting<String> {
        self.run(self.clone().origin_now(place), String::new)
    }
}

fn read_reply(answer: &Message) -> Result<StreamReply, Problem> {
    let mut reply = serde_json::from_slice::<StreamReply>(&answer.payload)
        .map_err(|error| Problem::Silent(error.to_string()))?;
    match reply.error.take() {
        Some(error) => Err(Problem::Api(error)),
        None => Ok(reply),
    }
}

/// Interprets an answer to the append of message `n`.
fn judge(n: u64, answer: &[u8]) -> Result<(), NotAppended> {
    let Ok(answer) = serde_json::from_slice::<StreamReply>(answer) else {
        return Err(NotAppended::Unknown);
    };
    match answer.error {
        Some(error) if error.err_code == WRONG_LAST_SEQUENCE => Err(NotAppended::Taken),
        Some(error) if NO_ROOM.contains(&error.err_code) => Err(NotAppended::Full),
        Some(error) if error.err_code == TOO_LONG => Err(NotAppended::Refused(error.description)),
        Some(error) => {
            tracing::warn!(
                code = error.err_code,
                error.description,
                "the journal's servers answered a write with an error"
            );
            Err(NotAppended::Unknown)
        }
        // Messages have no ids, so the server cannot find duplicates. An answer that reports a
        // duplicate is therefore about another process's message.
        None if answer.seq == Some(n) && !answer.duplicate => Ok(()),
        None => Err(NotAppended::Unknown),
    }
}

enum Problem {
    Api(ApiError),
    Silent(String),
}

impl From<Problem> for Unreached {
    fn from(problem: Problem) -> Self {
        Self(match problem {
            Problem::Api(error) => format!("{} ({})", error.description, error.err_code),
            Problem::Silent(why) => why,
        })
    }
}

fn stopping() -> Unreached {
    Unreached("the server is stopping".to_owned())
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_an_append_have_exactly_their_documented_meaning() {
        let judged = |answer: &str| judge(7, answer.as_bytes());
        assert_eq!(judged(r#"{"stream":"R_0","seq":7}"#), Ok(()));
        // The first answer below contains the position of another message. The second one reports a
        // duplicate, so it is about another program's message.
        assert_eq!(judged(r#"{"stream":"R_0","seq":8}"#), Err(NotAppended::Unknown));
        assert_eq!(judged(r#"{"seq":7,"duplicate":true}"#), Err(NotAppended::Unknown));
        let error = |code| judged(&format!(r#"{{"error":{{"code":400,"err_code":{code}}}}}"#));
        assert_eq!(error(10_071), Err(NotAppended::Taken));
        assert_eq!(error(10_077), Err(NotAppended::Full));
        assert!(matches!(error(10_054), Err(NotAppended::Refused(_))));
        assert_eq!(error(10_008), Err(NotAppended::Unknown));
        assert_eq!(judged("+OK"), Err(NotAppended::Unknown));
    }
}
