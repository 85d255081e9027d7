//! Sends one delivery: resolves the host name, checks the address and connects to it, posts the
//! body, and reads the answer.
//!
//! Uses HTTP/1.1 and a new connection for each delivery. Follows no redirects, and uses no proxy
//! from the environment.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use ringwell_core::Millis;
use ringwell_trace::Kind;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::address::{Forbidden, Host, Policy, Target};
use super::outbox::{Due, Ended};
use super::{schedule, sign};
use crate::trace::trace;

/// The time limit for each of two steps: connecting, and the TLS handshake.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The time limit for a whole delivery.
pub const TOTAL_MAX: Duration = Duration::from_secs(15);
/// The time limit for resolving a name when a URL is checked.
const RESOLVE_MAX: Duration = Duration::from_secs(2);
/// The maximum number of bytes to read from an answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const USER_AGENT: &str = concat!("Ringwell-Webhooks/", env!("CARGO_PKG_VERSION"));

/// A future that returns the addresses of a name.
pub type Addresses = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves names to addresses.
pub trait Resolver: Send + Sync {
    /// Returns all addresses of `name`.
    fn resolve(&self, name: &str) -> Addresses;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Resolver for System {
    fn resolve(&self, name: &str) -> Addresses {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Sends requests to endpoints.
#[derive(Clone)]
pub struct Sender {
    /// The rules for endpoints' addresses. Clones of the sender share them.
    policy: Arc<RwLock<Policy>>,
    resolver: Arc<dyn Resolver>,
    tls: TlsConnector,
}

/// A request to send.
pub struct Post<'a> {
    /// The URL.
    pub url: &'a str,
    /// The names and values of the headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body, as JSON.
    pub body: &'a str,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The HTTP status.
    pub status: u16,
    /// The pause that the endpoint requested before the next attempt.
    pub retry_after: Option<Millis>,
    /// The body, or the reason why it could not be read.
    pub body: Result<Vec<u8>, String>,
}

impl Sender {
    /// Creates a sender that applies `policy` and trusts the system's certificates.
    #[must_use]
    pub fn new(policy: Policy, resolver: Arc<dyn Resolver>) -> Self {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            tracing::warn!(
                "the system has no CA certificates, so requests to https:// URLs will fail: \
                 install the package ca-certificates"
            );
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let policy = Arc::new(RwLock::new(policy));
        Self { policy, resolver, tls: TlsConnector::from(Arc::new(config)) }
    }

    /// The rules for endpoints' addresses.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the rules for addresses, also in clones of the sender.
    pub fn keep_to(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// Checks an endpoint's URL when it is entered. With `https://`, a name is accepted even if it
    /// cannot be resolved now, because each delivery checks the address again.
    ///
    /// # Errors
    /// A text for the person who entered the URL.
    pub async fn check_url(&self, url: &str) -> Result<(), String> {
        let policy = self.policy();
        let target = policy.target(url).map_err(|error| error.to_string())?;
        let Host::Name(name) = &target.host else { return Ok(()) };
        let found = timeout(RESOLVE_MAX, self.resolver.resolve(name)).await;
        let found = found.ok().and_then(Result::ok).unwrap_or_default();
        if found.is_empty() && !target.is_tls {
            return Err(format!("{name} has no address: {}", Forbidden::Plain));
        }
        let mut checks = found.iter().map(|address| policy.check(*address, target.is_tls));
        checks.find_map(Result::err).map_or(Ok(()), |error| Err(error.to_string()))
    }

    /// Sends a delivery. `now` is the current time.
    pub async fn deliver(&self, due: &Due, now: Millis) -> Ended {
        let seconds = now.0 / 1000;
        let secrets: Vec<&str> = due.secrets.iter().map(String::as_str).collect();
        let signature = sign::sign(&secrets, &due.event, seconds, due.body.as_bytes());
        let mut headers = vec![
            ("webhook-id", due.event.clone()),
            ("webhook-timestamp", seconds.to_string()),
            ("webhook-signature", signature),
        ];
        if let Some(key) = &due.company_key {
            headers.push(("signature", sign::company(key, due.body.as_bytes())));
        }
        let mut span = trace("a webhook", Kind::Client, || call_of(&due.body));
        if let Some(span) = &mut span {
            span.text("ringwell.endpoint", &due.endpoint);
            span.number("ringwell.attempt", u64::from(due.attempts) + 1);
            headers.push(("traceparent", span.traceparent()));
        }
        match self.post(Post { url: &due.url, headers, body: &due.body }, now, TOTAL_MAX).await {
            Ok(answered) => {
                if let Some(span) = &mut span {
                    span.status(answered.status);
                }
                Ended::Answered { status: answered.status, retry_after: answered.retry_after }
            }
            Err(error) => {
                if let Some(span) = &mut span {
                    span.fail(&error);
                }
                Ended::Failed(error)
            }
        }
    }

    /// Posts a request and waits at most `most` for the answer.
    ///
    /// # Errors
    /// The reason why there is no answer, as text for the endpoint's operator.
    pub async fn post(
        &self,
        post: Post<'_>,
        now: Millis,
        most: Duration,
    ) -> Result<Answered, String> {
        let sent = timeout(most, self.send(post, now)).await;
        sent.unwrap_or_else(|_| Err(format!("no answer within {most:?}")))
    }

    async fn send(&self, post: Post<'_>, now: Millis) -> Result<Answered, String> {
        let target = self.policy().target(post.url).map_err(|error| error.to_string())?;
        let address = self.address(&target).await?;
        let stream = timeout(CONNECT_MAX, TcpStream::connect(address)).await;
        let stream = stream.map_err(|_| format!("{address} does not accept connections"))?;
        let stream = stream.map_err(|error| format!("{address}: {error}"))?;
        if !target.is_tls {
            return exchange(stream, &target, post, now).await;
        }
        let name = match &target.host {
            Host::Name(name) => ServerName::try_from(name.clone()).map_err(|e| e.to_string())?,
            Host::Address(address) => ServerName::IpAddress((*address).into()),
        };
        let stream = timeout(CONNECT_MAX, self.tls.connect(name, stream)).await;
        let stream = stream.map_err(|_| format!("{address} does not support TLS"))?;
        let stream = stream.map_err(|error| format!("TLS: {error}"))?;
        exchange(stream, &target, post, now).await
    }

    /// Chooses the address to connect to. If any address of a name is forbidden, refuses the name.
    async fn address(&self, target: &Target) -> Result<SocketAddr, String> {
        let found = match &target.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                let found = self.resolver.resolve(name).await;
                found.map_err(|error| format!("{name} has no address: {error}"))?
            }
        };
        let policy = self.policy();
        for address in &found {
            policy.check(*address, target.is_tls).map_err(|error| error.to_string())?;
        }
        // Prefers IPv4, because trying IPv6 would only waste time on a machine without it.
        let first = found.iter().find(|it| it.is_ipv4()).or(found.first());
        let address = first.ok_or_else(|| "the host has no address".to_owned())?;
        Ok(SocketAddr::new(*address, target.port))
    }
}

/// The id of the call that the event in `body` describes.
fn call_of(body: &str) -> Option<String> {
    let event: serde_json::Value = serde_json::from_str(body).ok()?;
    Some(event["data"]["id"].as_str()?.to_owned())
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    target: &Target,
    post: Post<'_>,
    now: Millis,
) -> Result<Answered, String> {
    let said = |error: hyper::Error| format!("HTTP: {error}");
    let (mut sender, connection) =
        http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await.map_err(said)?;
    let host = match &target.host {
        Host::Name(name) => name.clone(),
        Host::Address(IpAddr::V4(address)) => address.to_string(),
        Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
    };
    let is_default = target.port == if target.is_tls { 443 } else { 80 };
    let host = if is_default { host } else { format!("{host}:{}", target.port) };
    let mut request = Request::post(&target.path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close");
    for (name, value) in &post.headers {
        request = request.header(*name, value);
    }
    let request = request.body(Full::new(Bytes::from(post.body.to_owned())));
    let request = request.map_err(|error| error.to_string())?;
    // Dropping the `JoinSet` ends the connection's task when this function returns.
    let mut works = JoinSet::new();
    works.spawn(connection);
    let response = sender.send_request(request).await.map_err(said)?;
    let status = response.status().as_u16();
    let asked = response.headers().get(header::RETRY_AFTER);
    let asked = asked.and_then(|value| schedule::retry_after(value.to_str().ok()?, now));
    // If the body cannot be read, the status of the answer is still used.
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map(|body| body.to_bytes().to_vec()).map_err(|error| {
        let is_long = error.is::<LengthLimitError>();
        let kib = ANSWER_BYTES_MAX / 1024;
        if is_long {
            format!("the answer is larger than {kib} KiB")
        } else {
            format!("the answer ended early: {error}")
        }
    });
    Ok(Answered { status, retry_after: asked, body })
}

#[cfg(test)]
mod tests;
