//! The fixed-bytes server: Ringwell's HTTP stack and nothing else.
//!
//! It is set up like one Ringwell shard: hyper on one current-thread runtime, a backlog of 4,096,
//! `TCP_NODELAY`, one local task per connection, the whole body read before the answer. It does not
//! parse requests, allocate numbers or write a journal. Therefore, no server on this stack can be
//! faster, except for measurement noise. Every ratio in `bench/README.md` is relative to this
//! server, measured in the same run.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::LocalSet;

use crate::target::Target;

/// The answer's length in bytes, which equals the length of Ringwell's answer to forty rows from
/// `bulk.lua`.
const ANSWER_BYTES: usize = 4_415;
const BACKLOG: i32 = 4_096;

/// Flags of `ringwell-bench ceiling`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address to listen on: HOST:PORT or unix:PATH.
    #[arg(long, default_value = "127.0.0.1:8090")]
    listen: Target,
}

/// Serves until the process is ended.
///
/// # Errors
/// If the server cannot listen on the address.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = Bytes::from(answer());
    LocalSet::new().block_on(&runtime, async {
        match &args.listen {
            Target::Tcp(address) => serve_tcp(*address, answer).await,
            Target::Unix(path) => {
                let listener = UnixListener::bind(path)
                    .with_context(|| format!("cannot listen on {}", path.display()))?;
                loop {
                    let (stream, _) = listener.accept().await?;
                    tokio::task::spawn_local(serve(TokioIo::new(stream), answer.clone()));
                }
            }
        }
    })
}

async fn serve_tcp(address: SocketAddr, answer: Bytes) -> anyhow::Result<()> {
    let listener = listen(address).with_context(|| format!("cannot listen on {address}"))?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::task::spawn_local(serve(TokioIo::new(stream), answer.clone()));
    }
}

fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into())?)
}

async fn serve<S>(io: TokioIo<S>, answer: Bytes)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let service = service_fn(move |request| respond(request, answer.clone()));
    // Without a timer, hyper has no time limit for heads. Ringwell sets no timer for each request
    // either. Errors are ignored, because a client that disconnects does not affect the
    // measurement.
    let _ = http1::Builder::new().serve_connection(io, service).await;
}

async fn respond(
    request: Request<Incoming>,
    answer: Bytes,
) -> Result<Response<Full<Bytes>>, Infallible> {
    // If a body breaks off, no answer is possible, and hyper closes the connection.
    let _body = request.into_body().collect().await;
    let mut response = Response::new(Full::new(answer));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(HeaderName::from_static("processing-time"), HeaderValue::from_static("0"));
    headers.insert(
        HeaderName::from_static("server-timing"),
        HeaderValue::from_static("total;dur=0.021"),
    );
    Ok(response)
}

/// Valid JSON with a length of exactly [`ANSWER_BYTES`].
fn answer() -> Vec<u8> {
    let (head, tail) = (br#"{"fixed":""#, br#""}"#);
    let filling = ANSWER_BYTES - head.len() - tail.len();
    let mut bytes = Vec::with_capacity(ANSWER_BYTES);
    bytes.extend_from_slice(head);
    bytes.resize(head.len() + filling, b'.');
    bytes.extend_from_slice(tail);
    bytes
}

#[cfg(test)]
mod tests {
    use super::{ANSWER_BYTES, answer};

    #[test]
    fn the_fixed_answer_is_json_of_the_stated_length() {
        assert_eq!(answer().len(), ANSWER_BYTES);
        assert!(serde_json::from_slice::<serde_json::Value>(&answer()).is_ok());
    }
}
