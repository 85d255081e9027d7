//! `/healthz`: whether the process is alive. `/readyz`: whether the node should receive requests.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use ringwell_node::{Handle, HistoryState, JournalState, Phase};
use serde::Serialize;

/// The commit that this program was built from, if the program belongs to a package.
pub const COMMIT: Option<&str> = option_env!("RINGWELL_COMMIT");

#[derive(Serialize)]
pub(crate) struct Health {
    status: &'static str,
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    durability: String,
    shards: u16,
    ring_pools: usize,
    numbers: u64,
    /// The time since the directory was last confirmed to be current. Absent if the directory comes
    /// from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    directory_age_ms: Option<u64>,
    /// The time by which the wall clock is ahead of shard time. 0 unless the wall clock was
    /// adjusted or was wrong at startup.
    wall_ahead_ms: i64,
}

#[derive(Serialize)]
pub(crate) struct Readiness {
    ready: bool,
    phase: &'static str,
    durability: String,
    /// The states of the journals, by shard.
    journals: Vec<&'static str>,
    /// For each shard, the state of the part of its history that was not read at startup. Damage to
    /// that part does not make the node unready.
    histories: Vec<&'static str>,
    /// The shards whose rows get overflow numbers; empty when all is well. Held pools do not make
    /// the node unready, because another node could not serve them either.
    reasons: Vec<Trouble>,
}

/// The reason why a shard's rows get overflow numbers.
#[derive(Serialize)]
struct Trouble {
    shard: u16,
    /// The state of the shard's journal, or "held" for a shard that hands out no numbers for now.
    state: &'static str,
    reason: String,
    /// The time since the shard entered this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    for_ms: Option<u64>,
    /// The time until the shard leaves this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_ms: Option<u64>,
}

pub(crate) async fn healthz(State(node): State<Handle>) -> Json<Health> {
    let directory = node.directory();
    let age = node.directory_age();
    Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
        commit: COMMIT,
        durability: node.durability(),
        shards: directory.shards(),
        ring_pools: directory.pool_count(),
        numbers: directory.number_count(),
        directory_age_ms: age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        wall_ahead_ms: node.wall_ahead_ms(),
    })
}

pub(crate) async fn readyz(State(node): State<Handle>) -> (StatusCode, Json<Readiness>) {
    let phase = node.phase();
    let is_writing = node.journals().all(|(_, state)| state == JournalState::Writing);
    let ready = phase == Phase::Serving && is_writing;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let phase = match phase {
        Phase::Starting => "starting",
        Phase::Serving => "serving",
        Phase::Draining => "draining",
    };
    let durability = node.durability();
    let journals = node.journals().map(|(_, state)| state.name()).collect();
    let histories = node.histories().map(HistoryState::name).collect();
    let reasons = reasons(&node);
    (status, Json(Readiness { ready, phase, durability, journals, histories, reasons }))
}

fn reasons(node: &Handle) -> Vec<Trouble> {
    let ms = |time: Duration| Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let journals = node.troubles().into_iter().map(|(shard, state, reason, since)| Trouble {
        shard,
        state: state.name(),
        reason,
        for_ms: ms(since),
        left_ms: None,
    });
    let held = node.held().into_iter().map(|(shard, left)| Trouble {
        shard,
        state: "held",
        reason: "some lockouts may have been lost: pools hand out only overflow numbers until \
            these lockouts would have ended"
            .to_owned(),
        for_ms: None,
        left_ms: ms(left),
    });
    journals.chain(held).collect()
}
