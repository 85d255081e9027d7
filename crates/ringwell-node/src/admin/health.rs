//! `/healthz`: the process lives. `/readyz`: it belongs in the rotation.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;

use super::Admin;
use crate::node::{HistoryState, JournalState, Phase};

#[derive(Serialize)]
pub(crate) struct Health {
    status: &'static str,
    version: &'static str,
    durability: String,
    shards: u16,
    ring_pools: usize,
    numbers: u64,
    /// How long ago the directory was seen to be current; absent where it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    directory_age_ms: Option<u64>,
    /// How far the wall clock is ahead of the time that lockouts go by: 0 unless it was set, or was
    /// wrong at the start.
    wall_ahead_ms: i64,
}

#[derive(Serialize)]
pub(crate) struct Readiness {
    ready: bool,
    phase: &'static str,
    durability: String,
    /// By shard.
    journals: Vec<&'static str>,
    /// By shard: the history that the start did not read. Damage there ends no rotation.
    histories: Vec<&'static str>,
}

pub(crate) async fn healthz(State(admin): State<Admin>) -> Json<Health> {
    let directory = admin.node.directory();
    let age = admin.node.directory_age();
    Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
        durability: admin.node.durability.to_string(),
        shards: directory.shards(),
        ring_pools: directory.pool_count(),
        numbers: directory.number_count(),
        directory_age_ms: age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        wall_ahead_ms: admin.clock.clocks().wall_less_shard(),
    })
}

pub(crate) async fn readyz(State(admin): State<Admin>) -> (StatusCode, Json<Readiness>) {
    let phase = admin.node.phase();
    let is_writing = admin.node.journals().all(|(_, state)| state == JournalState::Writing);
    let ready = phase == Phase::Serving && is_writing;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let phase = match phase {
        Phase::Starting => "starting",
        Phase::Serving => "serving",
        Phase::Draining => "draining",
    };
    let durability = admin.node.durability.to_string();
    let journals = admin.node.journals().map(|(_, state)| state.name()).collect();
    let histories = admin.node.histories().map(HistoryState::name).collect();
    (status, Json(Readiness { ready, phase, durability, journals, histories }))
}
