//! Ring pools as CSV, with one line for each range of a pool's numbers.
//!
//! The columns are those of the list that `ringwell demo` creates, followed by optional ones. If a
//! line's pool does not exist, the line creates it. Otherwise, the line changes the pool's settings
//! and adds numbers to the pool.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use csv::DeserializeErrorKind;
use ringwell_config::{Inventory, Lines, guarded, unguarded};
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{KeyError, PoolFault, RingPool, RingPoolKey, Tracking};
use ringwell_store::{Change, NumberState, Pace, PoolSettings, Refusal, Role, Scope, StoreError};
use serde::{Deserialize, Serialize};

use super::shared::{Done, PAGE_MAX, Trial, enter, finish, query};
use crate::access::Visitor;
use crate::context::Context;
use crate::gate::LIST_BYTES_MAX;
use crate::numbering;
use crate::problem::Problem;
use crate::published::new_key;

/// The options for applying a list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Options {
    /// Whether to report the result without applying it.
    #[serde(default)]
    dry_run: bool,
    /// The lines to apply if any line is bad: `none` (default) or `good`.
    #[serde(default)]
    apply: Apply,
    /// Whether to refuse lines about existing pools instead of changing those pools. Several lines
    /// may still describe the same new pool.
    #[serde(default)]
    create_only: bool,
}

/// The lines to apply if any line is bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Apply {
    /// Apply no line.
    #[default]
    None,
    /// Apply the good lines.
    Good,
}

/// One line of the list. The export writes the same columns.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    id: u64,
    /// The pool's key. If empty, a new pool gets a random key, and an existing pool keeps its key.
    #[serde(default)]
    ring_pool_key: String,
    #[serde(default)]
    overflow_number: String,
    lifetime_seconds: f64,
    first_number: String,
    numbers: u32,
    #[serde(default)]
    name: String,
    #[serde(default)]
    network: String,
    #[serde(default)]
    advertiser: String,
    #[serde(default)]
    campaign: String,
    /// The key that will replace the pool's key. Empty unless the pool has two keys.
    #[serde(default)]
    next_ring_pool_key: String,
    #[serde(default)]
    tracking_url: String,
    #[serde(default)]
    destination_url: String,
}

/// The result of applying a list.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Report {
    /// Whether any line was applied.
    applied: bool,
    /// The count of good lines.
    good: u64,
    bad: u64,
    /// One entry for each line that is not empty.
    lines: Vec<LineReport>,
    #[serde(flatten)]
    done: Done,
}

/// The result of one line.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct LineReport {
    /// The line's number. The heading is line 1.
    line: u64,
    /// `created`, `updated`, `unchanged` or `bad`.
    result: &'static str,
    /// The error, if the line is bad.
    detail: Option<String>,
}

/// Lists the ring pools that have numbers in rotation, with their keys and these numbers.
#[utoipa::path(get, path = "/v1/pools.csv", responses((status = 200, content_type = "text/csv")))]
pub(crate) async fn export(
    State(context): State<Context>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // The list contains keys, so reading it requires the role `write`.
    let visitor = enter(&context, &headers, Role::Write).await?;
    let mut out = csv::Writer::from_writer(Vec::new());
    let mut after = None;
    loop {
        let pools = context.store.pools(visitor.network(), after, PAGE_MAX).await?;
        let Some(last) = pools.last() else { break };
        after = Some(last.id);
        for pool in &pools {
            let numbers = context.store.numbers_of(pool.id).await?;
            let rotation = numbers.iter().filter(|it| it.state == NumberState::Available);
            for run in rotation {
                out.serialize(line_of(pool, run.range)).map_err(unwritten)?;
            }
        }
    }
    let text = out.into_inner().map_err(|error| unwritten(error.into_error().into()))?;
    Ok(([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], text).into_response())
}

/// Applies a list of ring pools.
#[utoipa::path(post, path = "/v1/pools.csv", params(Options),
    request_body(content = String, content_type = "text/csv"),
    responses((status = 200, body = Report), (status = 422, body = Report)))]
