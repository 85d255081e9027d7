//! Sends requests to the managed server, and formats error messages for its refusals.
//!
//! Uses `/v1/`, and uses the published API only for operations that `/v1/` does not offer.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ringwell_admin::NO_SUCH_PATH;
use serde_json::Value;

use super::values::text;
use crate::api_client::{Access, ApiClient, ApiError, Url};
use crate::table::plain;

/// The maximum number of entries per page.
const PAGE: usize = 1000;

/// The number of retries if the server is overloaded. The program waits a second before each retry.
const PATIENCE: u32 = 30;

const JSON: &str = "application/json";
const CSV: &str = "text/csv";

/// The base path of the published API. The server accepts any date in the path.
const PUBLISHED: &str = "/api/2026-05-01";

/// The server to manage, and the format of the output.
#[derive(Debug, clap::Args)]
pub(crate) struct Management {
    /// The server's management address: http://HOST:PORT or unix:PATH
    #[arg(
        long,
        global = true,
        display_order = 100,
        value_name = "URL",
        default_value = "http://127.0.0.1:8081"
    )]
    url: Url,
    /// File that contains the management token; without it, the variable `RINGWELL_TOKEN` is used
    #[arg(long, global = true, display_order = 101, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true, display_order = 102)]
    pub(crate) json: bool,
}

/// The server's address, and the client that sends the token.
#[derive(Debug)]
pub(crate) struct Server {
    client: ApiClient,
    url: Url,
}

impl Server {
    pub(crate) fn new(management: &Management) -> anyhow::Result<Self> {
        let Management { url, token_file, .. } = management;
        let access = Access { url: url.clone(), token_file: token_file.clone() };
        Ok(Self { client: ApiClient::new(&access)?, url: access.url })
    }

