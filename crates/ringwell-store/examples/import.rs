//! Measures the time to import and load a large directory: `cargo run --release -p ringwell-store
//! --example import -- POOLS NUMBERS [postgres://…]`.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ringwell_config::{DEMO_LIFETIME, demo_pools};
use ringwell_core::Millis;
use ringwell_store::{Location, Scope, Store};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = |place: usize, default| {
        arguments.get(place).map_or(Ok(default), |text: &String| text.parse())
    };
    let pools = demo_pools(count(0, 100_000)?, count(1, 100)?, DEMO_LIFETIME)?;
    let folder = tempfile::TempDir::new()?;
    let file = folder.path().join("directory.sqlite");
    let location =
        arguments.get(2).map_or(Location::File(file.clone()), |url| Location::Url(url.clone()));
    let store = Store::open(&location).await?;
    let now = Millis(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?);
    let started = Instant::now();
    let mut change = store.change("measurement", now).await?;
    change.import(&pools, &Scope::of_file()).await?;
    change.commit().await?;
    println!("import     {:>8.3} s", started.elapsed().as_secs_f64());
    let started = Instant::now();
    let loaded = store.load_all().await?;
    println!("load all   {:>8.3} s, {} pools", started.elapsed().as_secs_f64(), loaded.pools.len());
    let started = Instant::now();
    let mut change = store.change("measurement", now).await?;
    let first = pools.first().ok_or("no pools")?;
    change
        .rotate_key(first.id(), ringwell_directory::RingPoolKey::parse("N3WKEY9876543210")?)
        .await?;
    change.commit().await?;
    println!("one change {:>8.3} ms", started.elapsed().as_secs_f64() * 1000.0);
    let started = Instant::now();
    let delta = store.changed_since(1).await?;
    let took = started.elapsed().as_secs_f64() * 1000.0;
    println!("its delta  {took:>8.3} ms, {} pools", delta.changed.len());
    if let Ok(file) = file.metadata() {
        println!("file       {:>8} MB", file.len() / 1_000_000);
    }
    Ok(())
}
