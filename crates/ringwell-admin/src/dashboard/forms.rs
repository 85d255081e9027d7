//! The forms that request changes, and the history of changes beside them.

use maud::{Markup, html};
use ringwell_core::{NumberRange, PoolId, PromoNumber};
use ringwell_store::{AuditLine, Role, Store};

use super::asked::Asked;
use super::table::{Cell, Table};
use super::words::{moment, several, stamp};

/// The number of audit log lines to search for changes to the pool, number, site or endpoint that a
/// page shows. At most [`AUDIT_SHOWN`] of the matching lines are shown.
const AUDIT_MAX: u32 = 500;
const AUDIT_SHOWN: usize = 20;

/// A form with one button that requests a change. Empty if the session does not permit changes.
pub(super) fn form(asked: &Asked<'_>, action: &str, button: &str, more: &Markup) -> Markup {
    html! { @if asked.may_change() {
        form.find method="post" action=(action) {
            input type="hidden" name="form" value=(asked.session.form_token);
            (more)
            button { (button) }
        }
    } }
}

/// The forms for changing a pool, and the history of changes to the pool.
pub(super) async fn of_pool(asked: &Asked<'_>, id: PoolId, numbers: Option<u64>) -> Markup {
    let Some(store) = asked.store() else { return html! {} };
    let resize = html! {
        label { "Numbers to hand out"
            input name="numbers" value=[numbers] inputmode="numeric" size="8" maxlength="7" required;
        }
    };
    let object = format!("ring_pool {id}");
    let changes = changes(asked, store, |line| line.object == object).await;
    html! {
        @if asked.may_change() {
            h2 { "Change it" }
            (form(asked, &format!("{id}/size"), "Resize", &resize))
            (form(asked, &format!("{id}/key"), "Add a second key", &html! {}))
        }
        (changes)
    }
}

/// The forms for changing a number's state, and the history of changes to its pool and state.
pub(super) async fn of_number(asked: &Asked<'_>, number: PromoNumber) -> Markup {
    let Some(store) = asked.store() else { return html! {} };
    let found = store.number(number).await.ok().flatten();
    let state = found.map(|found| found.state.as_str());
    let hidden = html! { input type="hidden" name="number" value=(number); };
    let is_of = |line: &AuditLine| {
        let ranges = line.after.as_ref().and_then(|after| after["ranges"].as_array());
        let mut ranges = ranges.into_iter().flatten().filter_map(|range| range.as_str());
        ranges.any(|text| {
            let range = NumberRange::parse(text).ok().flatten();
            range.is_some_and(|range| (range.first()..=range.last()).contains(&number))
        })
    };
    let changes = changes(asked, store, is_of).await;
    html! {
        @match state {
            Some("quarantined") => {
                p { "The number is in quarantine: no visitor gets it." }
                (form(asked, "number/release", "End the quarantine", &hidden))
            },
            Some("available") => (form(asked, "number/quarantine", "Quarantine this number", &hidden)),
            _ => {},
        }
        (changes)
    }
}

/// The newest changes to a site, with their authors.
pub(super) async fn of_site(asked: &Asked<'_>, key: &str) -> Markup {
    let Some(store) = asked.store() else { return html! {} };
    let object = format!("site {key}");
    changes(asked, store, |line| line.object == object).await
}

/// The newest changes to endpoints, with their authors.
pub(super) async fn of_webhooks(asked: &Asked<'_>) -> Markup {
    let Some(store) = asked.store() else { return html! {} };
    changes(asked, store, |line| line.object.starts_with("webhook_endpoint ")).await
}

/// The newest changes for which `is_of` returns true. Empty if the session may not read the audit
/// log.
async fn changes(asked: &Asked<'_>, store: &Store, is_of: impl Fn(&AuditLine) -> bool) -> Markup {
    if asked.session.role < Role::Admin {
        return html! {};
    }
    let Ok(lines) = store.audit_log(None, AUDIT_MAX).await else {
        return html! { p { "The audit log cannot be read." } };
    };
    let columns = [("at", "When"), ("who", "Who"), ("action", "What")];
    let mut table = Table::new("Who changed it", &columns);
    for line in lines.iter().filter(|line| is_of(line)).take(AUDIT_SHOWN) {
        table.rows.push(vec![
            Cell::of(moment(line.at), stamp(line.at)),
            Cell::text(line.who.as_str()),
            Cell::text(line.action.as_str()),
        ]);
    }
    let lines = several(AUDIT_MAX.into(), "change");
    table.or(html! { "None among the last " (lines) " in the audit log." }).html()
}