    /// # Errors
    /// If the server cannot be reached, or refuses the request.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.change(&Method::GET, path, &Value::Null)
    }

    /// Like [`Self::get`], but returns `None` if the server answers that the object does not exist.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::get`].
    pub(crate) fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.send(&Method::GET, path, (JSON, &Bytes::new()))? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, body) => self.read(path, status, &body).map(Some),
        }
    }

    /// Fetches all entries of a paged list. `key` names a member of the entries. Its value in the
    /// last entry determines where the next page starts.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::get`].
    pub(crate) fn pages(&self, path: &str, key: &str) -> anyhow::Result<Vec<Value>> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.get(&format!("{path}?limit={PAGE}{after}"))?;
            let Value::Array(page) = page else { bail!("{} did not return a list", self.url) };
            let Some(last) = page.last() else { return Ok(all) };
            let last = text(last, key);
            after = format!("&after={}", utf8_percent_encode(&last, NON_ALPHANUMERIC));
            let is_last = page.len() < PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Sends a change with `body` as JSON, or without a body if `body` is null.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::get`].
    pub(crate) fn change(
        &self,
        method: &Method,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<Value> {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let (status, body) = self.send(method, path, (JSON, &body))?;
        self.read(path, status, &body)
    }

    /// Fetches the list of all pools.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::get`].
    pub(super) fn export(&self) -> anyhow::Result<Bytes> {
        let path = "/v1/pools.csv";
        let (status, body) = self.send(&Method::GET, path, (JSON, &Bytes::new()))?;
        if status == StatusCode::OK { Ok(body) } else { Err(self.refused(path, status, &body)) }
    }

    /// Sends a list of pools. Returns the server's report, whether or not the list was applied.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::get`]. A bad line is not an error.
    pub(super) fn import(&self, query: &str, list: Vec<u8>) -> anyhow::Result<Value> {
        let path = format!("/v1/pools.csv?{query}");
        let (status, body) = self.send(&Method::POST, &path, (CSV, &list.into()))?;
        let report: Option<Value> = serde_json::from_slice(&body).ok();
        match report.filter(|report| report["lines"].is_array()) {
            Some(report) => Ok(report),
            None => Err(self.refused(&path, status, &body)),
        }
    }

    /// Sends a request, and repeats it while the server is overloaded.
    fn send(
        &self,
        method: &Method,
        path: &str,
        (kind, body): (&'static str, &Bytes),
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut waited = 0;
        loop {
            let sent = self.client.send(&self.url, method.clone(), path, (kind, body.clone()));
            match sent {
                // The server did not process the request, so it can be sent again.
                Ok((StatusCode::TOO_MANY_REQUESTS, _)) if waited < PATIENCE => {
                    waited += 1;
                    thread::sleep(Duration::from_secs(1));
                }
                Err(ApiError::NotThere { url, reason }) => bail!(
                    "no server manages pools at {url}: {reason}. Set `database` under [directory] \
                     in the server's configuration, and set --url to its management.address if \
                     that is not 127.0.0.1:8081"
                ),
                other => return Ok(other?),
            }
        }
    }

    fn read(&self, path: &str, status: StatusCode, body: &Bytes) -> anyhow::Result<Value> {
        match status {
            StatusCode::NO_CONTENT => Ok(Value::Null),
            status if status.is_success() => serde_json::from_slice(body)
                .map_err(|_| anyhow!("{} answered with invalid JSON", self.url)),
            status => Err(self.refused(path, status, body)),
        }
    }

    fn refused(&self, path: &str, status: StatusCode, body: &Bytes) -> anyhow::Error {
        let url = &self.url;
        // Every server that manages pools serves all the `/v1/NAME` paths that this program
        // requests.
        let is_collection = path.starts_with("/v1/") && path.matches('/').count() == 2;
        // A 404 from an address for clients either has no detail, or says that the path does not
        // exist. A 404 from the management address names the missing object.
        let is_wrong_server = |detail: &Option<String>| {
            detail.as_ref().is_none_or(|detail| detail.starts_with(NO_SUCH_PATH))
        };
        match (status, detail(body)) {
            (StatusCode::UNAUTHORIZED, _) if self.client.has_token() => anyhow!(
                "{url} refuses this token: add the token's SHA-256 to management.token_sha256 of \
                 that server, or create a token with `ringwell pools tokens create`"
            ),
            (StatusCode::UNAUTHORIZED, _) => anyhow!(
                "{url} requires a management token: set --token-file to a file that contains one, \
                 or set RINGWELL_TOKEN"
            ),
            (StatusCode::NOT_FOUND, _) if is_of_purchases(path) => anyhow!(
                "{url} cannot buy numbers: set inventory.offers and inventory.purchases in the \
                 configuration of a server that manages pools"
            ),
            (StatusCode::NOT_FOUND, ref detail) if is_collection || is_wrong_server(detail) => {
                anyhow!(
                    "{url} does not manage pools: set --url to the management.address of a server \
                     whose configuration sets `database` under [directory]. `ringwell demo` does \
                     not manage pools either"
                )
            }
            (_, Some(detail)) => anyhow!("{}", plain(&detail)),
            (status, None) => anyhow!("{url} answered {status}"),
        }
    }
}

fn is_of_purchases(path: &str) -> bool {
    path.starts_with("/v1/purchases") || path.starts_with("/v1/offers")
}

/// Returns the error text of an answer from `/v1/` (problem details) or from the published API
/// (errors by field).
fn detail(body: &Bytes) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    if let Some(detail) = body["detail"].as_str() {
        return Some(detail.to_owned());
    }
    let errors = body["errors"].as_object()?;
    if let Some(data) = errors.get("invalid_data") {
        return data.as_str().map(str::to_owned);
    }
    let of_field = |(field, faults): (&String, &Value)| {
        let faults: Vec<_> = faults.as_array()?.iter().filter_map(Value::as_str).collect();
        Some(format!("{field} {}", faults.join(", ")))
    };
    Some(errors.iter().filter_map(of_field).collect::<Vec<_>>().join("; "))
}

/// Returns the path of a campaign's ring pools in the published API.
pub(super) fn collection(network: &str, advertiser: &str, campaign: &str) -> String {
    let [network, advertiser, campaign] = [network, advertiser, campaign].map(segment);
    format!(
        "{PUBLISHED}/{network}/advertisers/{advertiser}/advertiser_campaigns/{campaign}/ring_pools"
    )
}

/// Returns the path of a pool in the published API, from the pool's `/v1/` description.
pub(super) fn published(pool: &Value) -> String {
    let [network, advertiser, campaign, id] =
        ["network", "advertiser", "campaign", "id_from_network"].map(|name| text(pool, name));
    format!("{}/{}.json", collection(&network, &advertiser, &campaign), segment(&id))
}

fn segment(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
