//! The demo's webhook receiver: receives and verifies events as a user's own program would.
//!
//! It uses the same code as `ringwell webhooks listen`. Each startup creates a new webhook
//! endpoint, because an endpoint's secret is shown only once and the port may change.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use axum::http::StatusCode;
use ringwell_calls::Service;
use ringwell_calls::webhook::NewEndpoint;
use ringwell_config::{Listen, WebhookSettings};
use ringwell_core::Millis;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::webhooks::{Answering, Received, Receiver};

/// The maximum number of webhooks that the shop's page shows.
const SHOWN: usize = 10;
/// The path of the demo's endpoint, which also identifies earlier demos' endpoints.
const PATH: &str = "/demo-inbox";

/// The received events, newest first.
#[derive(Clone, Default)]
pub(super) struct Inbox(Arc<Mutex<VecDeque<Value>>>);

/// A receiver that does not accept webhooks yet.
pub(super) struct WebhookReceiver {
    receiver: Receiver,
    port: u16,
}

impl WebhookReceiver {
    /// Binds a free port on this machine.
    ///
    /// # Errors
    /// If no port can be bound.
    pub(super) fn open(runtime: &Runtime) -> anyhow::Result<Self> {
        let any = Listen::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
        let receiver = runtime.block_on(Receiver::bind(&any)).context("the demo's receiver")?;
        let port = receiver.address().rsplit(':').next().and_then(|port| port.parse().ok());
        Ok(Self {
            port: port.context("the port of the demo's webhook receiver is unknown")?,
            receiver,
        })
    }

    /// Returns the settings that let the server send webhooks to this receiver.
    pub(super) fn settings(&self) -> WebhookSettings {
        let local = std::net::IpAddr::from([127, 0, 0, 1]);
        WebhookSettings {
            allow_networks: vec![(local, 32)],
            allow_ports: vec![self.port],
            allow_http: true,
            ..WebhookSettings::default()
        }
    }

    /// Makes the server send its events to this receiver. Removes earlier demos' endpoints.
    ///
    /// # Errors
    /// If the call log does not answer.
    pub(super) fn register(&self, runtime: &Runtime, service: &Service) -> anyhow::Result<String> {
        let (log, url) = (service.log().clone(), format!("http://127.0.0.1:{}{PATH}", self.port));
        let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default();
        let made = runtime.block_on(service.run(async move {
            for old in log.endpoints().await?.into_iter().filter(|it| it.url.ends_with(PATH)) {
                log.remove_endpoint(&old.id).await?;
            }
            let new = NewEndpoint { url, types: Vec::new(), company_key: None };
            log.create_endpoint(&new, Millis(now)).await
        }));
        Ok(made??.secret)
    }

    /// Accepts webhooks signed with `secret` until the future is dropped.
    pub(super) async fn serve(self, secret: String, inbox: Inbox) {
        let answering = Answering { secrets: vec![secret], status: StatusCode::NO_CONTENT };
        self.receiver.serve(answering, move |received| inbox.take(&received)).await;
    }
}

impl Inbox {
    fn take(&self, received: &Received) {
        let verified = match &received.checked {
            Ok(()) => "the signature is valid".to_owned(),
            Err(reason) => format!("refused: {reason}"),
        };
        let call = &received.body["data"];
        let line = json!({
            "type": received.kind,
            "id": received.id,
            "verified": verified,
            "call": call["id"],
            "visitor": call["attribution"]["outcome"],
        });
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.truncate(SHOWN - 1);
        lines.push_front(line);
    }

    /// Formats the events as JSON for the shop's page.
    pub(super) fn to_json(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        json!(lines.iter().collect::<Vec<_>>()).to_string()
    }
}