pub(crate) async fn import(
    State(context): State<Context>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let visitor = enter(&context, &headers, Role::Write).await?;
    let bytes = axum::body::to_bytes(body, LIST_BYTES_MAX).await.map_err(|error| {
        let most = LIST_BYTES_MAX >> 20;
        let detail = format!(
            "the list cannot be read ({error}): it may have at most {most} MiB. Import it in parts"
        );
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    })?;
    let Options { dry_run, apply, create_only } = query(&uri)?;
    let (mut lines, mut numbers) = (Vec::new(), Lines::of(&bytes));
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(&*bytes);
    let heading = reader.headers().cloned().map_err(|error| unreadable(&error))?;
    if !heading.iter().any(|column| column == "id") {
        let detail = "the list's first line must name its columns, including `id`";
        return Err(Problem::bad_request(detail));
    }
    let mut list = List {
        visitor: &visitor,
        inventory: context.store.inventory(),
        new: create_only.then(BTreeSet::new),
        overflows: BTreeMap::new(),
    };
    let mut change = context.change(&visitor).await?;
    let mut pace = Pace::begin();
    let mut record = csv::StringRecord::new();
    loop {
        let read = reader.read_record(&mut record);
        let line = numbers.at(record.position());
        let result = match read {
            Ok(false) => break,
            Err(error) => Err(fault(&error, &heading)),
            Ok(true) => match record.deserialize(Some(&heading)) {
                Err(error) => Err(fault(&error, &heading)),
                Ok(parsed) => list.take(&mut change, Line::unguarded(parsed)).await?,
            },
        };
        let (result, detail) = match result {
            Ok(result) => (result, None),
            Err(detail) => ("bad", Some(detail)),
        };
        lines.push(LineReport { line, result, detail });
        pace.step().await;
    }
    let bad = lines.iter().filter(|line| line.result == "bad").count() as u64;
    let good = lines.len() as u64 - bad;
    let applied = !dry_run && good > 0 && (bad == 0 || apply == Apply::Good);
    let mut done = finish(&context, change, &Trial { dry_run: !applied }).await?;
    if !applied && !dry_run {
        // Nothing was changed, so the directory still has the previous version.
        done.version -= 1;
    }
    let refused = bad > 0 && apply == Apply::None;
    let status = if refused { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let report = Report { applied, good, bad, lines, done: Done { dry_run, ..done } };
    Ok((status, Json(report)).into_response())
}

/// The state while a list's lines are applied.
struct List<'a> {
    visitor: &'a Visitor,
    inventory: &'a Inventory,
    /// The pools that this list created. `None` if the list may change other pools as well.
    new: Option<BTreeSet<PoolId>>,
    /// The overflow numbers in the good lines so far.
    overflows: BTreeMap<PoolId, PromoNumber>,
}

impl List<'_> {
    /// Applies one line. If the line is refused, undoes its changes and returns the error.
    async fn take(
        &mut self,
        change: &mut Change,
        line: Line,
    ) -> Result<Result<&'static str, String>, Problem> {
        let id = PoolId(line.id);
        let overflow = PromoNumber::parse(&line.overflow_number).ok();
        change.save_point().await?;
        let result = match self.apply_line(change, line).await {
            // The pool is checked after each line, while the changes of that line can still be
            // undone separately.
            Ok(result) => change.check().await.map(|()| result).map_err(Trouble::Store),
            Err(trouble) => Err(trouble),
        };
        let detail = match result {
            Ok(result) => {
                change.release_save_point().await?;
                if let Some(new) = &mut self.new {
                    new.insert(id);
                }
                self.overflows.extend(overflow.map(|number| (id, number)));
                return Ok(Ok(result));
            }
            Err(Trouble::Line(detail)) => detail,
            Err(Trouble::Store(StoreError::Refused(refusal))) => refusal.to_string(),
            Err(Trouble::Store(error)) => return Err(error.into()),
        };
        change.back_to_save_point().await?;
        Ok(Err(detail))
    }
}

