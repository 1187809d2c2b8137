//! Credential providers: password managers and vaults that hold credentials outside of Berth.
//!
//! ```text
//! ProviderClients ──▶ ProviderClient ──▶ ProviderApi (vendorpassword, kv)
//!   one client per      cache of the         │
//!   configuration       list of items        ▼
//!                                        ProviderTransport: retries, circuit breaker
//!                                            │
//!                                            ▼
//!                                        OutboundClient: address policy, bounds
//! ```
//!
//! A list has metadata only. Values are fetched when they are used, and never cached. See
//! `docs/design/providers.md`.
//!
//! Another kind of provider is one file with an implementation of [`ProviderApi`], and a
//! variant of [`ProviderType`].

mod circuit_breaker;
mod client;
mod clients;
mod error;
mod item_cache;
mod kv;
mod lookup;
mod metadata;
mod resilience;
mod secret_value;
pub mod service;
pub mod settings;
mod transport;
mod vendorpassword;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use secrecy::SecretString;
use tokio::time::Instant;
use url::Url;

pub use client::ProviderClient;
pub use clients::{MAX_CLIENTS, ProviderClients};
pub use error::ProviderError;
pub(super) use lookup::host_of;
pub use lookup::{FoundItem, LookupError, MatchedBy};
pub use resilience::ProviderTimings;
pub use transport::{check_base_url, check_token};

use crate::{api::credential_providers::ProviderType, system::outbound::OutboundClient};

/// The configuration of a provider. It has no `Debug`, because of the token.
#[derive(Clone)]
pub struct ProviderConfig {
    pub id: String,
    /// Names the provider in errors.
    pub name: String,
    pub provider_type: ProviderType,
    /// The address of the API, without `/v1`. See [`check_base_url`].
    pub base_url: Url,
    /// See [`check_token`].
    pub token: SecretString,
    /// The time for which a list of items is used after its fetch began. Zero disables the cache.
    pub cache_ttl: Duration,
    pub enabled: bool,
    /// Providers with a lower number are asked first.
    pub priority: i64,
}

/// A vault of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderVault {
    pub id: String,
    pub name: String,
}

/// The metadata of an item. It has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemSummary {
    pub id: String,
    /// `Vault/Item`, of the names. Several items can have the same path.
    pub path: String,
    pub title: String,
    pub vault_id: String,
    pub vault_name: String,
    /// As the provider stores them: not all need to be URLs.
    pub urls: Vec<String>,
}

impl ItemSummary {
    /// Returns the ids with which the item is fetched.
    #[must_use]
    pub fn item_ref(&self) -> ItemRef {
        ItemRef {
            vault_id: self.vault_id.clone(),
            item_id: self.id.clone(),
        }
    }
}

/// The ids of an item.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ItemRef {
    pub vault_id: String,
    pub item_id: String,
}

/// The values of an item. They cannot be printed or serialized, and are zeroed when dropped.
#[derive(Default)]
pub struct ItemSecrets {
    pub username: Option<SecretString>,
    pub password: Option<SecretString>,
    /// The secret of one-time codes, in base32 or as an `otpauth://` URI.
    pub totp_secret: Option<SecretString>,
    /// A code that the provider has computed. It is valid for the present time step at most.
    pub one_time_code: Option<SecretString>,
    pub fields: Vec<SecretField>,
    /// All URLs of the item, also those that its metadata lacks.
    pub urls: Vec<String>,
}

/// A further field of an item.
pub struct SecretField {
    pub name: String,
    pub value: SecretString,
}

/// A source of credentials. Every call ends by its deadline.
#[async_trait]
pub trait ProviderApi: Send + Sync {
    /// Returns the vaults that the token can read.
    async fn list_vaults(&self, deadline: Instant) -> Result<Vec<ProviderVault>, ProviderError>;

    /// Returns the metadata of all items that the token can read.
    async fn list_items(&self, deadline: Instant) -> Result<Vec<ItemSummary>, ProviderError>;

    /// Returns the values of an item.
    async fn fetch_item(
        &self,
        item: &ItemRef,
        deadline: Instant,
    ) -> Result<ItemSecrets, ProviderError>;
}

/// Creates the provider of a configuration.
fn build_provider(
    config: &ProviderConfig,
    http: &OutboundClient,
    timings: ProviderTimings,
) -> Result<Arc<dyn ProviderApi>, ProviderError> {
    Ok(match config.provider_type {
        ProviderType::Kv => Arc::new(kv::KvProvider::new(config, http, timings)?),
        ProviderType::VendorPassword => Arc::new(vendorpassword::VendorPasswordProvider::new(
            config, http, timings,
        )?),
    })
}
