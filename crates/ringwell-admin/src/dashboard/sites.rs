//! Web sites whose pages swap numbers: their requests, and the tag to paste.

use maud::html;
use ringwell_directory::{Listen, Site};
use ringwell_node::SiteStats;
use serde_json::json;

use super::layout::Tiles;
use super::table::{Cell, Table};
use super::words::{count, several, share};
use super::{Asked, View};

/// The meaning of each outcome to the owner of a site; names equal those of metrics.
const OUTCOMES: [(&str, &str); 7] = [
    ("numbers", "Numbers given"),
    ("beat", "Visits kept alive"),
    ("tap", "Taps on a number"),
    ("bot", "Robots turned away"),
    ("wrong_origin", "Pages of other origins"),
    ("limited", "Too many from one address"),
    ("refused", "Not understood"),
];

pub(super) fn view(asked: &Asked<'_>) -> View {
    let stats = asked.node.sites();
    let config = asked.node.config();
    let mut columns = vec![("site", "Site")];
    columns.extend(OUTCOMES);
    columns.push(("robots", "Share of robots"));
    let mut table = Table::new("Requests of pages since the start", &columns);
    table.rows = stats.iter().map(row).collect();
    let table = table.or(html! {
        "No site is set up. Add a " code { "[[site]]" } " to the configuration; docs/guides has one."
    });
    let mut tiles = Tiles::default();
    tiles.live(
        "waiting",
        "Visitors not known to be people yet",
        count(asked.node.sites_waiting() as u64),
    );
    let address = config.listen.iter().find_map(|listen| match listen {
        Listen::Tcp { host, port } => Some(format!("http://{host}:{port}")),
        Listen::Unix(_) => None,
    });
    let address = address.unwrap_or_default();
    let body = html! {
        h1 { (several(stats.len() as u64, "web site")) }
        @if !stats.is_empty() { (tiles.html()) }
        (table.html())
        @for site in &config.sites {
            h2 { "Tag of " bdi { (site.key) } }
            p.lead { "Put this before the end of the head of each page." }
            pre tabindex="0" { code { (tag(&address, site)) } }
            ul { @for swap in &site.swaps {
                li { (swap.number) " becomes a number of "
                    a href={ (asked.up) "pools/" (swap.pool.0) } { "ring pool " (swap.pool.0) } "." }
            } }
        }
    };
    let of = |site: &SiteStats| {
        let outcomes: serde_json::Map<_, _> = site
            .outcomes
            .iter()
            .map(|(name, count)| ((*name).to_owned(), (*count).into()))
            .collect();
        json!({ "site": site.key, "requests": outcomes })
    };
    let data = json!({ "sites": stats.iter().map(of).collect::<Vec<_>>(),
        "waiting": asked.node.sites_waiting() });
    let mut live: Vec<_> = table.live().collect();
    live.extend(tiles.changing());
    View { title: "Sites".to_owned(), body, data, table, live }
}

fn row(site: &SiteStats) -> Vec<Cell> {
    let of = |name: &str| {
        site.outcomes.iter().find(|(it, _)| *it == name).map_or(0, |(_, count)| *count)
    };
    let mut cells = vec![Cell::text(site.key.as_str())];
    cells.extend(OUTCOMES.iter().map(|(name, _)| {
        Cell::live_figure(format!("{}-{name}", site.key), count(of(name)), of(name))
    }));
    let (robots, people) = (of("bot"), of("numbers"));
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let part = if robots + people == 0 { 0.0 } else { robots as f64 / (robots + people) as f64 };
    cells.push(Cell::live_figure(format!("{}-robots", site.key), share(part), part));
    cells
}

fn tag(address: &str, site: &Site) -> String {
    format!("<script async src=\"{address}/rw.js\" data-site=\"{}\"></script>", site.key)
}
