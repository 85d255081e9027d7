//! The ways in which the directory and other settings change while the node serves.

use ringwell_config::Site;
use ringwell_directory::{Directory, Fault};

use crate::running_node::Orders;
use crate::signals::StartSignals;

/// Reads the pools and web sites again after a SIGHUP.
pub type Reload = Box<dyn FnMut() -> Result<(Directory, Vec<Site>), Vec<Fault>> + Send>;

/// Reloads settings other than pools, and applies them.
pub type ReloadSettings = Box<dyn FnMut() -> Result<(), Vec<Fault>> + Send>;

/// Returns the errors in the configuration, and applies nothing.
pub type Check = Box<dyn Fn() -> Vec<Fault> + Send + Sync>;

/// The ways in which the directory can change while the node serves.
#[derive(Default)]
pub struct Directories {
    /// On SIGHUP.
    pub reload: Option<Reload>,
    /// On SIGHUP, if pools do not come from the configuration: reloads only other settings.
    pub reload_settings: Option<ReloadSettings>,
    /// While the process waits as a standby.
    pub check: Option<Check>,
    /// Orders from the part of the process that maintains the directory.
    pub orders: Option<Orders>,
    /// Handles signals until the node serves. If a SIGHUP arrives before that, the node reloads the
    /// configuration as soon as it serves.
    pub signals: Option<StartSignals>,
}
