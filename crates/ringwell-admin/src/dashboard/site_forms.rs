//! Forms that create, change and remove web sites.
//!
//! A form that changes or removes a site contains a checksum of the settings that the page shows. A
//! form with an outdated checksum is refused, so that two open pages do not overwrite each other's
//! changes.

use maud::{Markup, html};
use ringwell_config::{Site, SiteText, SwapText};
use ringwell_core::PoolId;
use ringwell_directory::RingPool;
use sha2::{Digest, Sha256};

use super::asked::{Asked, NoPage};
use super::session::Session;
use super::{change, forms};
use crate::context::Context;

/// A site's consent options, each with the setting's value and the form's label.
const CONSENTS: [(&str, &str); 3] = [
    ("off", "not needed"),
    ("required", "required first"),
    ("cookieless", "not requested: cookieless"),
];

/// The change that a form about sites requests.
pub(super) enum Wanted<'a> {
    /// Create a site. If the configuration contains a site with the same key, the new site keeps
    /// that site's edge key (a secret for servers that swap numbers) unless the form changes it.
    New(Option<&'a Site>),
    Save(&'a str),
    Remove(&'a str),
}

/// Returns the form field that has a given name.
pub(super) type Fields<'a> = &'a (dyn Fn(&str) -> &'a str + Sync);

/// Applies the change and returns the site's key.
pub(super) async fn change(
    context: &Context,
    session: &Session,
    wanted: &Wanted<'_>,
    field: Fields<'_>,
) -> Result<String, NoPage> {
    let mut change = change::begin(context, session).await?;
    let key = match wanted {
        Wanted::New(_) => field("key"),
        Wanted::Save(key) | Wanted::Remove(key) => key,
    };
    let before = change.site(key).await?;
    match (wanted, &before) {
        (Wanted::New(_), Some(_)) => {
            return Err(NoPage::Wrong(format!("The site {key} already exists.")));
        }
        (Wanted::Save(_) | Wanted::Remove(_), None) => {
            return Err(NoPage::Missing("There is no such site in the database."));
        }
        (Wanted::Save(_) | Wanted::Remove(_), Some(before))
            if checksum(before) != field("seen") =>
        {
            return Err(NoPage::Wrong(
                "The site was changed after this page was loaded, so your changes were not saved. \
                Reload the page and try again."
                    .to_owned(),
            ));
        }
        _ => {}
    }
    if let Wanted::Remove(_) = wanted {
        change.remove_site(key).await?;
        change::commit(context, change).await?;
        return Ok(key.to_owned());
    }
    let before = match wanted {
        Wanted::New(configured) => *configured,
        Wanted::Save(_) | Wanted::Remove(_) => before.as_ref(),
    };
    let site = read(key, field, before)?;
    for swap in &site.swaps {
        if context.store.pool(swap.pool).await?.is_none() {
            return Err(NoPage::Wrong(format!("There is no ring pool {}.", swap.pool)));
        }
    }
    change.put_site(&site).await?;
    change::commit(context, change).await?;
    Ok(site.key)
}

fn read(key: &str, field: Fields<'_>, before: Option<&Site>) -> Result<Site, NoPage> {
    let wrong = |text: String| NoPage::Wrong(format!("{text}. Nothing was changed."));
    let lines = |name: &str| {
        let lines = field(name).lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let swap = |line: String| {
        let (number, pool) =
            line.split_once('=').map_or((&*line, ""), |(number, pool)| (number, pool));
        let ring_pool = pool.trim().parse();
        let ring_pool = ring_pool.map_err(|_| {
            wrong(format!("swaps: {line:?} must be NUMBER=RING_POOL, as in +18005550100=16"))
        })?;
        Ok(SwapText { number: number.trim().to_owned(), ring_pool })
    };
    let swaps = lines("swaps").into_iter().map(swap).collect::<Result<_, NoPage>>()?;
    let kept = || before.and_then(|before| before.to_text().edge_key);
    let edge_key = match field("edge_key") {
        "" if field("no_edge_key").is_empty() => kept(),
        "" => None,
        key => Some(key.to_owned()),
    };
    let leases = field("leases_per_minute").parse();
    let text = SiteText {
        key: key.to_owned(),
        origins: lines("origins"),
        swaps,
        params: lines("params"),
        consent: field("consent").to_owned(),
        edge_key,
        leases_per_minute: leases
            .map_err(|_| wrong("leases_per_minute: must be a whole number".to_owned()))?,
    };
    text.check().map_err(|fault| wrong(fault.to_string()))
}

/// A checksum of all settings that are shown. The edge key is left out, because no page may reveal
/// it, not even as a hash.
fn checksum(site: &Site) -> String {
    let text = SiteText { edge_key: None, ..site.to_text() };
    let has_key = site.edge_key.is_some();
    let text = serde_json::to_vec(&(text, has_key)).unwrap_or_default();
    let digest: [u8; 32] = Sha256::digest(&text).into();
    digest[..16].iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The form that creates a site.
pub(super) fn new(asked: &Asked<'_>) -> Markup {
    let key = html! { label { "Key (visible in the pages)"
        input name="key" value="pk_" size="24" minlength="7" maxlength="63" required;
    } };
    let text = SiteText::default();
    let example = asked.store().is_some() && asked.may_change();
    html! { @if example {
        h2 { "Add a web site" }
        (forms::form(asked, "sites/new", "Add it", &fields(&key, &text, false)))
    } }
}

/// The forms for changing and removing a site that is in the directory.
pub(super) fn of_site(asked: &Asked<'_>, site: &Site) -> Markup {
    let (key, text) = (&site.key, site.to_text());
    let seen = html! { input type="hidden" name="seen" value=(checksum(site)); };
    let fields = fields(&seen, &text, site.edge_key.is_some());
    html! { @if asked.may_change() {
        h2 { "Change it" }
        (forms::form(asked, &format!("{key}/save"), "Save", &fields))
        details {
            summary { "Remove this site" }
            @if is_configured(asked, key) {
                p { "The site's settings in the configuration then apply again." }
            } @else { p { "The site's pages then show their original numbers." } }
            (forms::form(asked, &format!("{key}/remove"), "Remove it", &seen))
        }
    } }
}

/// The form for changing a site that is in the configuration.
pub(super) fn of_configuration(asked: &Asked<'_>, site: &Site) -> Markup {
    let key = html! { input type="hidden" name="key" value=(site.key); };
    let fields = fields(&key, &site.to_text(), site.edge_key.is_some());
    html! {
        p { "This site is defined in the configuration. Changes to its " code { "[[site]]" }
            " section take effect on SIGHUP (" code { "systemctl reload ringwell" } ")." }
        @if asked.store().is_some() && asked.may_change() {
            h2 { "Change it" }
            p { "Settings that you save here are stored in the database. They take precedence \
                 over the configuration until you remove them here." }
            (forms::form(asked, "new", "Save", &fields))
        }
    }
}

fn is_configured(asked: &Asked<'_>, key: &str) -> bool {
    asked.configured_sites().iter().any(|site| site.key == key)
}

fn fields(first: &Markup, text: &SiteText, has_edge_key: bool) -> Markup {
    let swaps = text.swaps.iter().map(|swap| format!("{}={}", swap.number, swap.ring_pool));
    let area = |name: &str, label: &str, lines: Vec<String>, is_required: bool| {
        html! { label { (label)
            textarea name=(name) rows="3" cols="36" required[is_required] spellcheck="false" {
                // Browsers ignore a line break at the beginning of a text area.
                "\n" (lines.join("\n"))
            }
        } }
    };
    html! {
        (first)
        (area("origins", "Origins of the site's pages, one per line, as in https://shop.example",
            text.origins.clone(), true))
        (area("swaps",
            "Numbers on the pages and their ring pools, one per line, as in +18005550100=16",
            swaps.collect(), true))
        (area("params", "Names of additional URL parameters to store, one per line",
            text.params.clone(), false))
        label { "The visitor's consent"
            select name="consent" { @for (value, words) in CONSENTS {
                option value=(value) selected[value == text.consent] { (words) }
            } }
        }
        label { "Maximum new numbers per minute for each client network (/24, or /56 for IPv6)"
            input name="leases_per_minute" value=(text.leases_per_minute) inputmode="numeric"
                size="8" maxlength="10" required;
        }
        label { @if has_edge_key { "New secret for servers that swap numbers" }
                @else { "Secret for servers that swap numbers (optional)" }
            input name="edge_key" autocomplete="off" spellcheck="false" size="24" maxlength="256";
        }
        @if has_edge_key { label { "Remove that secret"
            input type="checkbox" name="no_edge_key" value="yes";
        } }
    }
}

/// The site's pools whose lifetime is too short: see [`Site::short_lived`].
pub(super) fn short_lived(asked: &Asked<'_>, site: &Site) -> Vec<PoolId> {
    let directory = asked.node.directory();
    site.short_lived(|pool| directory.pool(pool).map(RingPool::lifetime))
}
