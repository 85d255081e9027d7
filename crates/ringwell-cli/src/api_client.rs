//! Requests to the management API, for commands that query or change a running server.
//!
//! Parses server addresses, reads the management token, and formats the errors of failed requests.
//! Callers choose the paths and bodies of the requests. Speaks HTTP/1.1 over TCP and unix sockets,
//! with one request per connection. TLS is not supported: the address must be the server's own, or
//! a proxy's plain HTTP address.

use std::fmt;
use std::fs;
use std::num::IntErrorKind;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use ringwell_admin::NO_SUCH_PATH;
use ringwell_config::{Listen, shown_file};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::environment::variable;
use crate::print::print_note;

/// A server that accepts no connection within this time is considered unreachable.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// If a server takes longer than this to answer a request, the answer is considered lost. The limit
/// is high because moving many buckets takes seconds.
const ANSWER_MAX: Duration = Duration::from_mins(2);
/// The time after which the client says that it is still waiting.
const WAIT_SILENT: Duration = Duration::from_secs(5);

/// A server that does not report its health within this time is considered hung.
pub(crate) const HEALTH_MAX: Duration = Duration::from_secs(3);

/// The address of a server: `http://HOST:PORT`, `HOST:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url(Listen);

impl FromStr for Url {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("https://") {
            return Err(
                "this command does not support TLS: use the server's own address, not that of a \
                 TLS proxy",
            );
        }
        let rest = text.strip_prefix("http://");
        let place = rest.map_or(text, |rest| rest.trim_end_matches('/'));
        let listen = match place.parse::<Listen>() {
            Err(_) if rest.is_some() => format!("{place}:80").parse(),
            read => read,
        };
        let port = place.rsplit_once(':').map_or("", |(_, port)| port).parse::<u16>();
        let is_large = port.is_err_and(|error| *error.kind() == IntErrorKind::PosOverflow);
        let why = if is_large {
            "the port must be 1 to 65535"
        } else {
            "must be http://HOST:PORT, HOST:PORT or unix:PATH"
        };
        listen.map(Self).map_err(|_| why)
    }
}

impl Url {
    /// The value of the `Host` header. It must name the server, because the management API refuses
    /// unknown host names.
    fn host(&self) -> HeaderValue {
        let local = HeaderValue::from_static("localhost");
        match &self.0 {
            Listen::Tcp { .. } => HeaderValue::from_str(&self.0.to_string()).unwrap_or(local),
            Listen::Unix(_) => local,
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Listen::Tcp { .. } => write!(f, "http://{}", self.0),
            Listen::Unix(_) => self.0.fmt(f),
        }
    }
}

/// The server that gets the requests, and the token to send.
#[derive(Debug, clap::Args)]
pub(crate) struct Access {
    /// The server: http://HOST:PORT or unix:PATH
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) url: Url,
    /// File that contains the management token; without it, the variable `RINGWELL_TOKEN` is used
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// The reason why a request failed.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// No server accepts connections at the address. The request was not sent.
    NotThere { url: Url, reason: String },
    /// The connection ended, or no answer came in time. Unless `is_read` is set, the request may
    /// have been carried out.
    Lost { url: Url, reason: String, is_read: bool },
    /// The server refused the request.
    Refused { url: Url, status: StatusCode, detail: String, has_token: bool },
}

