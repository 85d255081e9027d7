//! Pages about calls: the list of calls, newest first; one call with its whole history; and the
//! endpoints that receive events.
//!
//! Decides which sessions see callers' numbers. Queries the call log on the thread that handles
//! calls.

use maud::{Markup, html};
use ringwell_calls::caller::masked;
use ringwell_calls::{
    CallDetail, CallFilter, CallRow, Caller, Cursor, EndpointRow, LogError, Outcome, Service,
};
use ringwell_core::{Millis, PromoNumber};
use serde_json::json;

use super::asked::{Asked, NoPage, View};
use super::forms;
use super::layout::Tiles;
use super::table::{Cell, Table};
use super::words::{count, duration, moment, several, share, stamp};

/// The number of calls per page.
const PAGE: u32 = 50;
/// The maximum number of calls listed for one promo number.
const OF_NUMBER: u32 = 20;

/// The outcome filters for calls, each with the outcome's name in the log and a label.
const OUTCOMES: [(&str, &str); 7] = [
    ("", "any"),
    ("answered", "answered"),
    ("no_answer", "no answer"),
    ("busy", "busy"),
    ("rejected", "rejected"),
    ("caller_gave_up", "caller gave up"),
    ("failed", "failed"),
];

pub(super) async fn list(asked: &Asked<'_>, service: &Service) -> Result<View, NoPage> {
    let wanted = asked.text("number");
    let number = match wanted {
        "" => None,
        text => Some(dialled(text)?),
    };
    let filter = CallFilter {
        number,
        pool: asked.text("pool").parse().ok(),
        outcome: Outcome::parse(asked.text("outcome")),
        ..CallFilter::default()
    };
    let after = Cursor::parse(asked.text("after"));
    let found =
        read(service, move |log| async move { log.calls(&filter, after.as_ref(), PAGE).await });
    let found = found.await?;
    let is_full = found.len() >= PAGE as usize;
    let next = found.last().filter(|_| is_full).map(Cursor::after);
    let mut table = table(asked, &found, "Calls, newest first");
    // New calls appear only on the first page.
    table.rows_change = asked.text("after").is_empty();
    let body = html! {
        h1 { "Calls" }
        (form(asked))
        (table.html())
        @if let Some(next) = &next { p {
            a href={ "calls?number=" (encoded(wanted)) "&pool=" (encoded(asked.text("pool"))) "&outcome="
                (encoded(asked.text("outcome"))) "&after=" (next) } { "The next " (PAGE) }
        } }
    };
    let data = json!({
        "calls": found.iter().map(|call| of_call(asked, call)).collect::<Vec<_>>(),
        "next_after": next.map(|next| next.to_string()),
    });
    let live = table.live().collect();
    Ok(View { title: "Calls".to_owned(), body, data, table, live })
}

/// The newest calls to one number.
pub(super) async fn of_number(
    asked: &Asked<'_>,
    service: &Service,
    number: PromoNumber,
) -> Result<Table, NoPage> {
    let filter = CallFilter { number: Some(e164(number)), ..CallFilter::default() };
    let found = read(service, move |log| async move { log.calls(&filter, None, OF_NUMBER).await });
    Ok(table(asked, &found.await?, "Calls to this number, newest first"))
}