/// The reason why a line is refused.
enum Trouble {
    Line(String),
    Store(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The validated fields of a line.
struct Parsed {
    lifetime: Millis,
    range: NumberRange,
    overflow: Option<PromoNumber>,
    key: Option<RingPoolKey>,
    next_key: Option<RingPoolKey>,
}

fn wrong(field: &str, what: &str) -> Trouble {
    Trouble::Line(format!("{field}: {what}"))
}

impl Line {
    /// Removes the apostrophes that [`guarded`] adds to fields.
    fn unguarded(self) -> Self {
        let plain = |cell: String| unguarded(&cell).to_owned();
        Self {
            ring_pool_key: plain(self.ring_pool_key),
            next_ring_pool_key: plain(self.next_ring_pool_key),
            name: plain(self.name),
            network: plain(self.network),
            advertiser: plain(self.advertiser),
            campaign: plain(self.campaign),
            tracking_url: plain(self.tracking_url),
            destination_url: plain(self.destination_url),
            ..self
        }
    }

    /// Refuses a network, advertiser or campaign that differs from the existing pool's.
    fn keeps(&self, scope: &Scope) -> Result<(), Trouble> {
        let columns = [
            ("network", &self.network, &scope.network),
            ("advertiser", &self.advertiser, &scope.advertiser),
            ("campaign", &self.campaign, &scope.campaign),
        ];
        match columns.iter().find(|(_, given, own)| !given.is_empty() && given != own) {
            Some((column, _, own)) => {
                let what = format!("the ring pool is in {column} {own:?}, which cannot be changed");
                Err(wrong(column, &what))
            }
            None => Ok(()),
        }
    }

    fn parse(&self) -> Result<Parsed, Trouble> {
        let number = |field: &str, text: &str| {
            PromoNumber::parse(text).map_err(|error| wrong(field, &error.to_string()))
        };
        let lifetime = std::time::Duration::try_from_secs_f64(self.lifetime_seconds)
            .ok()
            .and_then(|lifetime| u64::try_from(lifetime.as_millis()).ok())
            .map(Millis)
            .filter(|lifetime| *lifetime > Millis::ZERO && *lifetime <= RingPool::LIFETIME_MAX);
        let lifetime =
            lifetime.ok_or_else(|| wrong("lifetime_seconds", &PoolFault::Lifetime.to_string()))?;
        let first = number("first_number", &self.first_number)?;
        let range = NumberRange::new(first, self.numbers);
        let range = range.ok_or_else(|| {
            wrong(
                "numbers",
                "must be at least 1, and the last number must have as many digits as \
                the first",
            )
        })?;
        let overflow = match self.overflow_number.as_str() {
            "" => None,
            text => Some(number("overflow_number", text)?),
        };
        let key = |column: &str, text: &str| {
            let fault = |error: KeyError| match error.hint() {
                Some(hint) => wrong(column, &format!("{error}; {hint}")),
                None => wrong(column, &error.to_string()),
            };
            let given = (!text.is_empty()).then(|| RingPoolKey::parse_chosen(text));
            given.transpose().map_err(fault)
        };
        let next_key = key("next_ring_pool_key", &self.next_ring_pool_key)?;
        let key = key("ring_pool_key", &self.ring_pool_key)?;
        if let Some(overflow) = overflow.filter(|number| range.contains(*number)) {
            return Err(StoreError::from(PoolFault::OverflowInRotation(overflow)).into());
        }
        let urls = [
            (&self.tracking_url, PoolFault::BaseUrl),
            (&self.destination_url, PoolFault::DestinationUrl),
        ];
        match urls.into_iter().find(|(url, _)| !url.is_empty() && !Tracking::is_url(url)) {
            Some((_, fault)) => Err(StoreError::from(fault).into()),
            None => Ok(Parsed { lifetime, range, overflow, key, next_key }),
        }
    }
}

impl List<'_> {
    async fn apply_line(&self, change: &mut Change, line: Line) -> Result<&'static str, Trouble> {
        let Parsed { lifetime, range, overflow, key, next_key } = line.parse()?;
        check_new(change, self.inventory, range, overflow).await?;
        let id = PoolId(line.id);
        let before = change.find_pool(id).await?;
        let scope =
            before.as_ref().map_or_else(|| scope(&line), |pool| pool.settings.scope.clone());
        if !self.visitor.may_in(&scope.network) {
            return Err(match before {
                Some(_) => StoreError::from(Refusal::PoolIdUnusable(id)).into(),
                None => wrong("network", "is not the network of the token"),
            });
        }
        if before.is_some() && self.new.as_ref().is_some_and(|new| !new.contains(&id)) {
            return Err(StoreError::from(Refusal::PoolExists(id)).into());
        }
        if before.is_some() {
            line.keeps(&scope)?;
        }
        let earlier = self.overflows.get(&id);
        if overflow.is_some() && earlier.is_some() && overflow.as_ref() != earlier {
            return Err(wrong("overflow_number", "differs from an earlier line of this pool"));
        }
        if let Some(overflow) = overflow
            && change.rotates(id, overflow).await?
        {
            // The number is in the pool's rotation already, or an earlier line of this pool has
            // added it.
            return Err(StoreError::from(PoolFault::OverflowInRotation(overflow)).into());
        }
        let (is_new, modifications) = (before.is_none(), change.modifications());
        let present = before.as_ref().and_then(|pool| pool.overflow);
        if let Some(before) = before {
            let mut settings = before.settings.clone();
            settings.lifetime = lifetime;
            let given = [
                (line.name, &mut settings.name),
                (line.tracking_url, &mut settings.tracking_url),
                (line.destination_url, &mut settings.destination_url),
            ];
            for (cell, setting) in given.into_iter().filter(|(cell, _)| !cell.is_empty()) {
                *setting = cell;
            }
            change.update_pool(id, settings).await?;
            if let Some(key) = key.filter(|key| *key != before.key) {
                if next_key.is_some() {
                    return Err(wrong("ring_pool_key", "differs from the pool's first key"));
                }
                change.rotate_key(id, key).await?;
            }
        } else {
            let settings = new_pool(line, scope, lifetime, overflow.is_some());
            let key = key.map_or_else(new_key, Ok)?;
            change.create_pool(settings, Some(id), key).await?;
        }
        if let Some(key) = next_key {
            change.rotate_key(id, key).await?;
        }
        change.add_numbers(id, &[range]).await?;
        if overflow.is_some() && overflow != present {
            change.set_overflow(id, overflow).await?;
        }
        if is_new {
            return Ok("created");
        }
        change.raise_size(id).await?;
        Ok(if change.modifications() == modifications { "unchanged" } else { "updated" })
    }
}

