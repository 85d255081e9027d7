//! Examines servers and streams without changing them, for `ringwell doctor`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::Client;
use ringwell_config::Replicated;
use tokio::runtime::{Builder, Handle};

use crate::check::{self, servers as check_servers};
use crate::connection::connect;
use crate::error::{NatsError, unreached};
use crate::permissions::missing_permissions;
use crate::stream::{Seen, Stream};

/// The time limit for connecting to a server.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// The correct settings.
    pub fit: Vec<String>,
    /// Warnings about settings that reduce safety or speed.
    pub doubtful: Vec<String>,
}

/// Examines the servers, and the streams of `shards` shards. The servers' clocks may differ from
/// this machine's clock by at most `skew_max`.
///
/// # Errors
/// Returns a [`NatsError`] if journals cannot be kept on these servers.
pub fn examine(
    settings: &Replicated,
    shards: u16,
    skew_max: Duration,
) -> Result<Examined, NatsError> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(look(settings, shards, skew_max))
}

async fn look(
    settings: &Replicated,
    shards: u16,
    skew_max: Duration,
) -> Result<Examined, NatsError> {
    let connecting = tokio::time::timeout(CONNECT_MAX, connect(settings));
    let client = connecting.await.unwrap_or_else(|_| Err(unreached(settings, "no answer")))?;
    let away = check_servers(&client, settings).await?;
    let mut found = Examined::default();
    let named = settings.monitor.len();
    let checked = named - away.len();
    found.fit.push(format!("{checked} servers have a tested version and flush each message"));
    for (address, error) in &away {
        found.doubtful.push(format!("{address} cannot be reached, so it was not checked: {error}"));
    }
    if named < 3 || settings.replicas < 3 {
        found.doubtful.push(format!(
            "{named} servers, {} replicas: with fewer than three of either, the failure of one \
             machine causes the loss of answered allocations or stops all shards",
            settings.replicas
        ));
    }
    look_at_machines(settings, shards, skew_max, &away, &mut found).await?;
    look_at_permissions(&client, settings, shards, &mut found).await;
    for shard in 0..shards {
        let (name, runtime) = (format!("{}_{shard}", settings.stream), Handle::current());
        let stream = Stream::new(client.clone(), Arc::default(), runtime.clone(), name.clone());
        look_at(&name, &stream, settings, &mut found).await?;
        let name = format!("{name}_snapshots");
        let stream = Stream::of_snapshots(client.clone(), runtime, name.clone());
        look_at(&name, &stream, settings, &mut found).await?;
    }
    Ok(found)
}

/// Compares each server's clock with this machine's, and each server's storage limit with the space
/// that the streams reserve.
async fn look_at_machines(
    settings: &Replicated,
    shards: u16,
    skew_max: Duration,
    away: &[(String, String)],
    found: &mut Examined,
) -> Result<(), NatsError> {
    let needed = u64::from(shards).saturating_mul(settings.stream_bytes).saturating_mul(2);
    let (mut off_most, mut has_doubt) = (Duration::ZERO, false);
    let is_away = |address: &&String| away.iter().any(|(other, _)| other == *address);
    for address in settings.monitor.iter().filter(|address| !is_away(address)) {
        let seen = check::machine(address, settings).await?;
        let (server, off) = (&seen.server, seen.clock_off);
        off_most = off_most.max(off);
        if off > skew_max {
            has_doubt = true;
            found.doubtful.push(format!(
                "the clock of {server} differs from this machine's by {off:.1?}, which is more \
                 than clock_skew_max ({skew_max:?}): run a time service on both machines"
            ));
        }
        if seen.room_bytes < needed {
            found.doubtful.push(format!(
                "{server} can store at most {} MiB, but the streams of {shards} shards reserve {} \
                 MiB: raise max_file_store, or lower stream_bytes",
                seen.room_bytes >> 20,
                needed >> 20
            ));
        }
    }
    if !has_doubt {
        found.fit.push(format!(
            "the servers' clocks differ from this machine's by at most {off_most:.1?}"
        ));
    }
    Ok(())
}

/// Checks that the servers require authentication, and that this client has all permissions that it
/// needs.
async fn look_at_permissions(
    client: &Client,
    settings: &Replicated,
    shards: u16,
    found: &mut Examined,
) {
    if !client.server_info().auth_required {
        found.doubtful.push(
            "anyone who can reach the NATS servers can publish to the streams and thereby stop \
             shards: set `authorization` in the NATS servers' configuration, and `credentials` in \
             Ringwell's"
                .to_owned(),
        );
    }
    match missing_permissions(client, settings, shards).await {
        Ok(missing) if missing.is_empty() => {
            found.fit.push("this client has all permissions that it needs".to_owned());
        }
        Ok(missing) => found.doubtful.push(format!(
            "this client lacks permissions in the servers' configuration: {}",
            missing.join(", ")
        )),
        Err(reason) => found
            .doubtful
            .push(format!("the servers do not report the permissions of this client: {reason}")),
    }
}

async fn look_at(
    name: &str,
    stream: &Stream,
    settings: &Replicated,
    found: &mut Examined,
) -> Result<(), NatsError> {
    let asked = Instant::now();
    let Some(Seen { leader, behind, bytes, foreign }) = stream.look(settings).await? else {
        found.fit.push(format!("stream {name} will be created at the first start"));
        return Ok(());
    };
    let took = asked.elapsed();
    let share = bytes.saturating_mul(100) / settings.stream_bytes.max(1);
    found
        .fit
        .push(format!("stream {name}: led by {leader}, answers in {took:.1?}, {share} % full"));
    if share > 80 {
        found.doubtful.push(format!("stream {name} is {share} % full"));
    }
    if foreign > 0 {
        found.doubtful.push(format!(
            "stream {name} has {foreign} messages from another program, which are skipped: allow \
            only Ringwell to publish there"
        ));
    }
    for server in behind {
        found.doubtful.push(format!("stream {name}: server {server} lags behind"));
    }
    Ok(())
}
