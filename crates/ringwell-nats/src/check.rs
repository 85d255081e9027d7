//! Checks whether servers and streams can be trusted with journals. Each rule prevents a loss of
//! answered allocations that occurred in a test by Ringwell's developers or by others. Source:
//! docs/spec/log.md, "JetStream".

use std::time::Duration;

use async_nats::Client;
use jiff::Timestamp;
use ringwell_config::Replicated;
use ringwell_journal::MESSAGE_BYTES_MAX;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{NatsError, Unfit, VERSION, unreached};

/// The name of the metadata entry that records the placement of pools for which a stream was
/// created.
pub(crate) const PLACEMENT: &str = "ringwell.placement";

/// The pause between two attempts to reach a server that is down.
const AGAIN: Duration = Duration::from_secs(5);

/// The pause between two warnings about a server that must not be used.
const REMINDER: Duration = Duration::from_mins(1);

/// The space for a message's headers. It counts toward the server's limit on the length of a
/// message.
const HEADERS_BYTES: usize = 4 << 10;

/// The shortest duplicate window that the server accepts, in nanoseconds. Ringwell's messages have
/// no ids, so the server never finds duplicates.
const DUPLICATES_NS: u64 = 100_000_000;

/// Checks the server that the client is connected to, and all servers in the settings. If fewer
/// than half of the servers are unreachable, returns the address and the error of each unreachable
/// server. This does not prevent startup, because the other servers form a quorum.
pub(crate) async fn servers(
    client: &Client,
    settings: &Replicated,
) -> Result<Vec<(String, String)>, NatsError> {
    let info = client.server_info();
    version(&info.server_name, &info.version)?;
    if info.max_payload < MESSAGE_BYTES_MAX + HEADERS_BYTES {
        return Err(Unfit::Payload { bytes: info.max_payload }.into());
    }
    let mut away = Vec::new();
    for address in &settings.monitor {
        match get(address).await {
            Ok(varz) => server(address, &varz)?,
            Err(error) => away.push((address.clone(), error)),
        }
    }
    match away.last() {
        Some((address, error)) if 2 * away.len() >= settings.monitor.len() => {
            let reason = format!("cannot read the server's settings from {address}/varz: {error}");
            Err(unreached(settings, &reason))
        }
        _ => Ok(away),
    }
}

/// Checks a server's report.
fn server(address: &str, varz: &Value) -> Result<(), Unfit> {
    let server = varz["server_name"].as_str().unwrap_or(address).to_owned();
    version(&server, varz["version"].as_str().unwrap_or_default())?;
    if varz["jetstream"]["config"]["sync_always"] != Value::Bool(true) {
        return Err(Unfit::NotSynced { server });
    }
    Ok(())
}

/// Checks a server that could not be reached at startup, as soon as it can be reached.
pub(crate) async fn later((address, error): (String, String)) {
    tracing::warn!(
        address,
        %error,
        "a journal server cannot be reached. The other servers are enough; this one will \
         be checked when it is back"
    );
    let mut pause = AGAIN;
    loop {
        tokio::time::sleep(pause).await;
        let Ok(varz) = get(&address).await else { continue };
        let Err(error) = server(&address, &varz) else { break };
        tracing::error!(
            %error,
            "a journal server is back, but must not be used: stop it, correct its \
             configuration or version, and then start it again"
        );
        pause = REMINDER;
    }
    tracing::info!(address, "a journal server is back and usable");
}

/// A server's machine.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The server's name.
    pub(crate) server: String,
    /// The difference between the server's clock and this machine's clock.
    pub(crate) clock_off: Duration,
    /// The maximum total length of all streams, in bytes.
    pub(crate) room_bytes: u64,
}

/// Asks the server at a monitoring address for its machine's state.
pub(crate) async fn machine(address: &str, settings: &Replicated) -> Result<Machine, NatsError> {
    let asked = Timestamp::now();
    let varz = get(address).await;
    let answered = Timestamp::now();
    let varz = varz.map_err(|error| unreached(settings, &format!("{address}/varz: {error}")))?;
    let now = varz["now"].as_str().and_then(|now| now.parse::<Timestamp>().ok());
    // The server read its clock between `asked` and `answered`.
    let now = now.unwrap_or(asked);
    let off = if now < asked { asked.duration_since(now) } else { now.duration_since(answered) };
    Ok(Machine {
        server: varz["server_name"].as_str().unwrap_or(address).to_owned(),
        clock_off: Duration::try_from(off).unwrap_or_default(),
        room_bytes: varz["jetstream"]["config"]["max_storage"].as_u64().unwrap_or(u64::MAX),
    })
}

