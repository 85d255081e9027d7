//! The web sites whose pages are served, and the data on their visitors. All threads share them.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use hyper::header::{self, HeaderMap, HeaderValue};
use ringwell_config::Site;
use ringwell_core::PromoNumber;
use ringwell_driver::node::Node;

use super::leases::Leases;
use super::token::Signer;
use super::visit::code_of;
use crate::fields::values;

/// A function that is called with each number that a visitor has tapped.
type OnTap = Box<dyn Fn(PromoNumber) + Send + Sync>;

/// The function that receives taps.
#[derive(Default)]
struct Taps(OnceLock<OnTap>);

impl std::fmt::Debug for Taps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Taps")
    }
}

/// All sites, with the data on their visitors. All threads share this state.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    /// Created together with the first site.
    signer: OnceLock<Signer>,
    leases: Mutex<Leases>,
    taps: Taps,
    table: RwLock<Arc<Table>>,
}

/// Sites by key. A change replaces the table.
pub(crate) type Table = BTreeMap<String, Arc<SiteEntry>>;

/// A site, and the outcomes of requests from its pages.
#[derive(Debug)]
pub(crate) struct SiteEntry {
    pub(super) site: Site,
    /// For each swap, the country code of the number that the site's pages contain.
    pub(super) codes: Vec<Option<u16>>,
    /// A site keeps these counts when its settings change.
    tally: Arc<Tally>,
}

#[derive(Debug, Default)]
struct Tally([AtomicU64; Outcome::ALL.len()]);

/// The outcome of a request from a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Numbers,
    Beat,
    Tap,
    Bot,
    Origin,
    Limited,
    Refused,
}

impl Outcome {
    pub(crate) const ALL: [Self; 7] = [
        Self::Numbers,
        Self::Beat,
        Self::Tap,
        Self::Bot,
        Self::Origin,
        Self::Limited,
        Self::Refused,
    ];

    /// Returns the outcome's name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Numbers => "numbers",
            Self::Beat => "beat",
            Self::Tap => "tap",
            Self::Bot => "bot",
            Self::Origin => "wrong_origin",
            Self::Limited => "limited",
            Self::Refused => "refused",
        }
    }
}

impl Sites {
    /// Serves exactly these sites from now on.
    ///
    /// # Errors
    /// Returns an error if the secret for signing visitors' strings can neither be read
    /// nor created. The sites then stay unchanged.
    pub(crate) fn serve(&self, node: &Node, sites: Vec<Site>) -> io::Result<()> {
        if !sites.is_empty() && self.signer.get().is_none() {
            let made = signer(node)?;
            // If two threads get here at the same time, both use the signer of the first one.
            self.signer.get_or_init(|| made);
        }
        self.replace(sites);
        Ok(())
    }

    /// Replaces all sites. Sites that already existed keep their counts.
    fn replace(&self, sites: Vec<Site>) {
        let before = self.table();
        let entry = |site: Site| {
            let known = before.get(&site.key).map(|entry| Arc::clone(&entry.tally));
            let codes = site.swaps.iter().map(|swap| code_of(&swap.number)).collect();
            let entry = SiteEntry { site, codes, tally: known.unwrap_or_default() };
            (entry.site.key.clone(), Arc::new(entry))
        };
        let table = Arc::new(sites.into_iter().map(entry).collect());
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
    }

    /// The current sites.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Finds the site with this key.
    pub(super) fn find(&self, key: &str) -> Option<Arc<SiteEntry>> {
        self.table().get(key).cloned()
    }

    pub(super) fn signer(&self) -> &Signer {
        // Sites are served only after the signer was created, so this random secret never signs a
        // string.
        self.signer.get_or_init(|| Signer::new(&crate::disk::random::<32>().unwrap_or_default()))
    }

    pub(super) fn leases(&self) -> MutexGuard<'_, Leases> {
        // Every method leaves the contents consistent, so a poisoned lock can still be used.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn on_taps(&self, tapped: OnTap) {
        // Every shard's thread calls this for the same node. Only the first call takes effect.
        let _ = self.taps.0.set(tapped);
    }

    pub(super) fn tapped(&self, number: PromoNumber) {
        if let Some(tapped) = self.taps.0.get() {
            tapped(number);
        }
    }

    /// Returns the number of visitors who have not yet shown that they are people.
    pub(crate) fn waiting(&self) -> usize {
        self.leases().waiting()
    }
}

impl SiteEntry {
    pub(super) fn count(&self, outcome: Outcome) {
        let before = self.tally.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
        if outcome == Outcome::Limited && before == 0 {
            tracing::warn!(
                site = self.site.key,
                leases_per_minute = self.site.leases_per_minute,
                "a client address has reached its limit of new numbers per minute, so further \
                 visitors from that address see the page's original number. If the address \
                 belongs to a proxy, add it to trusted_proxies"
            );
        }
    }

    pub(crate) const fn site(&self) -> &Site {
        &self.site
    }

    /// Returns the request's origin, if the site allows it. Browsers send the origin with every
    /// POST request.
    pub(super) fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut origins = values(headers, &header::ORIGIN);
        let origin = origins.next().filter(|_| origins.next().is_none())?;
        let text = origin.to_str().ok()?;
        let is_allowed = self.site.origins.iter().any(|allowed| allowed.matches(text));
        is_allowed.then(|| origin.clone())
    }

    /// Returns the count of the site's requests for each outcome, in the order of [`Outcome::ALL`].
    pub(crate) fn counts(&self) -> [u64; Outcome::ALL.len()] {
        self.tally.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// Creates a signer from the cluster secret, or from a secret in the data directory. With
/// durability `memory` and no cluster, creates it from random bytes.
fn signer(node: &Node) -> io::Result<Signer> {
    if let Some(membership) = &node.membership {
        return Ok(Signer::new(membership.cluster().secret()));
    }
    if node.answers_wait() {
        return crate::disk::kept_secret(&node.config.data.join(crate::disk::SECRET))
            .map(|secret| Signer::new(&secret));
    }
    crate::disk::random::<32>().map(|secret| Signer::new(&secret))
}
