//! Calls to another node: requests over a few persistent connections, each of which carries one
//! request at a time.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use ringwell_config::Listen;
use ringwell_trace::{Context, Kind, Parent, Span, TRACEPARENT};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::rustls::Error as TlsError;
use tokio_rustls::rustls::pki_types::ServerName;

use ringwell_driver::membership::{Membership, Neighbour};
use ringwell_driver::platform::NetStats;
use ringwell_driver::{Net, Path, Traced, Trouble};

use super::clocks::{Clocks, Estimates};
use super::tls::Tls;
use crate::tasks::spawn;
use ringwell_driver::node::Node;
use ringwell_driver::stats::latency_histogram;

/// The maximum number of connections per link. These are enough for the requests in the window, for
/// pings, and for late answers.
const CONNECTIONS_MAX: u32 = 32;

/// The longest accepted answer.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The media type of the link protocol's frames.
pub(super) const FRAME: HeaderValue = HeaderValue::from_static("application/vnd.ringwell.link");

/// The header with the highest frame version that the caller can read. A request without this
/// header comes from a caller that reads version 1.
pub(super) const SPEAKS: HeaderName = HeaderName::from_static("ringwell-link");

type Connection = SendRequest<Full<Bytes>>;

/// The connections of one link.
#[derive(Debug)]
pub(crate) struct Calls {
    address: Listen,
    /// For links over TCP: the certificates, and the name that the other node's certificate must
    /// have.
    tls: Option<(Tls, ServerName<'static>)>,
    authorization: HeaderValue,
    idle: RefCell<Vec<Connection>>,
    open: Rc<Cell<u32>>,
    connects: Cell<u64>,
    latency: RefCell<Histogram<u64>>,
    clocks: Clocks,
    /// Whether this link reports refused certificates.
    warns: bool,
    /// The reason why the other node's certificate is refused.
    refused: RefCell<Option<String>>,
}

impl Calls {
    /// If `warns` is set, this link logs a warning when the other machine's clock differs from this
    /// one's, or when this node refuses the other node's certificate.
    pub(super) fn new(
        node: &Node,
        neighbour: &Neighbour,
        tls: Option<Tls>,
        (warns, estimates): (bool, &Estimates),
    ) -> Self {
        let secret = node.membership.as_ref().map(Membership::authorization);
        let mut authorization = secret
            .and_then(|secret| HeaderValue::from_maybe_shared(Bytes::from(secret)).ok())
            .unwrap_or(HeaderValue::from_static(""));
        authorization.set_sensitive(true);
        // `Membership::new` has already checked that every name is valid in a certificate.
        let name = ServerName::try_from(neighbour.node.clone()).ok();
        Self {
            address: neighbour.link.clone(),
            tls: tls.zip(name),
            authorization,
            idle: RefCell::default(),
            open: Rc::default(),
            connects: Cell::default(),
            latency: RefCell::new(latency_histogram()),
            clocks: Clocks::new(neighbour.node.clone(), warns, estimates),
            warns,
            refused: RefCell::default(),
        }
    }