fn version(server: &str, text: &str) -> Result<(), Unfit> {
    let mut parts = text.split('-').next().unwrap_or_default().split('.').map(str::parse::<u32>);
    let read = (parts.next(), parts.next(), parts.next());
    let is_fit = match read {
        (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch))) => {
            (major, minor) == (VERSION.0, VERSION.1) && patch >= VERSION.2
        }
        _ => false,
    };
    let unfit = || Unfit::Version { server: server.to_owned(), version: text.to_owned() };
    if is_fit { Ok(()) } else { Err(unfit()) }
}

/// Reads a server's report from its monitoring address.
async fn get(address: &str) -> Result<Value, String> {
    let host = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    let mut server = TcpStream::connect(host).await.map_err(|error| error.to_string())?;
    let request = format!("GET /varz HTTP/1.0\r\nHost: {host}\r\n\r\n");
    server.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    // A report is only a few kilobytes long, and the server is trusted, so 1 MiB is always enough.
    server.take(1 << 20).read_to_end(&mut answer).await.map_err(|error| error.to_string())?;
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").ok_or("no answer")?;
    serde_json::from_slice(&answer[head + 4..]).map_err(|error| error.to_string())
}

/// The settings of a new stream.
pub(crate) fn config(name: &str, subjects: &[String], settings: &Replicated) -> Value {
    json!({
        "name": name,
        "subjects": subjects,
        "description": "the journal of a shard of Ringwell: do not publish, purge or edit",
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "num_replicas": settings.replicas,
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": settings.stream_bytes,
        "max_age": 0,
        "max_msg_size": -1,
        "max_msgs_per_subject": -1,
        "duplicate_window": DUPLICATES_NS,
        "deny_delete": true,
        "allow_direct": false,
        "mirror_direct": false,
        "allow_rollup_hdrs": false,
        "sealed": false,
        "no_ack": false,
    })
}

/// Checks the settings of an existing stream.
pub(crate) fn stream(
    name: &str,
    subjects: &[String],
    found: &Value,
    settings: &Replicated,
) -> Result<(), Unfit> {
    let wanted = config(name, subjects, settings);
    let must = [
        "subjects",
        "retention",
        "storage",
        "discard",
        "num_replicas",
        "max_msgs",
        "max_age",
        "max_msg_size",
        "max_msgs_per_subject",
        "deny_delete",
        "allow_direct",
        "allow_rollup_hdrs",
        "sealed",
        "no_ack",
        // Ringwell's streams use none of the following settings.
        "republish",
        "mirror",
        "sources",
        "subject_transform",
        // With "async", the server acknowledges a message before flushing it to the disk.
        "persist_mode",
    ];
    for setting in must {
        // The server's report omits settings that are disabled.
        let is_off =
            |value: &Value| value.is_null() || *value == json!(false) || *value == json!(0);
        let (found, wanted) = (&found[setting], &wanted[setting]);
        if found != wanted && !(is_off(found) && is_off(wanted)) {
            let (stream, remedy) = (name.to_owned(), remedy(name, setting, wanted));
            let (found, wanted) = (found.to_string(), wanted.to_string());
            return Err(Unfit::Setting { stream, setting, found, wanted, remedy });
        }
    }
    Ok(())
}

/// Returns instructions for correcting a setting of an existing stream.
fn remedy(stream: &str, setting: &str, wanted: &Value) -> String {
    let flag = match setting {
        "subjects" => {
            let subjects = wanted.as_array().into_iter().flatten().filter_map(Value::as_str);
            Some(format!("--subjects={}", subjects.collect::<Vec<_>>().join(",")))
        }
        "discard" => Some("--discard=new".to_owned()),
        "num_replicas" => Some(format!("--replicas={wanted}")),
        "max_msgs" => Some("--max-msgs=-1".to_owned()),
        "max_age" => Some("--max-age=0s".to_owned()),
        "max_msg_size" => Some("--max-msg-size=-1".to_owned()),
        "max_msgs_per_subject" => Some("--max-msgs-per-subject=-1".to_owned()),
        "allow_direct" => Some("--no-allow-direct".to_owned()),
        "allow_rollup_hdrs" => Some("--no-allow-rollup".to_owned()),
        "republish" => Some("--no-republish".to_owned()),
        "mirror" => Some("--no-mirror".to_owned()),
        "subject_transform" => Some("--no-transform".to_owned()),
        _ => None,
    };
    let Some(flag) = flag else {
        return "the `nats` tool cannot change this setting of an existing stream: stop all nodes \
                for the longest lifetime of any pool, and then start them with another `stream`"
            .to_owned();
    };
    let or = if setting == "num_replicas" { ", or change `replicas` in `[journal]`" } else { "" };
    format!("run `nats stream edit {stream} {flag}`{or}, and start again")
}