pub(super) async fn one(asked: &Asked<'_>, service: &Service, id: &str) -> Result<View, NoPage> {
    let name = id.to_owned();
    let found = read(service, move |log| async move { log.call(&name).await }).await?;
    let CallDetail { call, timeline, outcomes, events, deliveries } =
        found.ok_or(NoPage::Missing("There is no such call."))?;
    let began = call.facts.started_at();
    let columns = [("at", "When"), ("after_ms", "After"), ("what", "What")];
    let mut table = Table::new("What happened", &columns);
    let mut lines: Vec<(Millis, String)> = Vec::new();
    if let Some(shown) = &call.attribution.allocation {
        lines.push((Millis(shown.allocated_ms), "the visitor was shown the number".to_owned()));
        let tapped =
            shown.tapped_ms.map(|tap| (Millis(tap), "the visitor tapped the number".to_owned()));
        lines.extend(tapped);
    }
    if let Some(kept) = service.keep_alives(&call).await {
        let extended = "the visitor's page extended the lockout";
        lines.extend(kept.at.iter().map(|at| (*at, extended.to_owned())));
    }
    for row in &timeline {
        let how = row.outcome.as_ref().map(|how| format!(": {}", how.replace('_', " ")));
        lines.push((row.at, format!("{}{}", row.kind.replace('_', " "), how.unwrap_or_default())));
    }
    for row in &outcomes {
        let value = row.value.as_ref().map(|value| format!(", {value}")).unwrap_or_default();
        let currency = row.currency.as_deref().unwrap_or_default();
        lines.push((row.at, format!("result: {}{value} {currency}", row.kind)));
    }
    lines.extend(events.iter().map(|event| (event.at, format!("event {} recorded", event.kind))));
    for sent in &deliveries {
        let status = sent.last_status.map(|status| format!(", answered {status}"));
        let error = sent.last_error.as_ref().map(|error| format!(", {error}"));
        let more = error.or(status).unwrap_or_default();
        let at = sent.last_at.unwrap_or(sent.next_at);
        let tries = several(sent.attempts.into(), "time");
        lines
            .push((at, format!("event to {}: {}, tried {tries}{more}", sent.endpoint, sent.state)));
    }
    lines.sort_by_key(|(at, _)| *at);
    for (at, what) in lines {
        let after = if at >= began {
            duration(at.since(began))
        } else {
            format!("{} before", duration(began.since(at)))
        };
        table.rows.push(vec![
            Cell::time(at),
            Cell::figure(after, at.0.cast_signed() - began.0.cast_signed()),
            Cell::text(what),
        ]);
    }
    table.rows_change = true;
    let tiles = facts(asked, &call);
    let body = html! {
        h1 { "Call " (call.id) }
        (attribution(asked, &call))
        (tiles.html())
        (table.html())
    };
    let data = of_call(asked, &call);
    let live = table.live().collect();
    Ok(View { title: format!("Call {}", call.id), body, data, table, live })
}

pub(super) async fn webhooks(asked: &Asked<'_>, service: &Service) -> Result<View, NoPage> {
    let found = read(service, |log| async move { log.endpoints().await }).await?;
    let columns = [
        ("endpoint", "Endpoint"),
        ("url", "Address"),
        ("state", "State"),
        ("waiting", "Waiting"),
        ("given_up", "Given up"),
        ("held", "Held back"),
        ("failing_since", "Failing since"),
        ("change", "Change"),
    ];
    let mut table = Table::new("Where events are sent", &columns);
    for row in &found {
        let EndpointRow { id, url, is_enabled, reason, failing_since, .. } = row;
        let EndpointRow { pending, failed, held, .. } = row;
        let state = match (is_enabled, failing_since) {
            (false, _) => format!("✖ off: {}", reason.as_deref().unwrap_or("switched off")),
            (true, Some(_)) => {
                let reason = reason.as_deref().unwrap_or("check that the endpoint is running");
                format!("▲ does not accept events: {reason}")
            }
            (true, None) => "✔ accepts events".to_owned(),
        };
        table.rows.push(vec![
            Cell::text(id.as_str()),
            Cell::text(url.as_str()),
            Cell::text(state),
            Cell::figure(count(*pending), pending),
            Cell::figure(count(*failed), failed),
            Cell::figure(count(*held), held),
            failing_since.map_or_else(|| Cell::text("–"), |at| Cell::of(moment(at), stamp(at))),
            Cell::of(
                html! {
                    @if !is_enabled {
                        (forms::form(asked, &format!("webhooks/{id}/enable"), "Switch it on", &html! {}))
                    }
                    @if *failed > 0 || !is_enabled {
                        @let label = if *is_enabled { "Send again" } else { "Send again, leave it off" };
                        (forms::form(asked, &format!("webhooks/{id}/replay"), label, &html! {}))
                    }
                },
                "",
            ),
        ]);
    }
    let failing = found.iter().filter(|it| it.failing_since.is_some() || !it.is_enabled).count();
    let table = table.or(html! {
        "No endpoints yet. " code { "POST /v1/webhooks" } " creates one."
    });
    let title = match failing {
        0 => "Webhooks".to_owned(),
        some => format!("{} of {} failing", several(some as u64, "endpoint"), found.len()),
    };
    let body = html! { h1 { (title) } (table.html()) (forms::of_webhooks(asked).await) };
    let data = json!({ "endpoints": found.iter().map(|it| json!({
        "id": it.id, "url": it.url, "enabled": it.is_enabled, "reason": it.reason,
        "failing_since_ms": it.failing_since.map(|at| at.0),
        "waiting": it.pending, "given_up": it.failed, "held": it.held,
    })).collect::<Vec<_>>() });
    Ok(View { title, body, data, table, live: Vec::new() })
}

