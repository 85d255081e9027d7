//! The ring pools, the keys that open them, the shards that own them, and the configuration of a
//! server.
//!
//! Reads files and uses nothing else of the operating system: variables, flags and random bytes
//! come in as arguments. Independent of HTTP, of journals and of free numbers.

mod arrivals;
mod bucket_holds;
mod changes;
mod check;
mod cluster;
mod config;
mod demo;
mod directory;
mod entry;
mod fault;
mod indices;
mod key;
mod owners;
mod placement;
mod places;
mod pool;
mod rotation;
mod secret_files;
mod sorted;
mod table;
mod token;

pub use arrivals::{Arrivals, without};
pub use bucket_holds::{BucketHold, BucketHolds};
pub use changes::{Changes, new_overflow};
pub use cluster::{Cluster, ClusterMap, ClusterNode, Secret, TlsFiles};
pub use config::{
    Api, Application, Buying, CallAccount, CallProvider, CallerIds, Calls, ClientTls, Config,
    Consent, Database, DestinationRule, Durability, Growth, GrowthMode, Inventory, Journal, Limits,
    Lines, Links, Listen, Log, LogFormat, Management, NumberCheck, OpenHours, Overrides,
    Replicated, RoutingSettings, Site, SiteFault, SiteOrigin, SiteText, Swap, SwapText,
    TrustedProxy, UnknownNumber, VARIABLES, ValueError, WebhookSettings, client_address, guarded,
    is_call_target, is_reserved_param, load, parse_deadline, parse_duration, parse_lifetime,
    parse_shards, pool_from_json, unguarded,
};
pub use demo::{DEMO_LIFETIME, DEMO_NUMBERS, DEMO_POOLS, DemoError, demo_pools, write_demo_csv};
pub use directory::Directory;
pub use entry::Entry;
pub use fault::Fault;
pub use key::{KeyError, RingPoolKey};
pub use owners::{Owner, Owners};
pub use placement::{BUCKETS, Placement, SHARDS_MAX, bucket};
pub use places::{AreaCode, Center, Place, Places, Point, Search, StateCode, ZipCode};
pub use pool::{PoolFault, PoolFields, RingPool, Tracking};
pub use secret_files::secret_files;
pub use token::{Token, TokenHash, TokenHashError, TokenHashes};