/// Checks that a stream was created for `placement`, unless that is empty.
pub(crate) fn placement(stream: &str, found: &Value, placement: &str) -> Result<(), Unfit> {
    let made_for = found["metadata"][PLACEMENT].as_str().unwrap_or_default();
    if made_for == placement || placement.is_empty() {
        return Ok(());
    }
    let (stream, made_for) = (stream.to_owned(), made_for.to_owned());
    let wanted = placement.to_owned();
    Err(match &*made_for {
        "" => Unfit::NoPlacement { stream, key: PLACEMENT, wanted },
        _ => Unfit::Placement { stream, made_for, wanted },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_another_program_has_edited_is_refused_with_the_command_that_repairs_it() {
        let settings = Replicated { replicas: 3, ..Replicated::default() };
        let subjects = ["j.0.a".to_owned(), "j.0.b".to_owned()];
        let refused = |setting: &str, value: Value| {
            let mut found = config("j_0", &subjects, &settings);
            found[setting] = value;
            stream("j_0", &subjects, &found, &settings).unwrap_err().to_string()
        };
        let says = |setting: &str, value: Value, part: &str| {
            let text = refused(setting, value);
            assert!(text.contains(part), "{text}");
        };
        says("max_age", json!(2_000_000_000), "run `nats stream edit j_0 --max-age=0s`");
        says("subjects", json!([]), "`nats stream edit j_0 --subjects=j.0.a,j.0.b`");
        says("num_replicas", json!(1), "--replicas=3`, or change `replicas` in `[journal]`");
        says("sealed", json!(true), "start them with another `stream`");
    }

    #[test]
    fn missing_metadata_are_not_called_another_placement() {
        let refused = |metadata: Value, wanted| {
            let found = json!({ "metadata": metadata });
            placement("j_0", &found, wanted).map_err(|unfit| unfit.to_string())
        };
        assert_eq!(refused(json!({ PLACEMENT: "ab" }), "ab"), Ok(()));
        assert_eq!(refused(json!({}), ""), Ok(()));
        let other = refused(json!({ PLACEMENT: "ab" }), "cd").unwrap_err();
        assert!(other.contains("was created for another placement of pools"), "{other}");
        let missing = refused(json!({}), "cd").unwrap_err();
        assert!(missing.contains("the metadata of the stream j_0 are missing"), "{missing}");
        let command = "`nats stream edit j_0 --metadata=ringwell.placement=cd`";
        assert!(missing.contains(command), "{missing}");
    }

    #[test]
    fn untested_versions_are_refused() {
        for fit in ["2.15.2", "2.15.10", "2.15.3-RC.1"] {
            assert!(version("a", fit).is_ok(), "{fit}");
        }
        for unfit in ["2.15.1", "2.9.10", "2.12.15", "2.16.0", "3.0.0", "", "2.15"] {
            assert!(version("a", unfit).is_err(), "{unfit}");
        }
    }

    #[test]
    fn a_stream_with_retention_limits_is_refused() {
        let settings = Replicated { replicas: 3, ..Replicated::default() };
        let subjects = ["r_0.groups".to_owned()];
        let wanted = config("R_0", &subjects, &settings);
        stream("R_0", &subjects, &wanted, &settings).unwrap();
        let changed = [
            ("num_replicas", json!(1)),
            ("storage", json!("memory")),
            ("max_age", json!(1_000)),
            ("discard", json!("old")),
            ("deny_delete", json!(false)),
            ("allow_direct", json!(true)),
            ("subjects", json!([">"])),
            ("max_msgs_per_subject", json!(1)),
            ("max_msg_size", json!(100)),
            ("sealed", json!(true)),
            ("no_ack", json!(true)),
            ("republish", json!({ "src": ">", "dest": "copy.>" })),
            ("sources", json!([{ "name": "OTHER" }])),
            ("subject_transform", json!({ "src": ">", "dest": "other.>" })),
            ("persist_mode", json!("async")),
        ];
        for (setting, value) in changed {
            let mut found = wanted.clone();
            found[setting] = value;
            let error = stream("R_0", &subjects, &found, &settings).unwrap_err();
            assert!(error.to_string().contains(setting), "{error}");
        }
    }
}
