//! What the published API lacks, under `/v1/`.

use axum::Router;

use crate::Context;

pub(crate) fn routes() -> Router<Context> {
    Router::new()
}
