//! The ring pools, their keys, and the shards that own the pools.
//!
//! Does not use the operating system: text and random bytes are passed in as arguments. Independent
//! of files, HTTP, journals and the state of numbers.

mod arrivals;
mod bucket_holds;
mod changes;
mod check;
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
mod sorted;
mod table;
mod token;

pub use arrivals::{Arrivals, without};
pub use bucket_holds::{BucketHold, BucketHolds};
pub use changes::{Changes, new_overflow};
pub use check::{Clash, clashes};
pub use directory::{Directory, even};
pub use entry::Entry;
pub use fault::Fault;
pub use key::{KeyError, RingPoolKey};
pub use owners::{Owner, Owners};
pub use placement::{BUCKETS, Placement, SHARDS_MAX, bucket};
pub use places::{AreaCode, Center, Place, Places, Point, Search, StateCode, ZipCode};
pub use pool::{PoolFault, PoolFields, RingPool, Tracking};
pub use token::{Token, TokenHash, TokenHashError, TokenHashes, hex};