impl std::error::Error for ApiError {}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotThere { url, reason } => {
                write!(
                    f,
                    "no server answers at {url}: {reason}. Check that the server is running and \
                    listens on this address"
                )
            }
            Self::Lost { url, reason, is_read: true } => {
                write!(f, "no usable answer from {url}: {reason}. Try again")
            }
            Self::Lost { url, reason, is_read: false } => write!(
                f,
                "no usable answer from {url}: {reason}. The request may have taken effect, or may \
                 still take effect: check before you repeat it"
            ),
            Self::Refused { url, status: StatusCode::UNAUTHORIZED, has_token, .. } => {
                match has_token {
                    true => write!(
                        f,
                        "{url} refuses this token: add the token's SHA-256 to \
                         management.token_sha256 in that server's configuration, or to \
                         RINGWELL_TOKEN_SHA256 if that server's environment sets this variable"
                    ),
                    false => write!(
                        f,
                        "{url} requires a management token: set --token-file to a file that \
                         contains one, or set RINGWELL_TOKEN"
                    ),
                }
            }
            Self::Refused { url, status: StatusCode::NOT_FOUND, detail, .. }
                if detail.is_empty() || detail.starts_with(NO_SUCH_PATH) =>
            {
                write!(
                    f,
                    "{url} does not support this request: set --url to an address in the server's \
                     `listen` setting, not to its management address. If --url is already such an \
                     address, the server is an older version of Ringwell, or another program"
                )
            }
            Self::Refused { url, status, detail, .. } => match detail.as_str() {
                "" => write!(f, "{url} answered {status}"),
                detail => write!(f, "{url}: {detail}"),
            },
        }
    }
}

/// Sends requests to the management API.
#[derive(Debug)]
pub(crate) struct ApiClient {
    runtime: Runtime,
    /// The time after which a request without an answer is abandoned.
    answer_max: Duration,
    authorization: Option<HeaderValue>,
}

impl ApiClient {
    /// Creates a client. Reads the token from the file in `access` or, if none is given, from
    /// `RINGWELL_TOKEN`. Without a token, the server refuses requests that require one.
    ///
    /// # Errors
    /// If the token cannot be read or is malformed.
    pub(crate) fn new(access: &Access) -> anyhow::Result<Self> {
        let (token, source) = if let Some(path) = &access.token_file {
            let source = shown_file(path);
            let token = fs::read_to_string(path);
            (Some(token.with_context(|| format!("cannot read {source}"))?), source)
        } else {
            let token = variable("RINGWELL_TOKEN").filter(|token| !token.is_empty());
            (token, "RINGWELL_TOKEN".to_owned())
        };
        let authorization = token.map(|token| {
            ensure!(!token.trim().is_empty(), "the management token ({source}) is empty");
            let mut value =
                HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| {
                    anyhow!(
                        "{source} does not contain a management token: a token is one line of text"
                    )
                })?;
            value.set_sensitive(true);
            Ok(value)
        });
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, answer_max: ANSWER_MAX, authorization: authorization.transpose()? })
    }

    /// Creates a client without a token. A request without an answer is abandoned after
    /// `answer_max`.
    ///
    /// # Errors
    /// If no runtime can be created.
    pub(crate) fn without_token(answer_max: Duration) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, answer_max, authorization: None })
    }

    /// Abandons unanswered requests only after `answer_max`.
    pub(crate) fn waiting(self, answer_max: Duration) -> Self {
        Self { answer_max, ..self }
    }

    /// # Errors
    /// [`ApiError`].
    pub(crate) fn get(&self, url: &Url, path: &str) -> Result<Value, ApiError> {
        self.call(url, Method::GET, path, Bytes::new())
    }

    /// # Errors
    /// [`ApiError`].
    pub(crate) fn post(&self, url: &Url, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.call(url, Method::POST, path, body.to_string().into())
    }

    /// # Errors
    /// [`ApiError`].
    pub(crate) fn delete(&self, url: &Url, path: &str) -> Result<Value, ApiError> {
        self.call(url, Method::DELETE, path, Bytes::new())
    }

    fn call(&self, url: &Url, method: Method, path: &str, body: Bytes) -> Result<Value, ApiError> {
        let is_read = method == Method::GET;
        let (status, body) = self.send(url, method, path, ("application/json", body))?;
        let json: Option<Value> = serde_json::from_slice(&body).ok();
        if status == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        if status.is_success() {
            let reason = "the server's answer is not JSON".to_owned();
            return json.ok_or_else(|| ApiError::Lost { url: url.clone(), reason, is_read });
        }
        let detail = json.and_then(|json| Some(json.get("detail")?.as_str()?.to_owned()));
        let (url, detail) = (url.clone(), detail.unwrap_or_default());
        Err(ApiError::Refused { url, status, detail, has_token: self.has_token() })
    }

    /// Returns whether requests carry a token.
    pub(crate) fn has_token(&self) -> bool {
        self.authorization.is_some()
    }

    /// Sends a request whose body has the given content type. Returns the server's answer, whatever
    /// its status.
    ///
    /// # Errors
    /// Returns an [`ApiError`] if no answer arrives. An answer that refuses the request is not an
    /// error here.
    pub(crate) fn send(
        &self,
        url: &Url,
        method: Method,
        path: &str,
        body: (&'static str, Bytes),
    ) -> Result<(StatusCode, Bytes), ApiError> {
        self.send_with(url, method, path, body, HeaderMap::new())
    }

    /// Like [`Self::send`], but with additional headers.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::send`].
    pub(crate) fn send_with(
        &self,
        url: &Url,
        method: Method,
        path: &str,
        (kind, body): (&'static str, Bytes),
        more: HeaderMap,
    ) -> Result<(StatusCode, Bytes), ApiError> {
        let is_read = method == Method::GET;
        let lost = |reason: String| ApiError::Lost { url: url.clone(), reason, is_read };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| lost("bad path".to_owned()))?;
        let headers = request.headers_mut();
        headers.insert(HOST, url.host());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        headers.extend(more);
        self.runtime.block_on(async {
            let connecting = timeout(CONNECT_MAX, connect(&url.0)).await;
            let stream = match connecting {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return Err(not_there(url, &error)),
                Err(_) => return Err(not_there(url, &"no connection within 5 seconds")),
            };
            let mut answering = std::pin::pin!(exchange(stream, request));
            let soon = WAIT_SILENT.min(self.answer_max);
            let answered = match timeout(soon, answering.as_mut()).await {
                Err(_) if soon < self.answer_max => {
                    let left = self.answer_max.saturating_sub(soon);
                    print_note(format_args!(
                        "{url} has not answered for {} s: waiting up to {} s more",
                        soon.as_secs(),
                        left.as_secs()
                    ));
                    timeout(left, answering).await
                }
                answered => answered,
            };
            let answered = answered.map_err(|_| lost("no answer came in time".to_owned()))?;
            answered.map_err(|error| lost(error.to_string()))
        })
    }
}

