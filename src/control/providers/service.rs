//! The provider service: the providers of the organization, whose tokens are sealed.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::{
    ItemSummary, ProviderClients, ProviderConfig, ProviderError, ProviderTimings, ProviderVault,
    check_base_url, check_token,
    settings::{ProviderDefaults, ProviderSettingsConfig},
};
use crate::{
    api::{
        credential_providers::{
            CacheTtl, CreateCredentialProvider, ProviderName, ProviderPriority,
            UpdateCredentialProvider,
        },
        ids::ProviderId,
    },
    control::{
        secrets::{Sealed, SealedPlace, SecretError, SecretScope, Secrets, to_text},
        store::{
            CreateProviderOutcome, ProviderListing, ProviderRow, Store, StoreError,
            UniqueConstraint,
        },
    },
    system::outbound::OutboundClient,
};

/// The most providers of the organization.
pub const MAX_PROVIDERS: u64 = 100;
const DEFAULT_CACHE_TTL_SECONDS: u32 = 300;
/// The most attempts of a change while other requests change the provider, too.
const MAX_UPDATE_ATTEMPTS: usize = 8;
/// The field of the sealed token.
const TOKEN_FIELD: &str = "token";

/// Why an operation on a provider failed.
#[derive(Debug, thiserror::Error)]
pub enum ProviderServiceError {
    #[error("no credential provider with that id")]
    NotFound,
    #[error("another credential provider has that name")]
    NameTaken,
    #[error("there are {0} credential providers, and no more may be")]
    TooMany(u64),
    #[error("the token {0}")]
    InvalidToken(&'static str),
    #[error("the base URL {0}")]
    InvalidUrl(&'static str),
    #[error("there is no default base URL for this type")]
    NoDefaultUrl,
    #[error("another base URL needs a token")]
    TokenRequired,
    #[error("the provider is being changed by other requests")]
    Contended,
    #[error(transparent)]
    Provider(#[from] ProviderError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ProviderServiceError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UniqueViolation(UniqueConstraint::CredentialProviderName) => {
                ProviderServiceError::NameTaken
            }
            other => ProviderServiceError::Store(other),
        }
    }
}

/// The provider service. Clones share its clients.
#[derive(Clone)]
pub struct Providers {
    store: Store,
    secrets: Secrets,
    clients: ProviderClients,
    defaults: Arc<ProviderDefaults>,
}

impl Providers {
    /// Returns the service, which sends its requests with a client.
    pub fn new(
        config: &ProviderSettingsConfig,
        client: OutboundClient,
        store: &Store,
        secrets: &Secrets,
    ) -> Providers {
        Providers {
            store: store.clone(),
            secrets: secrets.clone(),
            clients: ProviderClients::new(client, ProviderTimings::default()),
            defaults: Arc::new(config.defaults.clone()),
        }
    }

    /// Returns the clients, which find items.
    #[must_use]
    pub fn clients(&self) -> &ProviderClients {
        &self.clients
    }

    /// Creates a provider, without a request to it.
    pub async fn create(
        &self,
        request: CreateCredentialProvider,
    ) -> Result<ProviderRow, ProviderServiceError> {
        let provider_type = request.provider_type;
        let base_url = match request.base_url {
            Some(url) => url.0,
            None => {
                let default = self.defaults.of(provider_type);
                default.ok_or(ProviderServiceError::NoDefaultUrl)?.clone()
            }
        };
        check_base_url(&base_url).map_err(ProviderServiceError::InvalidUrl)?;
        let token = SecretString::from(request.token);
        check_token(&token).map_err(ProviderServiceError::InvalidToken)?;
        let now = Utc::now();
        let cache_ttl = request.cache_ttl_seconds.map(CacheTtl::get);
        let mut row = ProviderRow {
            id: ProviderId::generate(),
            name: request.name.as_str().to_owned(),
            provider_type,
            base_url: base_url.into(),
            enabled: true,
            priority: 0,
            cache_ttl_seconds: cache_ttl.unwrap_or(DEFAULT_CACHE_TTL_SECONDS),
            revision: 1,
            token_revision: 1,
            token_key_version: 0,
            sealed_token: Vec::new(),
            created_at: now,
            updated_at: now,
        };
        self.seal_token(&mut row, &token).await?;
        match self.store.create_provider(&row, MAX_PROVIDERS).await? {
            CreateProviderOutcome::Created => Ok(row),
            CreateProviderOutcome::LimitReached => {
                Err(ProviderServiceError::TooMany(MAX_PROVIDERS))
            }
        }
    }

    /// Finds a provider by its id.
    pub async fn get(&self, id: &str) -> Result<ProviderRow, ProviderServiceError> {
        let id: ProviderId = id.parse().map_err(|_| ProviderServiceError::NotFound)?;
        let found = self.store.find_provider(&id).await?;
        found.ok_or(ProviderServiceError::NotFound)
    }

    /// Finds a provider by its id or its name.
    pub async fn find(&self, id_or_name: &str) -> Result<ProviderRow, ProviderServiceError> {
        match id_or_name.parse::<ProviderId>() {
            Ok(_) => self.get(id_or_name).await,
            Err(_) => {
                let found = self.store.find_provider_named(id_or_name.trim()).await?;
                found.ok_or(ProviderServiceError::NotFound)
            }
        }
    }

