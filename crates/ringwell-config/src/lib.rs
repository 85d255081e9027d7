//! The configuration of a server.
//!
//! Reads files but makes no other use of the operating system: environment variables and flags are
//! passed in as arguments. Flags override `RINGWELL_*` variables, variables override the file, and
//! the file overrides the defaults. Also reads cluster files, and creates the demo's ring pools.

mod application;
mod authorization;
mod calls;
mod cluster;
mod cluster_file;
mod csv;
mod database_url;
mod demo;
mod fields;
mod file;
mod growth;
mod inventory;
mod json;
mod limits;
mod load;
mod overrides;
mod pools;
mod proxies;
mod secret_files;
mod section;
mod settings;
mod sites;
mod toml_file;
mod values;

pub use self::authorization::credentials;
pub use self::calls::{
    CallAccount, CallProvider, CallerIds, Calls, DestinationRule, OpenHours, RoutingSettings,
    UnknownNumber, WebhookSettings, is_call_target,
};
pub use self::cluster::{Cluster, ClusterMap, ClusterNode, Secret, TlsFiles};
pub use self::csv::{Lines, guarded, unguarded};
pub use self::database_url::{Database, DatabaseUrl};
pub use self::demo::{
    DEMO_LIFETIME, DEMO_LIST, DEMO_NUMBERS, DEMO_POOLS, DemoError, demo_pools, write_demo_csv,
};
pub use self::growth::{Growth, GrowthMode};
pub use self::inventory::{Buying, Inventory, NumberCheck};
pub use self::json::pool_from_json;
pub use self::limits::{BODY_BYTES_MAX, DEADLINE_MAX, ROWS_MAX};
pub use self::load::{Reloaded, load, reload};
pub use self::overrides::{Overrides, VARIABLES, meant, parse_deadline, parse_shards};
pub use self::proxies::{TrustedProxy, client_address};
pub use self::secret_files::{secret_files, shown_file};
pub use self::settings::{
    Api, Application, ClientTls, Config, Journal, Limits, Links, Log, Management, Replicated,
};
pub use self::sites::{
    Consent, Site, SiteFault, SiteOrigin, SiteText, Swap, SwapText, is_reserved_param,
};
pub use self::values::{Durability, Listen, LogFormat, ValueError};
pub use self::values::{parse_duration, parse_lifetime, parse_size};

#[cfg(test)]
mod tests;