fn not_there(url: &Url, reason: &dyn fmt::Display) -> ApiError {
    ApiError::NotThere { url: url.clone(), reason: reason.to_string() }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

async fn connect(place: &Listen) -> std::io::Result<Box<dyn Stream>> {
    Ok(match place {
        Listen::Tcp { host, port } => Box::new(TcpStream::connect((host.as_str(), *port)).await?),
        Listen::Unix(path) => Box::new(UnixStream::connect(path).await?),
    })
}

async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
) -> hyper::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The error is dropped here because `send_request` below reports it, too.
    tokio::spawn(async move { drop(connection.await) });
    let response = sender.send_request(request).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

#[cfg(test)]
#[test]
fn servers_are_named_by_urls_addresses_or_sockets() {
    let read = |text: &str| text.parse::<Url>().map(|url| url.to_string());
    assert_eq!(read("http://127.0.0.1:8080/").as_deref(), Ok("http://127.0.0.1:8080"));
    assert_eq!(read("[::1]:8080").as_deref(), Ok("http://[::1]:8080"));
    assert_eq!(read("http://example.test").as_deref(), Ok("http://example.test:80"));
    assert_eq!(read("unix:/run/a.sock").as_deref(), Ok("unix:/run/a.sock"));
    for wrong in ["", "host", ":8080", "host:x", "http://h:1/path", "https://h:1", "unix:"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
