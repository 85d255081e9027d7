//! A change's purchases, and calls to the provider of numbers.

use std::sync::Arc;

use crate::StoreError;
use crate::provider::{Provider, ProviderError, Purchase};

/// The purchases that a change will order from the provider.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    pub(crate) provider: Option<Arc<dyn Provider>>,
    /// The purchases to order when the change is committed.
    pub(crate) purchases: Vec<Purchase>,
    /// Whether this change has already searched for numbers that were bought but not added to the
    /// inventory.
    pub(crate) has_looked: bool,
}

impl Orders {
    pub(crate) fn of(provider: Option<Arc<dyn Provider>>) -> Self {
        Self { provider, ..Self::default() }
    }

    /// Orders the purchases from the provider.
    pub(crate) async fn place(self) -> Result<(), StoreError> {
        let Self { provider: Some(provider), purchases, .. } = self else { return Ok(()) };
        if purchases.is_empty() {
            return Ok(());
        }
        apart(provider, move |it| it.buy(&purchases)).await
    }
}

/// Calls the provider on a separate thread, because the provider may block.
pub(crate) async fn apart<T: Send + 'static>(
    provider: Arc<dyn Provider>,
    ask: impl FnOnce(&dyn Provider) -> Result<T, ProviderError> + Send + 'static,
) -> Result<T, StoreError> {
    let answer = tokio::task::spawn_blocking(move || ask(&*provider)).await;
    // If the provider panics, the panic is returned as a provider error.
    let answer = answer.unwrap_or_else(|error| Err(ProviderError(error.to_string())));
    answer.map_err(StoreError::Provider)
}