    /// Lists providers in the order in which they are asked, with one more than the limit if there
    /// are more.
    pub async fn list(
        &self,
        listing: &ProviderListing,
    ) -> Result<Vec<ProviderRow>, ProviderServiceError> {
        Ok(self.store.list_providers(listing).await?)
    }

    /// Changes a provider.
    pub async fn update(
        &self,
        id: &str,
        request: UpdateCredentialProvider,
    ) -> Result<ProviderRow, ProviderServiceError> {
        let token = request.token.clone().map(SecretString::from);
        if let Some(token) = &token {
            check_token(token).map_err(ProviderServiceError::InvalidToken)?;
        }
        if let Some(url) = &request.base_url {
            check_base_url(&url.0).map_err(ProviderServiceError::InvalidUrl)?;
        }
        for _ in 0..MAX_UPDATE_ATTEMPTS {
            let row = self.get(id).await?;
            let changed = self.changed(&row, &request, token.as_ref()).await?;
            if self.store.update_provider(&row, &changed).await? {
                return Ok(changed);
            }
        }
        Err(ProviderServiceError::Contended)
    }

    /// Returns a row with the changes of a request, and the next revision.
    async fn changed(
        &self,
        row: &ProviderRow,
        request: &UpdateCredentialProvider,
        token: Option<&SecretString>,
    ) -> Result<ProviderRow, ProviderServiceError> {
        let name = request.name.as_ref().map(ProviderName::as_str);
        let base_url = request.base_url.as_ref().map(|url| url.0.as_str());
        let mut changed = ProviderRow {
            name: name.unwrap_or(&row.name).to_owned(),
            base_url: base_url.unwrap_or(&row.base_url).to_owned(),
            enabled: request.enabled.unwrap_or(row.enabled),
            priority: request.priority.map_or(row.priority, ProviderPriority::get),
            cache_ttl_seconds: request
                .cache_ttl_seconds
                .map_or(row.cache_ttl_seconds, CacheTtl::get),
            revision: row.revision + 1,
            updated_at: Utc::now(),
            ..row.clone()
        };
        match token {
            Some(token) => self.seal_token(&mut changed, token).await?,
            None if changed.base_url != row.base_url => {
                // The right to change a provider does not include its token.
                if origin(&changed.base_url) != origin(&row.base_url) {
                    return Err(ProviderServiceError::TokenRequired);
                }
                let token = self.open_token(row).await?;
                self.seal_token(&mut changed, &token).await?;
            }
            None => {}
        }
        Ok(changed)
    }

    /// Deletes a provider.
    pub async fn delete(&self, id: &str) -> Result<(), ProviderServiceError> {
        let id: ProviderId = id.parse().map_err(|_| ProviderServiceError::NotFound)?;
        let is_deleted = self.store.delete_provider(&id).await?;
        self.clients.remove(id.as_str());
        match is_deleted {
            true => Ok(()),
            false => Err(ProviderServiceError::NotFound),
        }
    }

    /// Asks a provider for the vaults that its token can read. Its failure is a result.
    pub async fn test(
        &self,
        id: &str,
    ) -> Result<Result<Vec<ProviderVault>, ProviderError>, ProviderServiceError> {
        let config = self.config(&self.get(id).await?).await?;
        Ok(self.clients.test(&config).await)
    }

    /// Returns the items of a provider, without values.
    pub async fn items(&self, id: &str) -> Result<Arc<[ItemSummary]>, ProviderServiceError> {
        let config = self.config(&self.get(id).await?).await?;
        let client = self.clients.client(&config)?;
        Ok(client.items().await?)
    }

    /// Returns the configuration of a provider, with its token.
    pub async fn config(&self, row: &ProviderRow) -> Result<ProviderConfig, ProviderServiceError> {
        let invalid = ProviderError::InvalidConfig("base_url is not usable");
        Ok(ProviderConfig {
            id: row.id.to_string(),
            name: row.name.clone(),
            provider_type: row.provider_type,
            base_url: Url::parse(&row.base_url).map_err(|_| invalid)?,
            token: self.open_token(row).await?,
            cache_ttl: Duration::from_secs(row.cache_ttl_seconds.into()),
            enabled: row.enabled,
            priority: row.priority.into(),
        })
    }

    /// Seals the token of a row, for its revision and its base URL.
    async fn seal_token(
        &self,
        row: &mut ProviderRow,
        token: &SecretString,
    ) -> Result<(), SecretError> {
        row.token_revision = row.revision;
        let keys = self.secrets.keys_of(&SecretScope::Organization).await?;
        let sealed = keys.seal(&place(row), token.expose_secret().as_bytes())?;
        row.token_key_version = sealed.key_version;
        row.sealed_token = sealed.bytes;
        Ok(())
    }

    async fn open_token(&self, row: &ProviderRow) -> Result<SecretString, SecretError> {
        let keys = self.secrets.keys_of(&SecretScope::Organization).await?;
        let sealed = Sealed {
            key_version: row.token_key_version,
            bytes: row.sealed_token.clone(),
        };
        to_text(&keys.open(&place(row), &sealed)?)
    }
}

/// Returns where a token belongs. It opens only for the address that it was entered for.
fn place(row: &ProviderRow) -> SealedPlace<'_> {
    SealedPlace {
        record: row.id.as_str(),
        purpose: &row.base_url,
        field: TOKEN_FIELD,
        revision: row.token_revision,
    }
}

fn origin(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    Some(url.origin().ascii_serialization())
}
