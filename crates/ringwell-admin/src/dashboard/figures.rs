//! Caches the newest sample's figures, so that figures shown on several pages are computed only
//! once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ringwell_core::Millis;
use ringwell_store::Role;
use tokio::sync::OnceCell;

use super::asked::Live;

/// The open pages' figures as of one sample.
#[derive(Debug, Default)]
pub(super) struct Figures(Mutex<OfSample>);

#[derive(Debug, Default)]
struct OfSample {
    at: Millis,
    /// The figures of each open page. A cell is empty until they have been computed; it contains
    /// `None` if the computation failed.
    pages: HashMap<PageKey, Arc<OnceCell<Option<Arc<Live>>>>>,
}

/// The cache key of a page's figures. Pages with the same key show the same figures.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) role: Role,
    /// The call log's change count, if the page shows calls.
    pub(super) calls: Option<u64>,
}

impl Figures {
    /// The entry for the figures of `page`, as of the sample at `at`.
    pub(super) fn of(&self, at: Millis, page: PageKey) -> Arc<OnceCell<Option<Arc<Live>>>> {
        // The map is consistent after each statement, so a poisoned lock is harmless.
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.at != at {
            *newest = OfSample { at, pages: HashMap::new() };
        }
        Arc::clone(newest.pages.entry(page).or_default())
    }
}
