//! The password manager's self-hosted Connect REST API.
//!
//! ```text
//! GET /v1/vaults                          [{id, name}]
//! GET /v1/vaults/{vault}/items            [{id, title, vault, urls, state}]
//! GET /v1/vaults/{vault}/items/{item}     … and fields [{id, type, purpose, label, value, totp}]
//! ```

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use http::header::AUTHORIZATION;
use serde::{Deserialize, de::IgnoredAny};
use tokio::time::Instant;

use super::{
    ItemRef, ItemSecrets, ItemSummary, ProviderApi, ProviderConfig, ProviderError, ProviderTimings,
    ProviderVault, SecretField,
    metadata::{
        ItemCollector, MAX_FIELDS, MAX_ITEMS, MAX_VAULTS, check_count, display_name,
        is_generated_id, summarize, usable_urls,
    },
    secret_value::SecretValue,
    transport::{ApiRequest, ProviderTransport},
};
use crate::system::outbound::OutboundClient;

/// The vaults whose items are requested at once.
const CONCURRENT_VAULTS: usize = 4;

/// A client of the API.
pub(super) struct VendorPasswordProvider {
    transport: ProviderTransport,
}

#[derive(Deserialize)]
struct VaultBody {
    id: String,
    #[serde(default)]
    name: String,
}

/// An item. The values are in the fields, which a list does not decode even if it has them.
#[derive(Deserialize)]
struct ItemBody<F> {
    id: String,
    #[serde(default)]
    title: String,
    vault: VaultReference,
    urls: Option<Vec<UrlBody>>,
    state: Option<String>,
    fields: Option<F>,
}

#[derive(Deserialize)]
struct VaultReference {
    id: String,
}

#[derive(Deserialize)]
struct UrlBody {
    #[serde(default)]
    href: String,
    #[serde(default)]
    primary: bool,
}

#[derive(Deserialize)]
struct FieldBody {
    #[serde(default)]
    id: String,
    #[serde(default)]
    label: String,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    purpose: String,
    #[serde(default)]
    value: SecretValue,
    #[serde(default)]
    totp: SecretValue,
}

impl<F> ItemBody<F> {
    /// Returns the URLs, the primary one first.
    fn urls(&mut self) -> impl Iterator<Item = String> + use<F> {
        let mut urls = self.urls.take().unwrap_or_default();
        urls.sort_by_key(|url| !url.primary);
        urls.into_iter().map(|url| url.href)
    }

    fn is_in_use(&self) -> bool {
        !matches!(self.state.as_deref(), Some("ARCHIVED" | "DELETED"))
    }
}

impl VendorPasswordProvider {
    pub(super) fn new(
        config: &ProviderConfig,
        http: &OutboundClient,
        timings: ProviderTimings,
    ) -> Result<VendorPasswordProvider, ProviderError> {
        let header = (AUTHORIZATION, "Bearer ");
        let transport = ProviderTransport::new(config, http, timings, header)?;
        Ok(VendorPasswordProvider { transport })
    }

    async fn items_of(
        &self,
        vault: &ProviderVault,
        deadline: Instant,
    ) -> Result<Vec<ItemSummary>, ProviderError> {
        let request = ApiRequest {
            segments: &["v1", "vaults", &vault.id, "items"],
            query: None,
            content: "the list of items",
        };
        let items: Result<Vec<ItemBody<IgnoredAny>>, _> =
            self.transport.get(request, deadline).await;
        let items = match items {
            Ok(items) => items,
            // The vault was deleted, or the token lost it, since the list of vaults.
            Err(ProviderError::NotFound) => Vec::new(),
            Err(error) => return Err(error),
        };
        check_count(items.len(), MAX_ITEMS, "items")?;
        let in_use = items.into_iter().filter(ItemBody::is_in_use);
        in_use
            .map(|mut item| {
                if !is_generated_id(&item.id) || item.vault.id != vault.id {
                    return Err(ProviderError::InvalidResponse("the ids of an item"));
                }
                let urls = item.urls();
                Ok(summarize(vault, item.id, &item.title, urls))
            })
            .collect()
    }
}

#[async_trait]
impl ProviderApi for VendorPasswordProvider {
    async fn list_vaults(&self, deadline: Instant) -> Result<Vec<ProviderVault>, ProviderError> {
        let request = ApiRequest {
            segments: &["v1", "vaults"],
            query: None,
            content: "the list of vaults",
        };
        let vaults: Vec<VaultBody> = self.transport.get(request, deadline).await?;
        check_count(vaults.len(), MAX_VAULTS, "vaults")?;
        let vaults = vaults.into_iter().map(|vault| {
            if !is_generated_id(&vault.id) {
                return Err(ProviderError::InvalidResponse("the id of a vault"));
            }
            let name = display_name(&vault.name);
            Ok(ProviderVault { id: vault.id, name })
        });
        vaults.collect()
    }

    async fn list_items(&self, deadline: Instant) -> Result<Vec<ItemSummary>, ProviderError> {
        let vaults = self.list_vaults(deadline).await?;
        let lists: Vec<_> = vaults
            .iter()
            .map(|vault| self.items_of(vault, deadline))
            .collect();
        let mut lists = stream::iter(lists).buffered(CONCURRENT_VAULTS);
        let mut all = ItemCollector::default();
        while let Some(items) = lists.try_next().await? {
            all.add(items)?;
        }
        Ok(all.into_items())
    }

    async fn fetch_item(
        &self,
        item: &ItemRef,
        deadline: Instant,
    ) -> Result<ItemSecrets, ProviderError> {
        if !is_generated_id(&item.vault_id) || !is_generated_id(&item.item_id) {
            return Err(ProviderError::InvalidId);
        }
        let request = ApiRequest {
            segments: &["v1", "vaults", &item.vault_id, "items", &item.item_id],
            query: None,
            content: "the item",
        };
        let mut body: ItemBody<Vec<FieldBody>> = self.transport.get(request, deadline).await?;
        if body.id != item.item_id || body.vault.id != item.vault_id {
            return Err(ProviderError::InvalidResponse("the ids of an item"));
        }
        if !body.is_in_use() {
            return Err(ProviderError::NotFound);
        }
        let fields = body.fields.take().unwrap_or_default();
        check_count(fields.len(), MAX_FIELDS, "fields in an item")?;
        let mut secrets = ItemSecrets {
            urls: usable_urls(body.urls()),
            ..ItemSecrets::default()
        };
        for field in fields {
            add_field(&mut secrets, field);
        }
        Ok(secrets)
    }
}

/// Sorts a field by its purpose. Of several fields with one purpose, the first counts.
fn add_field(secrets: &mut ItemSecrets, field: FieldBody) {
    if field.kind == "OTP" {
        secrets.totp_secret = secrets.totp_secret.take().or(field.value.0);
        secrets.one_time_code = secrets.one_time_code.take().or(field.totp.0);
        return;
    }
    let Some(value) = field.value.0 else {
        return;
    };
    // Items that are no logins have fields without a purpose.
    let purpose = match (field.purpose.as_str(), field.id.as_str()) {
        ("", "username") => "USERNAME",
        ("", "password") => "PASSWORD",
        (purpose, _) => purpose,
    };
    match purpose {
        "USERNAME" if secrets.username.is_none() => secrets.username = Some(value),
        "PASSWORD" if secrets.password.is_none() => secrets.password = Some(value),
        _ => {
            let name = if field.label.is_empty() {
                &field.id
            } else {
                &field.label
            };
            let name = display_name(name);
            secrets.fields.push(SecretField { name, value });
        }
    }
}
