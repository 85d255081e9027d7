//! `ringwell demo`: sample ring pools, and a server for them.
//!
//! Writes `demo-pools.csv`, `load-pools.csv` and `demo-token` into the data directory. For
//! `ringwell call`, also writes `demo-calls.toml` and a file with its secret. An existing token is
//! kept, so that commands printed by an earlier run still work. Invariant: if there are extra pools
//! for `ringwell load`, the load uses no numbers from the pools for manual trials.

mod files;
mod front;
mod inbox;
mod introduction;
mod phone;
mod shop;

use std::fs::{self};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use ringwell_admin::DatabaseTokens;
use ringwell_config::{
    Config, DEMO_LIST, DEMO_NUMBERS, DEMO_POOLS, Overrides, demo_pools, parse_lifetime,
    write_demo_csv,
};
use ringwell_core::Millis;
use ringwell_directory::{Directory, Fault, RingPool, Token};
use ringwell_node::disk::{DataLock, LockError, ReadLock};
use ringwell_node::{Directories, Routes, StartSignals};

use self::files::write_whole;
use self::front::Front;
use self::introduction::{Introduction, Origin};
use crate::environment::{cores, variable};
use crate::faults::show;
use crate::flags::Server;
use crate::print::print_error;
use crate::serve::with_calls;
use crate::usage::WRONG_USAGE;
use crate::{logs, token};

/// The number of extra pools for `ringwell load`, in addition to the pools for manual trials.
const LOAD_POOLS: u32 = 200;

/// The lifetime of the extra pools. It is short because a measurement requests more numbers than
/// the pools contain, so each number must become free again almost at once.
const LOAD_LIFETIME: Millis = Millis(10);

/// The lifetime of the pool for the shop's load slider. It is short enough that a user sees the
/// pool recover from overflow.
const BUSY_LIFETIME: Millis = Millis(20_000);

/// If the lifetime of the demo's own pools does not exceed this value, they have enough free
/// numbers for the load, and no extra pools are added.
const BRIEF: Millis = Millis(1000);

/// The size of a journal segment: a quarter of the default, so that a demo does not reserve 256 MiB
/// before its first request.
const SEGMENT_BYTES: u64 = 16 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Data directory for journals, snapshots, the list of pools and the management token [default:
    /// ./demo-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Number of ring pools, up to 1,000,000
    #[arg(long, value_name = "N", default_value_t = DEMO_POOLS, value_parser = count)]
    pools: u32,
    /// Numbers in each pool, up to 100,000
    #[arg(long, value_name = "N", default_value_t = DEMO_NUMBERS, value_parser = count)]
    numbers: u32,
    /// Guaranteed lifetime of an allocation
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = parse_lifetime)]
    lifetime: Millis,
    #[command(flatten)]
    server: Server,
}

/// Parses a count of pools or of numbers for the demo. The maximum of each count depends on the
/// other count, so it is checked later.
fn count(text: &str) -> Result<u32, &'static str> {
    text.parse().ok().filter(|count| *count > 0).ok_or("must be a whole number above 0")
}

/// Creates or reuses the pools, prints requests to try, and serves the pools until a signal ends
/// the program.
///
/// # Errors
/// If files cannot be written, or the server does not start or shut down properly. An impossible
/// number of pools is reported as wrong usage.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let pools = match demo_pools(args.pools, args.numbers, args.lifetime) {
        Ok(pools) => pools,
        Err(error) => {
            print_error(format!("{error}; see `ringwell demo --help`"));
            return Ok(ExitCode::from(WRONG_USAGE));
        }
    };
    let load_pools = load_pools(&args);
    let busy = if load_pools.is_empty() { None } else { busy_pool(args.pools, args.numbers) };
    let mut config = match settings(args) {
        Ok(config) => config,
        Err(faults) => return Ok(show(&faults)),
    };
    logs::start(&config.log)?;
    let signals = StartSignals::begin()?;

    let data = config.data.clone();
    check_free(&config)?;
    claim(&data)?;
    let origin = keep_list(&data.join(DEMO_LIST), &pools)?;
    keep_load_list(&data.join("load-pools.csv"), &load_pools)?;
    let token = keep_token(&data.join("demo-token"))?;
    let hashes = &config.management.token_sha256;
    hashes.replace(&[&hashes.current()[..], &[token.hash()]].concat());

    let first = pools.first().cloned();
    let more = (load_pools.len(), busy.is_some());
    let story = Introduction::new(origin, &pools, more, &config);
    let all = [pools, load_pools, busy.iter().cloned().collect()].concat();
    let directory = match Directory::new(1, all, config.shards) {
        Ok(directory) => directory,
        Err(faults) => return Ok(show(&faults)),
    };
    let mut front = Front::open(&mut config, &token, first.zip(busy))?;
    let calls = front.take_calls(&config)?;
    let slow = front.shop.as_ref().map(|(shop, busy)| {
        let shard = directory.lookup(busy.id()).map_or(0, ringwell_directory::Entry::shard);
        (shop.controls(), format!("shard-{shard}"))
    });
    let of_server =
        crate::serve::routes(&config, front.dashboard.clone(), DatabaseTokens::default());
    let of_server = with_calls(of_server, calls.clone());
    let routes: Routes = Arc::new(move |node| {
        // This closure runs on each shard's thread, so the thread's name shows whether its shard is
        // the one to slow down.
        let name = std::thread::current().name().map(str::to_owned);
        if let Some((controls, _)) = slow.as_ref().filter(|(_, shard)| name.as_ref() == Some(shard))
        {
            tokio::task::spawn_local(Arc::clone(controls).slow_down());
        }
        of_server(node)
    });
    let takes_calls = calls.is_some();
    let introduce = move |addresses: &[String]| {
        // The error is ignored, because the server must keep running even if stdout is closed.
        let introduction = story.introduction(addresses, &front, takes_calls);
        let _ = io::stdout().lock().write_all(introduction.as_bytes());
        front.serve(addresses);
    };
    let served = ringwell_node::serve(
        config,
        directory,
        None,
        Directories { signals: Some(signals), ..Directories::default() },
        routes,
        None,
        Box::new(introduce),
    );
    if let Some(calls) = calls {
        calls.stop();
    }
    served?;
    Ok(ExitCode::SUCCESS)
}