    /// Posts a body to the other node, and returns the body of the answer.
    ///
    /// # Errors
    /// Returns a [`Trouble`] if the other node refuses the request, or if no complete answer
    /// arrives.
    pub(super) async fn post(
        &self,
        path: Path,
        body: Bytes,
        span: Option<&Span>,
    ) -> Result<Bytes, Trouble> {
        let begun = Instant::now();
        let (mut connection, mut is_fresh) = self.connection().await?;
        let mut request = self.request(path, body);
        let traceparent = span.and_then(|span| HeaderValue::try_from(span.traceparent()).ok());
        if let Some(value) = traceparent {
            request.headers_mut().insert(TRACEPARENT, value);
        }
        let response = loop {
            let sent = connection.try_send_request(request).await;
            match sent {
                Ok(response) => break response,
                // The other side closed the idle connection before any of the request was sent.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !is_fresh => {
                        request = unsent;
                        connection = self.connect().await?;
                        is_fresh = true;
                    }
                    _ => return Err(lost(error.into_error())),
                },
            }
        };
        self.clocks.compare(response.headers(), begun.elapsed(), path == Path::Attribution);
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(lost)?.to_bytes();
        self.idle.borrow_mut().push(connection);
        if status != StatusCode::OK {
            let reason = String::from_utf8_lossy(&body).trim().to_owned();
            return Err(Trouble::Refused(status.as_u16(), reason));
        }
        let us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.latency.borrow_mut().saturating_record(us.max(1));
        Ok(body)
    }

    /// Closes the idle connections after the other side sent an invalid message.
    pub(super) fn close_idle(&self) {
        self.idle.borrow_mut().clear();
    }

    fn request(&self, path: Path, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = hyper::Uri::from_static(path.as_str());
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_static("ringwell"));
        headers.insert(AUTHORIZATION, self.authorization.clone());
        headers.insert(CONTENT_TYPE, if path.is_frame() { FRAME } else { JSON });
        headers.insert(SPEAKS, HeaderValue::from(u16::from(ringwell_mesh::frame::VERSION)));
        request
    }

    /// Returns a connection that is ready, and whether it is new.
    async fn connection(&self) -> Result<(Connection, bool), Trouble> {
        loop {
            let idle = self.idle.borrow_mut().pop();
            let Some(mut connection) = idle else { break };
            if connection.ready().await.is_ok() {
                return Ok((connection, false));
            }
        }
        Ok((self.connect().await?, true))
    }

    async fn connect(&self) -> Result<Connection, Trouble> {
        if self.open.get() >= CONNECTIONS_MAX {
            return Err(Trouble::Lost("all connections are waiting for answers".to_owned()));
        }
        self.connects.set(self.connects.get() + 1);
        match &self.address {
            Listen::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(lost)?;
                stream.set_nodelay(true).map_err(lost)?;
                match &self.tls {
                    None => self.shake_hands(stream).await,
                    Some((tls, name)) => {
                        let stream = tls.connector().connect(name.clone(), stream).await;
                        let stream = stream.map_err(|error| {
                            self.report_certificate(&error);
                            lost(error)
                        })?;
                        self.refused.take();
                        self.shake_hands(stream).await
                    }
                }
            }
            Listen::Unix(path) => {
                self.shake_hands(UnixStream::connect(path).await.map_err(lost)?).await
            }
        }
    }

    /// If this node refuses the other node's certificate, logs the reason once.
    fn report_certificate(&self, error: &io::Error) {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
        let Some(cause @ TlsError::InvalidCertificate(_)) = cause else { return };
        let reason = cause.to_string();
        if self.refused.replace(Some(reason.clone())).as_ref() != Some(&reason) && self.warns {
            tracing::warn!(
                node = self.clocks.node(),
                address = %self.address,
                reason,
                "this node refuses the certificate of another node, and sends it no rows: give \
                 that node a certificate that is valid now, was issued by the authority in `ca`, \
                 and contains the node's name as a DNS name (subjectAltName)"
            );
        }
    }

    async fn shake_hands<S>(&self, stream: S) -> Result<Connection, Trouble>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        let open = Open::new(&self.open);
        spawn(async move {
            // The task that waits for the answer receives the error too, and reports it.
            let _ = connection.await;
            drop(open);
        });
        Ok(sender)
    }
}

/// Access to a shard of another node over HTTP.
#[derive(Clone, Debug)]
pub(crate) struct HttpNet(pub(super) Rc<Calls>);

impl Net for HttpNet {
    fn call(
        &self,
        path: Path,
        body: Bytes,
    ) -> impl Future<Output = Result<Bytes, Trouble>> + 'static {
        self.call_traced(path, body, None)
    }

    fn call_traced(
        &self,
        path: Path,
        body: Bytes,
        traced: Option<Traced>,
    ) -> impl Future<Output = Result<Bytes, Trouble>> + 'static {
        let calls = Rc::clone(&self.0);
        async move {
            let span = ringwell_trace::begin("a request to another node", Kind::Client, || {
                match path {
                    // The span belongs to the trace of the request's batch, if that trace is
                    // recorded.
                    Path::Rows => Parent::Span(traced.map(|Traced(place)| Context::kept(place))),
                    _ => Parent::Header(None),
                }
            });
            let answered = calls.post(path, body, span.as_deref()).await;
            if let Some(mut span) = span {
                span.text("url.path", path.as_str());
                span.text("server.address", &calls.address.to_string());
                if let Err(trouble) = &answered {
                    span.fail(&format!("{trouble:?}"));
                }
            }
            answered
        }
    }

    fn clock_ahead_ms(&self) -> i64 {
        self.0.clocks.estimate_ms()
    }

    fn close(&self) {
        self.0.close_idle();
    }

    fn stats(&self) -> NetStats {
        let Calls { open, connects, latency, clocks, .. } = &*self.0;
        let latency = latency.borrow().clone();
        let clock_ahead_ms = clocks.ahead_ms();
        NetStats { connections: open.get(), connects: connects.get(), latency, clock_ahead_ms }
    }
}

/// Counts a connection as open until it is dropped.
struct Open(Rc<Cell<u32>>);

impl Open {
    fn new(count: &Rc<Cell<u32>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

fn lost(error: impl fmt::Display) -> Trouble {
    Trouble::Lost(error.to_string())
}
