//! Web sites whose pages swap numbers: the counts of requests from these pages, and the tag to
//! insert into each page.

use maud::{Markup, html};
use ringwell_config::{Listen, Site};
use ringwell_node::SiteStats;
use serde_json::json;

use super::asked::{Asked, NoPage, View};
use super::layout::Tiles;
use super::table::{Cell, Table};
use super::words::{count, several, share};
use super::{forms, site_forms};

/// The maximum number of sites on a page. A directory cannot contain more.
const SITES_MAX: u32 = 1_000;

/// The outcomes of a site's requests, each with its name in the metrics and a label for the site's
/// owner.
const OUTCOMES: [(&str, &str); 7] = [
    ("numbers", "Numbers given"),
    ("beat", "Visits kept alive"),
    ("tap", "Taps on a number"),
    ("bot", "Robots turned away"),
    ("wrong_origin", "Pages of other origins"),
    ("limited", "Too many from one address"),
    ("refused", "Refused"),
];

/// Lists all sites.
pub(super) async fn list(asked: &Asked<'_>) -> Result<View, NoPage> {
    let stats = asked.node.sites();
    let mut columns = vec![("site", "Site")];
    columns.extend(OUTCOMES);
    columns.push(("robots", "Share of robots"));
    let mut table = Table::new("Requests from pages since startup", &columns);
    // For up to a second after a change, a new site may have no figures yet, and a removed one may
    // still have some.
    let sites = sites(asked).await?;
    table.rows =
        sites.iter().map(|(site, _)| row(asked, &site.key, find(&stats, &site.key))).collect();
    let table = table.or(html! {
        "No site is configured. " @if asked.store().is_some() { "Add one here, or with " code { "ringwell \
        sites create" } "." } @else { "Add a " code { "[[site]]" } " to the configuration." }
    });
    let mut tiles = Tiles::default();
    tiles.live(
        "waiting",
        "Visitors not yet confirmed to be people",
        count(asked.node.sites_waiting() as u64),
    );
    let body = html! {
        h1 { (several(sites.len() as u64, "web site")) }
        @for (site, _) in &sites { (short_lived(asked, site)) }
        @if !sites.is_empty() { (tiles.html()) }
        (table.html())
        (site_forms::new(asked))
    };
    let each = sites.iter().map(|(site, _)| of(&site.key, find(&stats, &site.key)));
    let data = json!({ "sites": each.collect::<Vec<_>>(),
        "waiting": asked.node.sites_waiting() });
    let mut live: Vec<_> = table.live().collect();
    live.extend(tiles.changing());
    Ok(View { title: "Sites".to_owned(), body, data, table, live })
}

/// Shows one site: its tag, its settings, and the counts of its requests.
pub(super) async fn one(asked: &Asked<'_>, key: &str) -> Result<View, NoPage> {
    let found = sites(asked).await?.into_iter().find(|(site, _)| site.key == key);
    let (site, is_kept) = found.ok_or(NoPage::Missing("There is no such site."))?;
    let stats = asked.node.sites();
    let stats = find(&stats, key);
    let columns = [("outcome", "Outcomes"), ("requests", "Requests")];
    let mut table = Table::new("Requests from the site's pages since startup", &columns);
    for (name, words) in OUTCOMES {
        let requests = outcome(stats, name);
        table.rows.push(vec![
            Cell::text(words),
            Cell::live_figure(format!("site-{name}"), count(requests), requests),
        ]);
    }
    let text = site.to_text();
    let body = html! {
        h1 { "Web site " bdi { (site.key) } }
        (short_lived(asked, &site))
        h2 { "Tag" }
        p.lead { "Insert this tag before </head> on each page." }
        pre tabindex="0" { code { (tag(&address(asked), &site.key, &text.consent)) } }
        ul { @for swap in &site.swaps {
            li { (swap.number) " becomes a number of "
                a href={ (asked.up) "pools/" (swap.pool.0) } { "ring pool " (swap.pool.0) } "." }
        } }
        p { "Pages from these origins may use this site's tag: " (text.origins.join(", ")) "." }
        (table.html())
        @if is_kept { (site_forms::of_site(asked, &site)) }
        @else { (site_forms::of_configuration(asked, &site)) }
        (forms::of_site(asked, key).await)
    };
    let data = json!({ "site": key, "origins": text.origins, "swaps": text.swaps, "params": text.params,
        "consent": text.consent, "has_edge_key": text.edge_key.is_some(),
        "leases_per_minute": text.leases_per_minute, "requests": of(key, stats)["requests"],
        "short_lived_ring_pools": site_forms::short_lived(asked, &site).iter().map(|pool| pool.0).collect::<Vec<_>>() });
    let live = table.live().collect();
    Ok(View { title: format!("Web site {key}"), body, data, table, live })
}

