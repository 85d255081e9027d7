//! Compares the permissions that a client of the servers needs with those that it has.

use std::time::Duration;

use async_nats::{Client, Request};
use ringwell_config::Replicated;
use serde::Deserialize;
use serde_json::Value;

/// The time limit for the servers' answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// The requests to JetStream's API that Ringwell sends about each stream.
const REQUESTS: [&str; 5] = [
    "$JS.API.STREAM.INFO",
    "$JS.API.STREAM.CREATE",
    "$JS.API.STREAM.MSG.GET",
    "$JS.API.STREAM.PURGE",
    "$JS.API.STREAM.LEADER.STEPDOWN",
];

/// The request that changes the notes of a group stream.
const UPDATE: &str = "$JS.API.STREAM.UPDATE";

/// The requests that read ahead in a group stream. Reading is slower if they are not permitted.
const CONSUMER: [&str; 2] = ["$JS.API.CONSUMER.CREATE", "$JS.API.CONSUMER.MSG.NEXT"];

/// The subjects that a client may use.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Allowed {
    /// The subjects that are allowed. If the list is empty, all subjects are.
    allow: Vec<String>,
    deny: Vec<String>,
}

impl Allowed {
    fn permits(&self, subject: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|pattern| matches(pattern, subject));
        (self.allow.is_empty() || is_in(&self.allow)) && !is_in(&self.deny)
    }
}

/// Whether a subject matches a pattern: `*` stands for one part, and `>` for all remaining parts.
fn matches(pattern: &str, subject: &str) -> bool {
    let (mut wanted, mut found) = (pattern.split('.'), subject.split('.'));
    loop {
        match (wanted.next(), found.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some(part), Some(other)) if part == "*" || part == other => {}
            _ => return false,
        }
    }
}

/// Returns the subjects that this client needs but may not use.
pub(crate) async fn missing_permissions(
    client: &Client,
    settings: &Replicated,
    shards: u16,
) -> Result<Vec<String>, String> {
    let request = Request::new().timeout(Some(ANSWER_MAX));
    let answer = client.send_request("$SYS.REQ.USER.INFO", request).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let answer: Value =
        serde_json::from_slice(&answer.payload).map_err(|error| error.to_string())?;
    Ok(missing(&answer["data"]["permissions"], settings, shards))
}

fn missing(permissions: &Value, settings: &Replicated, shards: u16) -> Vec<String> {
    let of = |what: &str| Allowed::deserialize(&permissions[what]).unwrap_or_default();
    let (publish, subscribe) = (of("publish"), of("subscribe"));
    let beat = format!("{}.beat.0", settings.stream.to_ascii_lowercase());
    let mut wanted = vec![beat.clone()];
    for shard in 0..shards {
        let groups = format!("{}_{shard}", settings.stream);
        let lower = settings.stream.to_ascii_lowercase();
        let named = |stream: &str| REQUESTS.map(|request| format!("{request}.{stream}"));
        wanted.extend(named(&groups));
        wanted.extend(named(&format!("{groups}_snapshots")));
        wanted.push(format!("{UPDATE}.{groups}"));
        wanted.extend(CONSUMER.map(|request| format!("{request}.{groups}.ringwell_a")));
        wanted.push(format!("{lower}_{shard}.groups"));
        wanted.extend(["pieces", "index"].map(|it| format!("{lower}_{shard}_snapshots.{it}")));
    }
    let mut missing: Vec<String> = { wanted }
        .into_iter()
        .filter(|subject| !publish.permits(subject))
        .map(|subject| format!("publish {}", subject.replace(".ringwell_a", ".>")))
        .collect();
    let receives = [beat, "_INBOX.a.b".to_owned()];
    let denied = receives.iter().filter(|subject| !subscribe.permits(subject));
    missing.extend(denied.map(|subject| format!("subscribe {}", subject.replace("a.b", ">"))));
    missing
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(permissions: &Value) -> Vec<String> {
        let settings = Replicated { stream: "RW".to_owned(), ..Replicated::default() };
        missing(permissions, &settings, 1)
    }

    #[test]
    fn a_client_without_limits_lacks_nothing() {
        assert_eq!(of(&Value::Null), [""; 0]);
    }

    #[test]
    fn what_is_not_allowed_or_is_denied_is_named() {
        let enough = json!({
            "publish": { "allow": ["$JS.API.STREAM.>", "$JS.API.CONSUMER.>", "rw.beat.*", "rw_0.groups", "rw_0_snapshots.*"] },
            "subscribe": { "allow": ["rw.>", "_INBOX.>"] },
        });
        assert_eq!(of(&enough), [""; 0]);
        let mut denied = enough.clone();
        denied["publish"]["deny"] = json!(["$JS.API.STREAM.PURGE.*"]);
        denied["subscribe"]["allow"] = json!(["rw.>"]);
        assert_eq!(
            of(&denied),
            [
                "publish $JS.API.STREAM.PURGE.RW_0",
                "publish $JS.API.STREAM.PURGE.RW_0_snapshots",
                "subscribe _INBOX.>"
            ]
        );
        let mut fewer = enough.clone();
        fewer["publish"]["deny"] = json!(["$JS.API.CONSUMER.CREATE.>"]);
        assert_eq!(of(&fewer), ["publish $JS.API.CONSUMER.CREATE.RW_0.>"]);
        let mut others = enough;
        others["publish"]["allow"] = json!(["$JS.API.>", "rw.beat.0", "rw_0_snapshots.*"]);
        assert_eq!(of(&others), ["publish rw_0.groups"]);
    }
}
