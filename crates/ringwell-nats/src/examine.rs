//! Examines servers and streams without changing them, for `ringwell doctor`.

use std::time::{Duration, Instant};

use ringwell_directory::Replicated;
use tokio::runtime::{Builder, Handle};

use crate::check::servers as check_servers;
use crate::connection::connect;
use crate::error::{NatsError, unreached};
use crate::stream::{Seen, Stream};

/// The time limit for connecting to a server.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// The settings in order.
    pub fit: Vec<String>,
    /// The settings that cost safety or speed.
    pub doubtful: Vec<String>,
}

/// Examines the servers, and the streams of this many shards.
///
/// # Errors
/// [`NatsError`]: journals cannot be kept there.
pub fn examine(settings: &Replicated, shards: u16) -> Result<Examined, NatsError> {
    Builder::new_current_thread().enable_all().build()?.block_on(look(settings, shards))
}

async fn look(settings: &Replicated, shards: u16) -> Result<Examined, NatsError> {
    let connecting = tokio::time::timeout(CONNECT_MAX, connect(settings));
    let client = connecting.await.unwrap_or_else(|_| Err(unreached(settings, "no answer")))?;
    check_servers(&client, settings).await?;
    let mut found = Examined::default();
    let named = settings.monitor.len();
    found.fit.push(format!("{named} servers of a tested version flush each message"));
    if named < 3 || settings.replicas < 3 {
        found.doubtful.push(format!(
            "{named} servers, {} replicas: with fewer than three a machine that is lost takes \
             answered allocations along, or stops all",
            settings.replicas
        ));
    }
    for shard in 0..shards {
        let (name, runtime) = (format!("{}_{shard}", settings.stream), Handle::current());
        let stream = Stream::new(client.clone(), runtime.clone(), name.clone());
        look_at(&name, &stream, settings, &mut found).await?;
        let name = format!("{name}_snapshots");
        let stream = Stream::of_snapshots(client.clone(), runtime, name.clone());
        look_at(&name, &stream, settings, &mut found).await?;
    }
    Ok(found)
}

async fn look_at(
    name: &str,
    stream: &Stream,
    settings: &Replicated,
    found: &mut Examined,
) -> Result<(), NatsError> {
    let asked = Instant::now();
    let Some(Seen { leader, behind, bytes }) = stream.look(settings).await? else {
        found.fit.push(format!("stream {name} will be made at the first start"));
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
    for server in behind {
        found.doubtful.push(format!("stream {name}: server {server} is not in step"));
    }
    Ok(())
}
