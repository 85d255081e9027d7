//! The visible parts of the demo, and its listeners.

use std::sync::Arc;

use ringwell_admin::{Dashboard, SharedLoads};
use ringwell_config::{Calls, Config, Listen};
use ringwell_directory::{RingPool, Token, TokenHashes};

use super::phone;
use super::shop::{self, Shop};
use crate::calls::Running;
use crate::{management, token};

/// The visible parts of the demo: the dashboard, and a shop page on which each visitor sees a
/// different number.
pub(super) struct Front {
    pub(super) dashboard: Dashboard,
    /// The shop page, and the pool that its load slider uses. `None` if the demo has no pool for
    /// the slider, or if the server's first address is not a TCP address.
    pub(super) shop: Option<(Shop, RingPool)>,
    /// The URL that the user should open first.
    pub(super) url: String,
    /// The listeners in addition to the server's.
    pub(super) also: Vec<Also>,
}

/// A demo listener in addition to the server's own.
pub(super) struct Also {
    pub(super) name: &'static str,
    pub(super) address: String,
    /// The listener's usual address, if another program uses it.
    pub(super) busy: Option<String>,
}

impl Also {
    fn new(name: &'static str, address: String, usual: &Listen) -> Self {
        let usual = usual.to_string();
        let busy = (usual != address && !usual.ends_with(":0")).then_some(usual);
        Self { name, address, busy }
    }
}

impl Front {
    /// Binds the addresses. `pools` contains the pool for the shop's number and the pool for the
    /// shop's load slider.
    pub(super) fn open(
        config: &mut Config,
        token: &Token,
        pools: Option<(RingPool, RingPool)>,
    ) -> anyhow::Result<Self> {
        let dashboard = Dashboard::new(SharedLoads::default());
        let usual = config.management.address.clone();
        let address = open_dashboard(config, &dashboard)?;
        let at = format!("http://{address}");
        let mut also = vec![Also::new("dashboard", address, &usual)];
        let path = dashboard.login_path(token.hash()).unwrap_or_else(|| "/ui/".to_owned());
        let is_tcp = |listen: &Listen| matches!(listen, Listen::Tcp { .. });
        let pools = pools.filter(|_| config.listen.first().is_some_and(is_tcp));
        let Some((first, busy)) = pools else {
            return Ok(Self { dashboard, shop: None, url: at + &path, also });
        };
        let shop = Shop::open(&at, &busy)?;
        also.push(Also::new("shop", shop.address().to_string(), &shop::usual_address()));
        config.sites.push(shop.site(&first)?);
        let code = path.split_once('#').map_or("", |(_, code)| code);
        let url = format!("http://{}/#{code}", shop.address());
        Ok(Self { dashboard, shop: Some((shop, busy)), url, also })
    }

    /// Starts accepting calls if the shop exists.
    pub(super) fn take_calls(&mut self, config: &Config) -> anyhow::Result<Option<Arc<Running>>> {
        let Some((shop, _)) = &mut self.shop else { return Ok(None) };
        let secret = token::new_token()?;
        let webhooks = shop.webhooks();
        let settings = |port| {
            let settings = phone::settings(secret.reveal(), port).map_err(anyhow::Error::msg)?;
            anyhow::Ok(Calls { webhooks: webhooks.clone(), ..settings })
        };
        let usual = Calls::default().listen;
        let port = if let Listen::Tcp { port, .. } = &usual { *port } else { 0 };
        let start = |port| Running::start(&settings(port)?, config, TokenHashes::default());
        let running = start(port).or_else(|_| start(0))?;
        self.dashboard.attach_calls(running.service());
        self.also.push(Also::new("calls", running.address().to_owned(), &usual));
        phone::keep_settings(&config.data, running.address(), secret.reveal())?;
        let phone = phone::phone(running.address(), secret.reveal());
        shop.has(phone.map_err(anyhow::Error::msg)?, &running.service())?;
        Ok(Some(running))
    }

    /// Serves the shop. The server already listens at `addresses`.
    pub(super) fn serve(self, addresses: &[String]) {
        let Some(((shop, busy), address)) = self.shop.zip(addresses.first()) else { return };
        if let Err(error) = shop.serve(address, &busy) {
            tracing::warn!(%error, "the demo's shop could not be started");
        }
    }
}

/// Serves the dashboard at the management API's address. If that address is in use, uses any free
/// port on this machine. Returns the address.
fn open_dashboard(config: &mut Config, dashboard: &Dashboard) -> anyhow::Result<String> {
    if let Ok(address) = management::serve(config, dashboard) {
        return Ok(address);
    }
    config.management.address = Listen::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
    management::serve(config, dashboard)
}