/// Queries the call log on the thread that handles calls.
async fn read<T, F>(
    service: &Service,
    query: impl FnOnce(ringwell_calls::Log) -> F + Send + 'static,
) -> Result<T, NoPage>
where
    T: Send + 'static,
    F: Future<Output = Result<T, LogError>> + Send + 'static,
{
    let log = service.log().clone();
    let unavailable = |text: String| NoPage::Unavailable(text);
    let read = service.run(query(log)).await.map_err(|error| unavailable(error.to_string()))?;
    read.map_err(|error| {
        tracing::warn!(%error, "the call log cannot be read");
        unavailable("The call log cannot be read: see the server's log.".to_owned())
    })
}

/// Converts a number entered by a user to the format of the call log.
fn dialled(text: &str) -> Result<String, NoPage> {
    let number = crate::v1::attribution::parse_number(text);
    number.map(e164).map_err(|problem| NoPage::Wrong(problem.to_string()))
}

fn e164(number: PromoNumber) -> String {
    let text = number.to_string();
    if text.starts_with('+') { text } else { format!("+1{text}") }
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn form(asked: &Asked<'_>) -> Markup {
    html! { form.find role="search" method="get" action="calls" {
        label { "Number called" input name="number" value=(asked.text("number")) maxlength="40"; }
        label { "Ring pool" input name="pool" value=(asked.text("pool")) maxlength="20"; }
        label { "Result" select name="outcome" {
            @for (name, text) in OUTCOMES {
                option value=(name) selected[name == asked.text("outcome")] { (text) }
            }
        } }
        button { "Show" }
    } }
}

fn table(asked: &Asked<'_>, calls: &[CallRow], caption: &str) -> Table {
    let columns = [
        ("call", "Call"),
        ("started_at", "Began"),
        ("from", "From"),
        ("to", "To"),
        ("outcome", "Result"),
        ("talk_seconds", "Talked"),
        ("ring_pool", "Ring pool"),
        ("attribution", "Visitor"),
        ("confidence", "Sure"),
    ];
    let mut table = Table::new(caption, &columns);
    table.rows = calls.iter().map(|call| row(asked, call)).collect();
    table.or(html! { "No calls found. To connect a provider, see docs/calls.md." })
}

fn row(asked: &Asked<'_>, call: &CallRow) -> Vec<Cell> {
    let began = call.facts.started_at();
    let talked = call.facts.talk_seconds();
    let up = asked.up;
    let number = call.number.as_deref().unwrap_or("–");
    let pool = call.attribution.pool.as_ref().map(|pool| pool.id);
    let sure = call.attribution.confidence.as_ref().map(|it| it.value);
    vec![
        Cell::link(format!("{up}calls/{}", call.id), call.id.as_str()),
        Cell::time(began),
        Cell::text(caller(asked, call)),
        Cell::link(format!("{up}number?number={}", encoded(number)), number),
        Cell::text(state(call)),
        Cell::figure(
            talked.map_or("–".to_owned(), |s| duration(Millis(u64::from(s) * 1000))),
            talked.map_or(String::new(), |s| s.to_string()),
        ),
        pool.map_or_else(
            || Cell::text(""),
            |id| Cell::link(format!("{up}pools/{id}"), id.to_string()),
        ),
        Cell::text(why(call)),
        Cell::figure(
            sure.map_or("–".to_owned(), share),
            sure.map_or(String::new(), |value| value.to_string()),
        ),
    ]
}

fn state(call: &CallRow) -> String {
    let outcome = call.facts.outcome().map(|outcome| outcome.name().replace('_', " "));
    outcome.unwrap_or_else(|| call.facts.state().name().replace('_', " "))
}

/// The result of the attribution, including the reason if the visitor is unknown.
fn why(call: &CallRow) -> String {
    use ringwell_calls::Attributed;
    let attribution = &call.attribution;
    match attribution.outcome {
        Attributed::Allocated => "known".to_owned(),
        Attributed::Pending => "is pending".to_owned(),
        Attributed::Overflow => {
            "unknown: the number is an overflow number, which many visitors see (outcome overflow)"
                .to_owned()
        }
        Attributed::None => {
            "unknown: no visitor was shown the number before the call (outcome none)".to_owned()
        }
        Attributed::Unknown => {
            let problem = attribution.problem.as_deref();
            let problem = problem.unwrap_or("the reason was not recorded");
            format!("unknown: {problem} (outcome unknown)")
        }
    }
}

fn attribution(asked: &Asked<'_>, call: &CallRow) -> Markup {
    let it = &call.attribution;
    let Some(shown) = &it.allocation else {
        return html! { p.banner.amber { b { "▲ The visitor is " (why(call)) "." } } };
    };
    html! {
        p.banner.green {
            b { "✔ The visitor is known" }
            @if let Some(sure) = &it.confidence { ", " (share(sure.value)) " sure: " (sure.reason) }
            "."
        }
        h2 { "The visitor" }
        ul { @for (name, value) in &shown.parameters { li { bdi { (name) } ": " bdi { (value) } } }
            @if shown.parameters.is_empty() {
                li { "No parameters were recorded for this visitor." }
            } }
        @if let Some(pool) = &it.pool {
            p { "From " a href={ (asked.up) "pools/" (pool.id) } { "ring pool " (pool.id) } "." }
        }
        @if !it.earlier.is_empty() {
            p { "Earlier, the number was shown to "
                (several(it.earlier.len() as u64, "other visitor"))
                " (probability of being the caller: at most "
                (share(it.earlier.iter().map(|one| one.probability).fold(0.0, f64::max))) ")." }
        }
    }
}

fn facts(asked: &Asked<'_>, call: &CallRow) -> Tiles {
    let mut tiles = Tiles::default();
    tiles.add("From", caller(asked, call));
    tiles.add("To", call.number.as_deref().unwrap_or("–"));
    tiles.add("Result", state(call));
    tiles.add("Connected to", call.destination.as_deref().unwrap_or("–"));
    tiles.add("Began", stamp(call.facts.started_at()));
    if let Some(talked) = call.facts.talk_seconds() {
        tiles.add("Talked", duration(Millis(u64::from(talked) * 1000)));
    }
    tiles.add("Provider", format!("{} ({})", call.provider, call.account));
    tiles
}

/// The caller's number, masked if the session may not see it in full.
fn caller(asked: &Asked<'_>, call: &CallRow) -> String {
    match &call.caller {
        Caller::Withheld if call.redacted_at.is_some() => "erased".to_owned(),
        Caller::Withheld => "withheld".to_owned(),
        Caller::Hash(_) => "not kept".to_owned(),
        Caller::E164(number) | Caller::Sip(number) if asked.sees_callers() => number.clone(),
        Caller::E164(number) => masked(number),
        Caller::Sip(_) => "a SIP address".to_owned(),
    }
}

fn of_call(asked: &Asked<'_>, call: &CallRow) -> serde_json::Value {
    let mut value = call.to_json();
    if let Some(members) = value.as_object_mut() {
        members.insert("from".to_owned(), caller(asked, call).into());
    }
    value
}