/// All sites, each with a flag that is set if the site is in the directory. Sites in the directory
/// come first, then those that are only in the configuration.
async fn sites(asked: &Asked<'_>) -> Result<Vec<(Site, bool)>, NoPage> {
    let kept = match asked.store() {
        Some(store) => store.sites("", SITES_MAX).await?,
        None => Vec::new(),
    };
    let is_ours = |site: &Site| !kept.iter().any(|kept| kept.key == site.key);
    let mut configured = asked.configured_sites();
    configured.retain(is_ours);
    let kept = kept.into_iter().map(|site| (site, true));
    Ok(kept.chain(configured.into_iter().map(|site| (site, false))).collect())
}

/// A warning about the site's short-lived pools: a lockout in them may end before a page sends its
/// first keep-alive.
fn short_lived(asked: &Asked<'_>, site: &Site) -> Markup {
    let pools = site_forms::short_lived(asked, site);
    html! { @if !pools.is_empty() { p.banner.amber {
        b { "▲ " bdi { (site.key) } ": numbers may change while a page shows them. " }
        "A page extends the lockout of its number once a minute, but the lifetime of "
        @for (place, pool) in pools.iter().enumerate() {
            @if place > 0 { ", " }
            a href={ (asked.up) "pools/" (pool.0) } { "ring pool " (pool.0) }
        }
        " is one minute or less. Set a lifetime of at least two minutes."
    } } }
}

/// The server's address for browsers, according to the configuration.
fn address(asked: &Asked<'_>) -> String {
    let config = asked.node.config();
    let listens = if config.site_listen.is_empty() { &config.listen } else { &config.site_listen };
    let address = listens.iter().find_map(|listen| match listen {
        Listen::Tcp { host, port } => Some(format!("http://{host}:{port}")),
        Listen::Unix(_) => None,
    });
    address.unwrap_or_default()
}

/// The counts of a site's requests. `None` if the site is not served yet.
fn find<'a>(stats: &'a [SiteStats], key: &str) -> Option<&'a SiteStats> {
    stats.iter().find(|stats| stats.key == key)
}

fn of(key: &str, stats: Option<&SiteStats>) -> serde_json::Value {
    let outcomes =
        OUTCOMES.iter().map(|(name, _)| ((*name).to_owned(), outcome(stats, name).into()));
    json!({ "site": key, "requests": outcomes.collect::<serde_json::Map<_, _>>() })
}

fn outcome(stats: Option<&SiteStats>, name: &str) -> u64 {
    let outcomes = stats.into_iter().flat_map(|stats| &stats.outcomes);
    outcomes.filter(|(it, _)| *it == name).map(|(_, count)| *count).sum()
}

fn row(asked: &Asked<'_>, key: &str, stats: Option<&SiteStats>) -> Vec<Cell> {
    let of = |name: &str| outcome(stats, name);
    let mut cells = vec![Cell::link(format!("{}sites/{key}", asked.up), key)];
    cells.extend(
        OUTCOMES
            .iter()
            .map(|(name, _)| Cell::live_figure(format!("{key}-{name}"), count(of(name)), of(name))),
    );
    let (robots, people) = (of("bot"), of("numbers"));
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let part = if robots + people == 0 { 0.0 } else { robots as f64 / (robots + people) as f64 };
    cells.push(Cell::live_figure(format!("{key}-robots"), share(part), part));
    cells
}

/// Returns the script tag for a site with this key and this consent setting.
fn tag(address: &str, key: &str, consent: &str) -> String {
    let more = match consent {
        "off" => String::new(),
        _ => format!(" data-consent=\"{consent}\""),
    };
    format!("<script async src=\"{address}/rw.js\" data-site=\"{key}\"{more}></script>")
}

#[cfg(test)]
#[test]
fn the_tag_follows_the_consent_setting() {
    for (consent, more) in [
        ("off", ""),
        ("required", " data-consent=\"required\""),
        ("cookieless", " data-consent=\"cookieless\""),
    ] {
        let wanted = format!("<script async src=\"/rw.js\" data-site=\"pk_shop\"{more}></script>");
        assert_eq!(tag("", "pk_shop", consent), wanted);
    }
}
