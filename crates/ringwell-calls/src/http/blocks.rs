//! `/v1/blocks`: manages blocked callers.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{delete, get};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::problem::{Problem, read_json};
use crate::block::{BLOCKS_MAX, Block, BlockRow, NOTE_BYTES_MAX, Pattern};
use crate::clock::moment;
use crate::clock::now;
use crate::log::Blocked;
use crate::provider::Refusal;
use crate::service::Service;

/// The routes. A request reaches them only after its token has been checked.
pub(super) fn routes() -> Router<Service> {
    Router::new().route("/v1/blocks", get(list).post(add)).route("/v1/blocks/{id}", delete(remove))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    caller: String,
    pool: Option<u64>,
    answer: Option<String>,
    note: Option<String>,
    /// Whether to accept a prefix that matches all callers of a large country.
    #[serde(default)]
    wide: bool,
}

impl New {
    fn block(self) -> Result<Block, Problem> {
        let caller = Pattern::parse(&self.caller).ok_or_else(|| {
            let how =
                "caller: must be a number (+14155551234), a prefix that ends in * (+1415*), a sip: \
                    address, or withheld";
            Problem::bad_request(how)
        })?;
        if caller.is_wide() && !self.wide {
            return Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!(
                    "caller: {} matches all callers of a large country or of several countries; \
                     if you mean that, add \"wide\":true (`ringwell calls block --wide`)",
                    caller.text()
                ),
            ));
        }
        let answer = self.answer.as_deref().map_or(Some(Refusal::Rejected), Refusal::parse);
        let answer =
            answer.ok_or_else(|| Problem::bad_request("answer: must be reject or busy"))?;
        let fits = |note: &String| note.len() <= NOTE_BYTES_MAX && !note.contains(char::is_control);
        if !self.note.as_ref().is_none_or(fits) {
            return Err(Problem::bad_request(
                "note: must be at most 200 bytes without control characters",
            ));
        }
        Ok(Block { caller, pool: self.pool, answer, note: self.note })
    }
}

async fn list(State(service): State<Service>) -> Result<Json<Value>, Problem> {
    let log = service.log().clone();
    let blocks = service.run(async move { log.blocks().await }).await??;
    let blocks: Vec<Value> = blocks.iter().map(shown).collect();
    Ok(Json(json!({ "blocks": blocks })))
}

async fn add(
    State(service): State<Service>,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let new: New = read_json(&body)?;
    let (block, at) = (new.block()?, now());
    if let Some(pool) = block.pool.filter(|pool| !service.may_block_at(*pool)) {
        return Err(Problem::bad_request(format!("pool: there is no ring pool {pool}")));
    }
    let of = service.clone();
    let store = async move {
        let stored = of.log().block(&block, at).await?;
        of.read_blocks().await?;
        Ok::<_, crate::LogError>(stored)
    };
    match service.run(store).await?? {
        Blocked::Stored(row) => {
            // The log line does not identify the caller; `GET /v1/blocks` does.
            tracing::info!(id = row.id, pool = row.block.pool, "a caller was blocked");
            Ok((StatusCode::CREATED, Json(shown(&row))))
        }
        Blocked::Full => {
            let detail = format!("the list already has {BLOCKS_MAX} entries: remove some first");
            Err(Problem::new(StatusCode::CONFLICT, detail))
        }
    }
}

async fn remove(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let is_name = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let (of, entry) = (service.clone(), id.clone());
    let remove = async move {
        let was_there = of.log().unblock(&entry).await?;
        of.read_blocks().await?;
        Ok::<_, crate::LogError>(was_there)
    };
    if is_name && service.run(remove).await?? {
        tracing::info!(id, "a caller was unblocked");
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found("there is no such entry"))
    }
}

fn shown(row: &BlockRow) -> Value {
    json!({
        "id": row.id,
        "caller": row.block.caller.text(),
        "pool": row.block.pool,
        "answer": row.block.answer.name(),
        "note": row.block.note,
        "created_at": moment(row.created_at),
    })
}
