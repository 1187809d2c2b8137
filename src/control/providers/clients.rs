//! The clients of all providers.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};

use super::{ProviderClient, ProviderConfig, ProviderError, ProviderTimings, ProviderVault};
use crate::system::outbound::OutboundClient;

/// The most clients. Beyond it the one that was unused longest is dropped, with its cache.
pub const MAX_CLIENTS: usize = 256;

/// The digest of what the behaviour of a client depends on.
type ConfigDigest = [u8; 32];

/// The clients, one per provider and configuration. Clones share them.
#[derive(Clone)]
pub struct ProviderClients {
    shared: Arc<ClientsShared>,
}

struct ClientsShared {
    http: OutboundClient,
    timings: ProviderTimings,
    clients: Mutex<ClientMap>,
}

#[derive(Default)]
struct ClientMap {
    entries: HashMap<String, Entry>,
    /// Counts the uses of all clients.
    uses: u64,
}

struct Entry {
    config: ConfigDigest,
    client: Arc<ProviderClient>,
    /// The number of its last use.
    last_use: u64,
}

impl ClientMap {
    fn get(&mut self, id: &str, config: &ConfigDigest) -> Option<Arc<ProviderClient>> {
        let entry = self.entries.get_mut(id)?;
        if entry.config != *config {
            return None;
        }
        self.uses += 1;
        entry.last_use = self.uses;
        Some(entry.client.clone())
    }

    fn insert(&mut self, id: &str, config: ConfigDigest, client: Arc<ProviderClient>) {
        if self.entries.len() >= MAX_CLIENTS && !self.entries.contains_key(id) {
            let unused = self.entries.iter().min_by_key(|(_, entry)| entry.last_use);
            if let Some(id) = unused.map(|(id, _)| id.clone()) {
                self.entries.remove(&id);
            }
        }
        self.uses += 1;
        let entry = Entry {
            config,
            client,
            last_use: self.uses,
        };
        self.entries.insert(id.to_owned(), entry);
    }
}

impl ProviderClients {
    pub fn new(http: OutboundClient, timings: ProviderTimings) -> ProviderClients {
        ProviderClients {
            shared: Arc::new(ClientsShared {
                http,
                timings,
                clients: Mutex::default(),
            }),
        }
    }

    /// Returns the client of a configuration. A change of the address, the kind, the token or the
    /// lifetime of the cache creates another one, whose cache is empty and whose circuit is closed.
    ///
    /// # Errors
    /// Fails if the address or the token cannot be used.
    pub fn client(&self, config: &ProviderConfig) -> Result<Arc<ProviderClient>, ProviderError> {
        let digest = digest(config);
        if let Some(client) = self.shared.clients.lock().get(&config.id, &digest) {
            return Ok(client);
        }
        let client = self.build(config)?;
        self.insert(config, client.clone());
        Ok(client)
    }

    /// Drops the client of a provider that was deleted or changed.
    pub fn remove(&self, provider_id: &str) {
        self.shared.clients.lock().entries.remove(provider_id);
    }

    /// Returns the vaults of a provider, which shows that its configuration works. Failures and
    /// lists from before do not count: a provider that works is used again at once.
    pub async fn test(&self, config: &ProviderConfig) -> Result<Vec<ProviderVault>, ProviderError> {
        let client = self.build(config)?;
        let vaults = client.vaults().await?;
        self.insert(config, client);
        Ok(vaults)
    }

    fn build(&self, config: &ProviderConfig) -> Result<Arc<ProviderClient>, ProviderError> {
        let shared = &self.shared;
        let client = ProviderClient::new(config, &shared.http, shared.timings)?;
        Ok(Arc::new(client))
    }

    fn insert(&self, config: &ProviderConfig, client: Arc<ProviderClient>) {
        let mut clients = self.shared.clients.lock();
        clients.insert(&config.id, digest(config), client);
    }
}

fn digest(config: &ProviderConfig) -> ConfigDigest {
    let mut digest = Sha256::new();
    for part in [
        config.provider_type.as_str(),
        config.base_url.as_str(),
        config.token.expose_secret(),
    ] {
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    }
    digest.update(config.cache_ttl.as_nanos().to_be_bytes());
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        api::credential_providers::ProviderType, system::outbound::tests::loopback_client,
    };

    fn clients() -> ProviderClients {
        ProviderClients::new(loopback_client(), ProviderTimings::default())
    }

    fn config(id: &str) -> ProviderConfig {
        ProviderConfig {
            id: id.to_owned(),
            name: id.to_owned(),
            provider_type: ProviderType::Kv,
            base_url: "https://vault.example/".parse().unwrap(),
            token: "token".into(),
            cache_ttl: Duration::from_secs(300),
            enabled: true,
            priority: 0,
        }
    }

    fn is_same(
        clients: &ProviderClients,
        config: &ProviderConfig,
        client: &Arc<ProviderClient>,
    ) -> bool {
        Arc::ptr_eq(&clients.client(config).unwrap(), client)
    }

    #[test]
    fn client_is_reused_until_its_configuration_changes() {
        let clients = clients();
        let original = config("prov_a");
        let client = clients.client(&original).unwrap();
        let mut renamed = original.clone();
        renamed.name = "b".to_owned();
        renamed.priority = 7;
        renamed.enabled = false;
        assert!(is_same(&clients, &renamed, &client));

        type Change = fn(&mut ProviderConfig);
        let changes: [Change; 4] = [
            |config| config.provider_type = ProviderType::VendorPassword,
            |config| config.base_url = "https://other.example/".parse().unwrap(),
            |config| config.token = "other".into(),
            |config| config.cache_ttl = Duration::ZERO,
        ];
        for change in changes {
            let mut changed = original.clone();
            change(&mut changed);
            let client = clients.client(&original).unwrap();
            assert!(!is_same(&clients, &changed, &client));
        }
        let client = clients.client(&original).unwrap();
        clients.remove("prov_a");
        assert!(!is_same(&clients, &original, &client));
    }

    #[test]
    fn client_that_was_unused_longest_is_dropped_at_the_limit() {
        let clients = clients();
        let first = clients.client(&config("0")).unwrap();
        let second = clients.client(&config("1")).unwrap();
        for number in 2..MAX_CLIENTS {
            clients.client(&config(&number.to_string())).unwrap();
        }
        assert!(is_same(&clients, &config("0"), &first));
        clients.client(&config("one more")).unwrap();
        assert_eq!(clients.shared.clients.lock().entries.len(), MAX_CLIENTS);
        assert!(is_same(&clients, &config("0"), &first));
        assert!(!is_same(&clients, &config("1"), &second));
    }

    #[test]
    fn unusable_configuration_is_refused() {
        let mut unusable = config("prov_a");
        unusable.token = "a\nb".into();
        assert!(clients().client(&unusable).is_err());
        let mut unusable = config("prov_a");
        unusable.base_url = "https://user@vault.example/".parse().unwrap();
        assert!(clients().client(&unusable).is_err());
    }
}
