//! One request to the main application.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use ringwell_config::{Application, Listen, pool_from_json};
use ringwell_core::PoolId;
use ringwell_directory::RingPool;
use tokio::net::{TcpStream, UnixStream};

use crate::tasks::spawn;

/// The length limit of an answer. A pool of 100,000 single numbers needs this many bytes.
const ANSWER_BYTES_MAX: usize = 2 << 20;

/// Fetches a pool from the application; `None` if the application has no pool with that id.
///
/// # Errors
/// Returns the reason why there is no usable answer, as text for the log.
pub(super) async fn get(settings: &Application, pool: PoolId) -> Result<Option<RingPool>, String> {
    let (status, body) = match &settings.address {
        Listen::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failure)?;
            stream.set_nodelay(true).map_err(failure)?;
            send(stream, settings, pool).await?
        }
        Listen::Unix(path) => {
            send(UnixStream::connect(path).await.map_err(failure)?, settings, pool).await?
        }
    };
    match status {
        StatusCode::NOT_FOUND => Ok(None),
        StatusCode::OK => match pool_from_json(&body)? {
            found if found.id() == pool => Ok(Some(found)),
            found => Err(format!(
                "the main application answered with a different ring pool, {}",
                found.id()
            )),
        },
        other => Err(format!("the main application answered {other}")),
    }
}

/// Sends the request over a new connection, because pools are rarely fetched.
async fn send<S>(
    stream: S,
    settings: &Application,
    pool: PoolId,
) -> Result<(StatusCode, Bytes), String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failure)?;
    spawn(async move {
        // The task that waits for the answer will report the error.
        let _ = connection.await;
    });
    let response = sender.send_request(request(settings, pool)?).await.map_err(failure)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
}

fn request(settings: &Application, pool: PoolId) -> Result<Request<Empty<Bytes>>, String> {
    let (before, after) = &settings.path;
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = format!("{before}{pool}{after}").parse::<Uri>().map_err(failure)?;
    let headers = request.headers_mut();
    let host = HeaderValue::try_from(settings.address.to_string()).map_err(failure)?;
    headers.insert(HOST, host);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(token) = &settings.token {
        let token = [b"Bearer ", token.reveal()].concat();
        let mut token = HeaderValue::try_from(token).map_err(failure)?;
        token.set_sensitive(true);
        headers.insert(AUTHORIZATION, token);
    }
    Ok(request)
}

fn failure(error: impl std::fmt::Display) -> String {
    error.to_string()
}
