//! `management.on_data_port`: serves the published API's routes for ring pools at the addresses for
//! clients.
//!
//! Requests arrive on the shards' threads. They are processed on the directory's thread, like
//! requests to the management address. A shard therefore never waits for a database.

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use ringwell_node::{Routes, Unread};
use tokio::sync::{mpsc, oneshot};
use tower::ServiceExt;

/// The maximum number of requests that may wait for the directory's thread.
const WAITING_MAX: usize = 64;

type Asked = (Request, oneshot::Sender<Response>);

/// The channel to the directory's thread.
#[derive(Clone, Debug)]
pub(crate) struct Way(mpsc::Sender<Asked>);

/// The receiving end of the channel.
#[derive(Debug)]
pub(crate) struct End(mpsc::Receiver<Asked>);

/// Creates a channel to the directory's thread, and its receiving end.
pub(crate) fn way() -> (Way, End) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    (Way(sender), End(receiver))
}

impl Way {
    /// Adds the routes for ring pools to `routes`.
    pub(crate) fn beside(self, routes: Routes) -> Routes {
        std::sync::Arc::new(move |node| {
            let way = self.clone();
            let answer = any(move |request| async move { way.answer(request).await });
            routes(node).route("/api/{*path}", answer)
        })
    }

    async fn answer(self, request: Request) -> Response {
        let (head, body) = request.into_parts();
        if let Some(Unread(error)) = head.extensions.get() {
            let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
            return status.into_response();
        }
        // Drops the path parameters found by this router, because the router on the directory's
        // thread parses the path itself.
        let mut request = Request::new(body);
        *request.method_mut() = head.method;
        *request.uri_mut() = head.uri;
        *request.headers_mut() = head.headers;
        let (reply, answer) = oneshot::channel();
        // If the channel is full, `reply` is dropped, and the client gets an answer that asks it to
        // retry.
        let _ = self.0.try_send((request, reply));
        match answer.await {
            Ok(answer) => answer,
            Err(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")]).into_response()
            }
        }
    }
}

impl End {
    /// Answers requests through `router` until all senders are dropped.
    pub(crate) async fn serve(mut self, router: Router) {
        while let Some((request, reply)) = self.0.recv().await {
            let router = router.clone();
            tokio::spawn(async move {
                let answer = match router.oneshot(request).await {
                    Ok(answer) => answer,
                    Err(never) => match never {},
                };
                // The error is ignored, because a client that has disconnected needs no answer.
                drop(reply.send(answer));
            });
        }
    }
}