/// The settings of a new pool that a line creates. The pool's maximum size is the count of numbers
/// in the line, plus one if the line has an overflow number.
fn new_pool(line: Line, scope: Scope, lifetime: Millis, allow_overflow: bool) -> PoolSettings {
    let name = if line.name.is_empty() { format!("Ring pool {}", line.id) } else { line.name };
    PoolSettings {
        scope,
        id_from_network: line.id.to_string(),
        name,
        lifetime,
        max_pool_size: line.numbers.saturating_add(u32::from(allow_overflow)),
        preferred: false,
        fill_immediately: true,
        allow_overflow,
        destination: None,
        tracking_url: line.tracking_url,
        destination_url: line.destination_url,
        kept: serde_json::Map::new(),
    }
}

/// Refuses new numbers that are not valid.
async fn check_new(
    change: &mut Change,
    inventory: &Inventory,
    range: NumberRange,
    overflow: Option<PromoNumber>,
) -> Result<(), Trouble> {
    let overflow = overflow.and_then(|number| NumberRange::new(number, 1));
    for (field, range) in [("first_number", Some(range)), ("overflow_number", overflow)] {
        let ranges: Vec<_> = range.into_iter().collect();
        if let Some(what) = numbering::refused(change, inventory, &ranges).await? {
            return Err(Trouble::Line(format!("{field}: {what}")));
        }
    }
    Ok(())
}

fn scope(line: &Line) -> Scope {
    let own = Scope::of_file();
    let given = |text: &str, own: String| if text.is_empty() { own } else { text.to_owned() };
    Scope {
        network: given(&line.network, own.network),
        advertiser: given(&line.advertiser, own.advertiser),
        campaign: given(&line.campaign, own.campaign),
    }
}

fn line_of(pool: &ringwell_store::Pool, range: NumberRange) -> Line {
    let settings = &pool.settings;
    let scope = settings.scope.clone();
    Line {
        id: pool.id.0,
        ring_pool_key: guarded(pool.key.reveal().to_owned()),
        overflow_number: pool.overflow.map_or_else(String::new, |number| number.to_string()),
        lifetime_seconds: std::time::Duration::from_millis(settings.lifetime.0).as_secs_f64(),
        first_number: range.first().to_string(),
        numbers: range.count(),
        name: guarded(settings.name.clone()),
        network: guarded(scope.network),
        advertiser: guarded(scope.advertiser),
        campaign: guarded(scope.campaign),
        next_ring_pool_key: pool
            .next_key
            .map_or_else(String::new, |key| guarded(key.reveal().to_owned())),
        tracking_url: guarded(settings.tracking_url.clone()),
        destination_url: guarded(settings.destination_url.clone()),
    }
}

fn unreadable(error: &csv::Error) -> Problem {
    let fault = fault(error, &csv::StringRecord::new());
    Problem::bad_request(format!("the list cannot be read: its first line {fault}"))
}

/// Describes a line's error, with the name of the column.
fn fault(error: &csv::Error, heading: &csv::StringRecord) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("has {len} fields, but the heading has {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "is not UTF-8".to_owned(),
        csv::ErrorKind::Deserialize { err, .. } => {
            let column = err.field().and_then(|at| heading.get(usize::try_from(at).ok()?));
            let (column, fault) = match err.kind() {
                DeserializeErrorKind::ParseInt(_) => (column, "must be a whole number"),
                DeserializeErrorKind::ParseFloat(_) => (column, "must be a number"),
                DeserializeErrorKind::Message(text) => {
                    let missing = text.strip_prefix("missing field `");
                    match missing.and_then(|rest| rest.strip_suffix('`')) {
                        Some(name) => (Some(name), "is missing"),
                        None => (column, "cannot be read"),
                    }
                }
                _ => (column, "cannot be read"),
            };
            format!("{}: {fault}", column.unwrap_or("a column"))
        }
        _ => "is not CSV".to_owned(),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unwritten(error: csv::Error) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}