/// Builds the server's configuration from the defaults, then variables, then flags; later sources
/// take precedence.
fn settings(args: Args) -> Result<Config, Vec<Fault>> {
    let mut config = Config::new(PathBuf::from("demo-data"), cores());
    config.journal.segment_bytes = SEGMENT_BYTES;
    // A demo has no proxy that needs time to notice the shutdown.
    config.drain_pause = Duration::ZERO;
    Overrides::from_variables(variable)?.apply(&mut config, cores());
    args.server.overrides(args.data).apply(&mut config, cores());
    Ok(config)
}

/// Writes the list of the pools that `ringwell load` may use.
fn keep_load_list(path: &Path, pools: &[RingPool]) -> anyhow::Result<()> {
    if pools.is_empty() {
        // A list left by an earlier demo would name pools that no longer exist.
        let _ = fs::remove_file(path);
    } else {
        keep_list(path, pools)?;
    }
    Ok(())
}

/// Checks, before anything is written, that no other process uses the data directory or a listen
/// address.
fn check_free(config: &Config) -> anyhow::Result<()> {
    if config.data.is_dir()
        && let Err(held @ LockError::Held { .. }) = ReadLock::acquire(&config.data)
    {
        return Err(held.into());
    }
    Ok(ringwell_node::check_free(&config.listen)?)
}

/// Creates the data directory and checks that it can be locked. A directory that the server would
/// refuse later is refused here, before an earlier demo's pool list is overwritten.
fn claim(data: &Path) -> anyhow::Result<()> {
    ringwell_node::disk::create_directory(data).with_context(|| {
        format!("cannot create the directory {}; choose another one with --data", data.display())
    })?;
    drop(DataLock::acquire(data).map_err(|error| match error {
        LockError::File(_) => {
            let advice =
                format!("cannot use {}; choose another directory with --data", data.display());
            anyhow::Error::from(error).context(advice)
        }
        held => held.into(),
    })?);
    Ok(())
}

/// Returns the pool that the shop's load slider uses, which is the last pool.
fn busy_pool(pools: u32, numbers: u32) -> Option<RingPool> {
    let last = pools.saturating_add(LOAD_POOLS).saturating_add(1);
    demo_pools(last, numbers, BUSY_LIFETIME).ok()?.pop()
}

/// Returns the extra pools for `ringwell load`. There are none if the demo's own pools have enough
/// free numbers for the load, or if no numbers are left for extra pools.
fn load_pools(args: &Args) -> Vec<RingPool> {
    if args.lifetime <= BRIEF {
        return Vec::new();
    }
    let all = demo_pools(args.pools.saturating_add(LOAD_POOLS), args.numbers, LOAD_LIFETIME);
    all.map_or_else(|_| Vec::new(), |mut all| all.split_off(args.pools as usize))
}

/// Writes the list of `pools` to `path`, unless the file already contains it.
fn keep_list(path: &Path, pools: &[RingPool]) -> anyhow::Result<Origin> {
    let mut list = Vec::new();
    write_demo_csv(pools, &mut list)?;
    let origin = match fs::read(path) {
        Ok(old) if old == list => return Ok(Origin::Found),
        Ok(_) => Origin::Changed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Origin::Made,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    write_whole(path, 0o644, |out| out.write_all(&list))?;
    Ok(origin)
}

/// Returns the token in `path`, or writes a new token there.
fn keep_token(path: &Path) -> anyhow::Result<Token> {
    match fs::read_to_string(path) {
        Ok(text) => match Token::parse(text.trim_end()) {
            Some(token) => Ok(token),
            None => {
                bail!("{} contains no token; delete the file to get a new token", path.display())
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let token = token::new_token()?;
            write_whole(path, 0o600, |out| writeln!(out, "{}", token.reveal()))?;
            Ok(token)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
