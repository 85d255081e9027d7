//! HTTP on a shard's thread: accepts connections, and passes each request to the handler for its
//! path.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, Version};
use hyper_util::rt::TokioIo;
use ringwell_wire::{RequestError, api_path};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::ServiceExt;

use crate::conn::{Open, Order, Phase, Watch, Watched};
use crate::edge::Edge;
use crate::fields::values;
use crate::handle::Unread;
use crate::handshakes::Handshakes;
use crate::link::tls::Tls;
use crate::listen::Listener;
use crate::memory::Room;
use crate::request::{discard, has_chunks, read_body};
use crate::response::{AnswerBody, close};
use crate::shard::HttpShard;
use crate::tasks::spawn;
use crate::{api, link, site};
use ringwell_driver::node;
use ringwell_os::clock::coarse_time;

/// The pause after the kernel fails to accept a connection, usually for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The interval between two checks of whether another node's certificate is still valid.
const VALID_EVERY: Duration = Duration::from_secs(10);

/// The answer to a client that exceeds the limit on connections. The connection is then closed.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
    cache-control: no-store\r\nx-content-type-options: nosniff\r\n\
    connection: close\r\nretry-after: 1\r\ncontent-length: 84\r\n\r\n\
    {\"errors\":{\"invalid_data\":\"too many open connections\",\"class\":\"ServiceUnavailable\"}}";

/// The kinds of clients that a listener serves.
#[derive(Clone, Debug)]
pub(crate) enum ListenerKind {
    /// Any client of the public API or the management API.
    Clients(Router),
    /// Web pages, which use separate addresses.
    Pages,
    /// Other nodes of the cluster, which connect over TCP, with TLS if there are certificates.
    Nodes(Option<Tls>),
}

/// Accepts connections until the task is ended.
pub(crate) async fn accept(thread: Rc<HttpShard>, listener: Listener, kind: ListenerKind) {
    let kind = Rc::new(kind);
    let listener = match Accept::new(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(shard = thread.id, %error, "cannot use a listener");
            return;
        }
    };
    let handshakes = Rc::default();
    loop {
        let accepted = match &listener {
            Accept::Tcp(tcp) => tcp.accept().await.map(|(socket, address)| {
                // Answers are written as a whole, so waiting for more data would only delay them.
                let _ = socket.set_nodelay(true);
                match &*kind {
                    // A connection counts towards the limit even without a certificate.
                    ListenerKind::Nodes(Some(tls)) => admit(&thread, &kind).is_some_and(|open| {
                        let thread = Rc::clone(&thread);
                        spawn(welcome_node(thread, socket, tls.clone(), open));
                        true
                    }),
                    ListenerKind::Nodes(None) | ListenerKind::Clients(_) | ListenerKind::Pages => {
                        welcome(&thread, socket, &kind, Some(address.ip()))
                    }
                }
            }),
            Accept::Secure(tcp) => tcp.accept().await.map(|(socket, address)| {
                let _ = socket.set_nodelay(true);
                welcome_secure(&thread, socket, &kind, address.ip(), &handshakes)
            }),
            Accept::Unix(unix) => {
                unix.accept().await.map(|(socket, _)| welcome(&thread, socket, &kind, None))
            }
        };
        match accepted {
            Ok(true) => {}
            // The task that closes the refused connection runs before the next connection is
            // accepted, so that many refused clients do not use up the descriptors.
            Ok(false) => tokio::task::yield_now().await,
            Err(error) => {
                tracing::warn!(shard = thread.id, %error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A listener on the shard's runtime.
enum Accept {
    Tcp(tokio::net::TcpListener),
    Secure(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Accept {
    fn new(listener: Listener) -> io::Result<Self> {
        match listener {
            Listener::Tcp(tcp) => tokio::net::TcpListener::from_std(tcp).map(Self::Tcp),
            Listener::Secure(tcp) => tokio::net::TcpListener::from_std(tcp).map(Self::Secure),
            Listener::Unix(unix) => tokio::net::UnixListener::from_std(unix).map(Self::Unix),
        }
    }
}

/// Serves another node after both sides have presented their certificates, for as long as the other
/// node's certificate is valid.
async fn welcome_node(thread: Rc<HttpShard>, socket: TcpStream, tls: Tls, open: Open) {
    let limit = thread.node.config.limits.head_timeout;
    match tokio::time::timeout(limit, tls.acceptor().accept(socket)).await {
        Ok(Ok(socket)) => {
            open.watch.enter(Phase::Head);
            let chain = socket.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
            let expired = async {
                while tls.accepts(&chain) {
                    tokio::time::sleep(VALID_EVERY).await;
                }
            };
            let kind = Rc::new(ListenerKind::Nodes(None));
            tokio::select! {
                () = serve(Rc::clone(&thread), socket, open, kind, None) => {}
                () = expired => tracing::warn!(
                    shard = thread.id,
                    "a link was closed: the other node's certificate is no longer valid"
                ),
            }
        }
        Ok(Err(error)) => {
            thread.stats.links_refused.add(1);
            if let Some(left_out) = thread.stats.strangers.pass(coarse_time()) {
                tracing::warn!(
                    shard = thread.id,
                    left_out,
                    %error,
                    "a link was refused: only nodes with a certificate of this cluster can \
                     connect. If the error is an alert, the other node refused this node's certificate: \
                     its log gives the reason"
                );
            }
        }
        // The other node did not complete the handshake in time.
        Err(_) => thread.stats.connections_cut.add(1),
    }
}

/// Serves a client after the TLS handshake, unless too many handshakes are in progress. Returns
/// whether the handshake was admitted.
fn welcome_secure(
    thread: &Rc<HttpShard>,
    socket: TcpStream,
    kind: &Rc<ListenerKind>,
    address: IpAddr,
    handshakes: &Rc<Handshakes>,
) -> bool {
    let Some(secure) = &thread.server.secure else { return false };
    let Some(place) = handshakes.begin(address) else {
        thread.stats.connections_refused.add(1);
        return false;
    };
    let (handshake, number) = (secure.acceptor.accept(socket), place.number());
    let (thread, kind) = (Rc::clone(thread), Rc::clone(kind));
    let task = spawn(async move {
        let limit = thread.node.config.limits.head_timeout;
        let agreed = tokio::time::timeout(limit, handshake).await;
        drop(place);
        match agreed {
            Ok(Ok(socket)) => {
                welcome(&thread, socket, &kind, Some(address));
            }
            // The client does not use TLS, or uses a version that is not allowed. Unknown clients
            // can cause this, so it is not logged as a server error.
            Ok(Err(error)) => tracing::debug!(shard = thread.id, %error, "TLS handshake failed"),
            Err(_) => thread.stats.connections_cut.add(1),
        }
    });
    handshakes.note(number, task.abort_handle());
    true
}

/// Serves a new connection in its own task if a place is free, and returns whether one was.
fn welcome<S>(
    thread: &Rc<HttpShard>,
    mut socket: S,
    kind: &Rc<ListenerKind>,
    address: Option<IpAddr>,
) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let Some(open) = admit(thread, kind) else {
        spawn(async move {
            // If the client does not read this answer in time, the connection is closed anyway.
            let _ = tokio::time::timeout(ACCEPT_PAUSE, socket.write_all(FULL)).await;
        });
        return false;
    };
    spawn(serve(Rc::clone(thread), socket, open, Rc::clone(kind), address));
    true
}

/// Takes a place for another connection on this thread, if a place is free.
///
/// Any client on the internet may connect to a listener that serves only web pages. Such listeners
/// may therefore use only half of the places, and the other half always remains for other clients.
fn admit(thread: &Rc<HttpShard>, kind: &ListenerKind) -> Option<Open> {
    // Shards that exist only for their history have no listeners.
    let shards = thread.directory().shards();
    let is_serving = |shard: &u16| *shard < shards;
    let serving = thread.node.shards().filter(is_serving).count();
    let room = thread.node.config.limits.connections.div_ceil(serving.max(1));
    let is_page = matches!(kind, ListenerKind::Pages);
    let has_share = !is_page || thread.connections.pages() < (room / 2).max(1);
    if thread.connections.count() >= room || !has_share {
        thread.stats.connections_refused.add(1);
        return None;
    }
    thread.stats.connections_opened.add(1);
    Some(thread.connections.open(is_page))
}

async fn serve<S>(
    thread: Rc<HttpShard>,
    socket: S,
    open: Open,
    kind: Rc<ListenerKind>,
    address: Option<IpAddr>,
) where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let watch = Rc::clone(&open.watch);
    let service = service_fn(|request: Request<Incoming>| {
        watch.enter(Phase::Service);
        respond(Rc::clone(&thread), Rc::clone(&watch), Rc::clone(&kind), address, request)
    });
    let limits = &thread.node.config.limits;
    let socket = Edge::new(socket, Rc::clone(&open.watch));
    let io = TokioIo::new(Watched { socket, watch: Rc::clone(&open.watch) });
    let connection = http1::Builder::new()
        .half_close(true)
        .max_headers(limits.headers)
        .max_header_size(limits.header_bytes)
        .max_buf_size(limits.header_bytes.max(HYPER_BUFFER_MIN))
        .serve_connection(io, service);
    let mut connection = pin!(connection);
    let mut is_finishing = false;
    poll_fn(|cx| {
        watch.remember(cx.waker());
        match watch.order() {
            Order::Cut => return Poll::Ready(()),
            Order::Finish if !is_finishing => {
                is_finishing = true;
                connection.as_mut().graceful_shutdown();
            }
            Order::Finish | Order::Serve => {}
        }
        // If a connection breaks, the error is ignored.
        connection.as_mut().poll(cx).map(|_| ())
    })
    .await;
}

/// The smallest buffer that the HTTP library accepts.
const HYPER_BUFFER_MIN: usize = 8192;

/// Answers one request, or refuses it.
///
/// Answers are built on the heap, in memory that the previous answer on this thread has just freed.
/// The HTTP library keeps the memory of each connection until the connection closes. If answers
/// were built there, they would evict each other from the CPU's caches.
fn respond(
    thread: Rc<HttpShard>,
    watch: Rc<Watch>,
    kind: Rc<ListenerKind>,
    address: Option<IpAddr>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<AnswerBody>, Infallible>> {
    let (head, body) = request.into_parts();
    async move {
        let mut response = match &*kind {
            ListenerKind::Nodes(_) => {
                let has_chunks = has_chunks(&body);
                let request = Request::from_parts(head, body);
                let mut response = Box::pin(link::serve::answer(&thread, request)).await;
                if has_chunks {
                    close(&mut response);
                }
                response
            }
            ListenerKind::Clients(_) | ListenerKind::Pages => {
                match refuse_head(&thread, &head, &body) {
                    Some(mut refusal) => {
                        if !discard(&head, body).await {
                            close(&mut refusal);
                        }
                        refusal
                    }
                    None if is_published(&thread, &kind, &head) => {
                        Box::pin(api::answer(&thread, &watch, &head, body)).await
                    }
                    None => {
                        let request = Request::from_parts(head, body);
                        Box::pin(answer(&thread, request, &kind, address)).await
                    }
                }
            }
        };
        // If part of a request was left unread, its answer announces that the connection will
        // close. Successful requests are rarely left unread, so only refusals are considered here.
        if !response.status().is_success() && response.headers().contains_key(header::CONNECTION) {
            watch.linger();
        }
        if thread.node.phase() == node::Phase::Draining {
            close(&mut response);
        }
        watch.enter(Phase::Write);
        Ok::<_, Infallible>(response)
    }
}

/// Whether this is a request to the public API.
fn is_published(thread: &HttpShard, kind: &ListenerKind, head: &Parts) -> bool {
    let path = match kind {
        ListenerKind::Clients(_) => api_path(head.uri.path()),
        ListenerKind::Pages | ListenerKind::Nodes(_) => None,
    };
    let is_managed =
        |path: &str| thread.node.config.management.on_data_port && path.contains("/advertisers/");
    path.is_some_and(|path| !is_managed(path))
}

/// Answers a request from a web page, or a request to the management API.
async fn answer(
    thread: &Rc<HttpShard>,
    request: Request<Incoming>,
    kind: &ListenerKind,
    address: Option<IpAddr>,
) -> Response<AnswerBody> {
    let is_page = thread.node.config.site_listen.is_empty() && site::is_for(request.uri().path());
    match kind {
        ListenerKind::Clients(admin) if !is_page => manage(thread, request, admin).await,
        ListenerKind::Clients(_) | ListenerKind::Pages | ListenerKind::Nodes(_) => {
            page(thread, request, address).await
        }
    }
}

async fn page(
    thread: &Rc<HttpShard>,
    request: Request<Incoming>,
    address: Option<IpAddr>,
) -> Response<AnswerBody> {
    let is_read = request.method() == Method::POST && site::is_for(request.uri().path());
    let leaves_chunks = has_chunks(request.body()) && !is_read;
    let mut response = site::answer(thread, request, address).await;
    if leaves_chunks {
        close(&mut response);
    }
    response
}

/// Refuses a request whose head is invalid.
fn refuse_head(thread: &HttpShard, head: &Parts, body: &Incoming) -> Option<Response<AnswerBody>> {
    if is_ambiguous(head, body) {
        return Some(api::refuse(thread, &RequestError::Malformed));
    }
    let uri = &head.uri;
    let uri_bytes = uri.path().len() + uri.query().map_or(0, |query| query.len() + 1);
    let limit = thread.node.config.limits.uri_bytes;
    if uri_bytes <= limit {
        return None;
    }
    Some(api::refuse(thread, &RequestError::UriTooLong { limit }))
}

/// Answers a request to the management API.
async fn manage(
    thread: &Rc<HttpShard>,
    request: Request<Incoming>,
    admin: &Router,
) -> Response<AnswerBody> {
    let (mut head, body) = request.into_parts();
    let read = read_body(thread, body).await;
    let is_unread = read.is_err();
    let (body, _room) = read.unwrap_or_else(|error| {
        head.extensions.insert(Unread(error));
        (Bytes::new(), Room::unbounded())
    });
    let request = Request::from_parts(head, axum::body::Body::from(body));
    let mut response = match admin.clone().oneshot(request).await {
        Ok(response) => response.map(AnswerBody::Admin),
        Err(never) => match never {},
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_unread {
        close(&mut response);
    }
    response
}

/// Whether a proxy and this server could disagree on the request's host or on the end of its body.
/// A request with both a length and chunks is allowed: the HTTP library closes its connection.
fn is_ambiguous(head: &Parts, body: &Incoming) -> bool {
    let mut hosts = values(&head.headers, &header::HOST);
    let has_host = hosts.next().is_some() || head.version < Version::HTTP_11;
    let is_sized = body.size_hint().exact().is_some();
    let mut codings = values(&head.headers, &header::TRANSFER_ENCODING);
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    let is_framed =
        is_sized || (codings.next().is_some_and(is_chunked) && codings.next().is_none());
    !has_host || hosts.next().is_some() || !is_framed
}
