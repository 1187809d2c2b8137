//! The client of one provider.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    ItemRef, ItemSecrets, ItemSummary, ProviderApi, ProviderConfig, ProviderError, ProviderTimings,
    ProviderVault, build_provider, item_cache::ItemCache,
};
use crate::system::outbound::OutboundClient;

/// A provider with a cache of its items.
pub struct ProviderClient {
    provider: Arc<dyn ProviderApi>,
    cache: Arc<ItemCache>,
    timings: ProviderTimings,
}

impl ProviderClient {
    pub(super) fn new(
        config: &ProviderConfig,
        http: &OutboundClient,
        timings: ProviderTimings,
    ) -> Result<ProviderClient, ProviderError> {
        Ok(ProviderClient {
            provider: build_provider(config, http, timings)?,
            cache: ItemCache::new(config.cache_ttl),
            timings,
        })
    }

    /// Returns the vaults, which are not cached.
    pub async fn vaults(&self) -> Result<Vec<ProviderVault>, ProviderError> {
        self.provider
            .list_vaults(deadline(self.timings.list_timeout))
            .await
    }

    /// Returns the metadata of all items, at most as old as the configured lifetime of the cache.
    pub async fn items(&self) -> Result<Arc<[ItemSummary]>, ProviderError> {
        let fetch = || {
            let provider = self.provider.clone();
            let deadline = deadline(self.timings.list_timeout);
            async move { provider.list_items(deadline).await }
        };
        self.cache.get_or_fetch(Instant::now(), fetch).await
    }

    /// Returns the values of an item, which are not cached.
    pub async fn fetch(&self, item: &ItemRef) -> Result<ItemSecrets, ProviderError> {
        let deadline = deadline(self.timings.fetch_timeout);
        self.provider.fetch_item(item, deadline).await
    }
}

fn deadline(limit: Duration) -> Instant {
    Instant::now() + limit
}
