//! The KV-v2 HTTP API of self-hosted vaults. A mount is a vault, a secret is an item.
//!
//! ```text
//! GET /v1/sys/internal/ui/mounts            {data: {secret: {"team/": {type, options}}}}
//! GET /v1/{mount}/metadata/{path}?list=true {data: {keys: ["item", "folder/"]}}
//! GET /v1/{mount}/metadata/{path}           {data: {custom_metadata: {url, urls}}}
//! GET /v1/{mount}/data/{path}               {data: {data: {username, password, totp, url, …}}}
//! ```

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use http::HeaderName;
use secrecy::ExposeSecret;
use serde::{Deserialize, de::IgnoredAny};
use tokio::time::Instant;

use super::{
    ItemRef, ItemSecrets, ItemSummary, ProviderApi, ProviderConfig, ProviderError, ProviderTimings,
    ProviderVault, SecretField,
    metadata::{
        ItemCollector, MAX_FIELDS, MAX_VAULTS, check_count, display_name, summarize, usable_urls,
    },
    secret_value::SecretValue,
    transport::{ApiRequest, ProviderTransport, is_segment},
};
use crate::system::outbound::OutboundClient;

/// The requests that are sent at once for a list.
const CONCURRENT_REQUESTS: usize = 8;
/// The most items of a provider of this kind: the metadata of each takes a request.
const MAX_SECRETS: usize = 2000;
/// The most folders of a provider: each takes a request.
const MAX_FOLDERS: usize = 1000;
/// The deepest nesting of folders.
const MAX_DEPTH: usize = 8;
/// The longest path of an item, and of a mount, in bytes.
const MAX_PATH: usize = 1024;

/// A client of the API.
pub(super) struct KvProvider {
    transport: ProviderTransport,
}

/// The `data` of a response.
#[derive(Deserialize)]
struct Envelope<T> {
    data: T,
}

/// The mounts that the token can see. Some versions of the API have no envelope around them.
#[derive(Deserialize)]
struct VisibleMounts {
    data: Option<SecretMounts>,
    secret: Option<BTreeMap<String, MountBody>>,
}

#[derive(Deserialize)]
struct SecretMounts {
    #[serde(default)]
    secret: BTreeMap<String, MountBody>,
}

#[derive(Deserialize)]
struct MountBody {
    #[serde(default, rename = "type")]
    kind: String,
    options: Option<MountOptions>,
}

#[derive(Deserialize)]
struct MountOptions {
    version: Option<String>,
}

#[derive(Deserialize)]
struct KeysBody {
    #[serde(default)]
    keys: Vec<String>,
}

#[derive(Deserialize)]
struct MetadataBody {
    custom_metadata: Option<BTreeMap<String, Option<String>>>,
}

/// A version of a secret. Without data if it is deleted.
#[derive(Deserialize)]
struct VersionBody {
    data: Option<BTreeMap<String, SecretValue>>,
}

/// The folders and items of a folder, as paths within the mount.
#[derive(Default)]
struct Folder {
    folders: Vec<String>,
    items: Vec<String>,
}

impl KvProvider {
    pub(super) fn new(
        config: &ProviderConfig,
        http: &OutboundClient,
        timings: ProviderTimings,
    ) -> Result<KvProvider, ProviderError> {
        let header = (HeaderName::from_static("x-vault-token"), "");
        let transport = ProviderTransport::new(config, http, timings, header)?;
        Ok(KvProvider { transport })
    }

    async fn mounts(
        &self,
        deadline: Instant,
    ) -> Result<BTreeMap<String, MountBody>, ProviderError> {
        let visible = mounts_request(&["v1", "sys", "internal", "ui", "mounts"]);
        let content = visible.content;
        match self.transport.get::<VisibleMounts>(visible, deadline).await {
            Ok(mounts) => {
                let enveloped = mounts.data.map(|data| data.secret);
                let mounts = enveloped.or(mounts.secret);
                mounts.ok_or(ProviderError::InvalidResponse(content))
            }
            // Any valid token may send this request.
            Err(ProviderError::Forbidden) => Err(ProviderError::TokenRefused),
            // A server without that route.
            Err(ProviderError::NotFound) => {
                let all = mounts_request(&["v1", "sys", "mounts"]);
                let all = self.transport.get::<Envelope<_>>(all, deadline).await?;
                Ok(all.data)
            }
            Err(error) => Err(error),
        }
    }

    /// Fails if the token is not valid. A valid one may look itself up unless a policy denies it.
    async fn check_token(&self, deadline: Instant) -> Result<(), ProviderError> {
        let request = ApiRequest {
            segments: &["v1", "auth", "token", "lookup-self"],
            query: None,
            content: "the properties of the token",
        };
        match self.transport.get::<IgnoredAny>(request, deadline).await {
            Ok(_) => Ok(()),
            Err(ProviderError::Forbidden) => Err(ProviderError::TokenRefused),
            Err(error) => Err(error),
        }
    }

    /// Sends a request for a path within a mount.
    async fn get<T: serde::de::DeserializeOwned + Send>(
        &self,
        (mount, kind, path): (&str, &str, &str),
        query: Option<(&str, &str)>,
        content: &'static str,
        deadline: Instant,
    ) -> Result<T, ProviderError> {
        let segments: Vec<&str> = ["v1"]
            .into_iter()
            .chain(mount.split('/'))
            .chain([kind])
            .chain(path.split('/').filter(|_| !path.is_empty()))
            .collect();
        let request = ApiRequest {
            segments: &segments,
            query,
            content,
        };
        let response = self.transport.get::<Envelope<T>>(request, deadline).await?;
        Ok(response.data)
    }

    /// Lists a folder. Returns `None` if the token may not list it.
    async fn list_folder(
        &self,
        mount: &str,
        folder: &str,
        deadline: Instant,
    ) -> Result<Option<Folder>, ProviderError> {
        let place = (mount, "metadata", folder);
        let query = Some(("list", "true"));
        let keys: Result<KeysBody, _> = self.get(place, query, "a list of keys", deadline).await;
        match keys {
            Ok(keys) => Ok(Some(sort_keys(folder, keys.keys))),
            // The folder is empty.
            Err(ProviderError::NotFound) => Ok(Some(Folder::default())),
            Err(ProviderError::Forbidden) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the paths of all items of a mount, level by level. Returns `None` if the token may
    /// not list the mount.
    async fn list_mount(
        &self,
        mount: &str,
        folders_left: &mut usize,
        deadline: Instant,
    ) -> Result<Option<Vec<String>>, ProviderError> {
        let Some(root) = self.list_folder(mount, "", deadline).await? else {
            return Ok(None);
        };
        let (mut level, mut items) = (root.folders, root.items);
        let mut depth = 0;
        while !level.is_empty() {
            depth += 1;
            check_count(depth, MAX_DEPTH, "levels of folders")?;
            if level.len() > *folders_left {
                let (max, items) = (MAX_FOLDERS, "folders");
                return Err(ProviderError::TooLarge { max, items });
            }
            *folders_left -= level.len();
            let lists: Vec<_> = level
                .iter()
                .map(|folder| self.list_folder(mount, folder, deadline))
                .collect();
            let mut lists = stream::iter(lists).buffered(CONCURRENT_REQUESTS);
            let mut next_level = Vec::new();
            while let Some(folder) = lists.try_next().await? {
                let folder = folder.unwrap_or_default();
                next_level.extend(folder.folders);
                items.extend(folder.items);
                check_count(items.len(), MAX_SECRETS, "items")?;
            }
            drop(lists);
            level = next_level;
        }
        check_count(items.len(), MAX_SECRETS, "items")?;
        Ok(Some(items))
    }

    /// Returns the metadata of an item. Returns `None` if it was deleted meanwhile.
    async fn summary(
        &self,
        vault: &ProviderVault,
        path: &str,
        deadline: Instant,
    ) -> Result<Option<ItemSummary>, ProviderError> {
        let place = (vault.id.as_str(), "metadata", path);
        let content = "the metadata of an item";
        let metadata: Result<MetadataBody, _> = self.get(place, None, content, deadline).await;
        let urls = match metadata {
            Ok(metadata) => custom_urls(metadata.custom_metadata.unwrap_or_default()),
            Err(ProviderError::NotFound) => return Ok(None),
            // The token may list the item but not read its metadata, so that it is found by its
            // path only.
            Err(ProviderError::Forbidden) => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Some(summarize(vault, path.to_owned(), path, urls)))
    }
}

#[async_trait]
impl ProviderApi for KvProvider {
    async fn list_vaults(&self, deadline: Instant) -> Result<Vec<ProviderVault>, ProviderError> {
        let mounts = self.mounts(deadline).await?;
        let is_kv2 = |mount: &MountBody| {
            let version = mount
                .options
                .as_ref()
                .and_then(|options| options.version.as_deref());
            mount.kind == "kv" && version == Some("2")
        };
        let vaults: Vec<ProviderVault> = mounts
            .iter()
            .filter(|(_, mount)| is_kv2(mount))
            .map(|(path, _)| path.trim_end_matches('/'))
            .filter(|path| is_path(path))
            .map(|path| ProviderVault {
                id: path.to_owned(),
                name: display_name(path),
            })
            .collect();
        check_count(vaults.len(), MAX_VAULTS, "vaults")?;
        if vaults.is_empty() {
            // Some versions respond to an invalid token with the mounts that all can see.
            self.check_token(deadline).await?;
        }
        Ok(vaults)
    }

    async fn list_items(&self, deadline: Instant) -> Result<Vec<ItemSummary>, ProviderError> {
        let vaults = self.list_vaults(deadline).await?;
        let mut folders_left = MAX_FOLDERS;
        let mut paths = Vec::new();
        let mut is_forbidden = !vaults.is_empty();
        for vault in &vaults {
            let listed = self
                .list_mount(&vault.id, &mut folders_left, deadline)
                .await?;
            is_forbidden &= listed.is_none();
            paths.extend(
                listed
                    .unwrap_or_default()
                    .into_iter()
                    .map(|path| (vault, path)),
            );
            check_count(paths.len(), MAX_SECRETS, "items")?;
        }
        if is_forbidden {
            return Err(ProviderError::Forbidden);
        }
        let summaries: Vec<_> = paths
            .iter()
            .map(|(vault, path)| self.summary(vault, path, deadline))
            .collect();
        let mut summaries = stream::iter(summaries).buffered(CONCURRENT_REQUESTS);
        let mut all = ItemCollector::default();
        while let Some(summary) = summaries.try_next().await? {
            all.add(summary)?;
        }
        Ok(all.into_items())
    }

    async fn fetch_item(
        &self,
        item: &ItemRef,
        deadline: Instant,
    ) -> Result<ItemSecrets, ProviderError> {
        if !is_path(&item.vault_id) || !is_path(&item.item_id) {
            return Err(ProviderError::InvalidId);
        }
        let place = (item.vault_id.as_str(), "data", item.item_id.as_str());
        let version: VersionBody = self.get(place, None, "the item", deadline).await?;
        let values = version.data.ok_or(ProviderError::NotFound)?;
        check_count(values.len(), MAX_FIELDS, "fields in an item")?;
        let mut secrets = ItemSecrets::default();
        for (key, value) in values {
            if let Some(value) = value.0 {
                add_value(&mut secrets, key, value);
            }
        }
        Ok(secrets)
    }
}

fn mounts_request(segments: &'static [&'static str]) -> ApiRequest<'static> {
    ApiRequest {
        segments,
        query: None,
        content: "the list of mounts",
    }
}

/// Returns whether a text is a path without empty and relative segments.
fn is_path(text: &str) -> bool {
    text.len() <= MAX_PATH && text.split('/').all(is_segment)
}

/// Sorts the keys of a folder. Those that cannot be a path are left out: users with write access
/// to one folder must not disable the provider for all others.
fn sort_keys(folder: &str, keys: Vec<String>) -> Folder {
    let mut sorted = Folder::default();
    for key in keys {
        let (name, kind) = match key.strip_suffix('/') {
            Some(name) => (name, &mut sorted.folders),
            None => (key.as_str(), &mut sorted.items),
        };
        let path = match folder {
            "" => name.to_owned(),
            folder => format!("{folder}/{name}"),
        };
        if !name.contains('/') && is_path(&path) {
            kind.push(path);
        } else {
            tracing::debug!("ignored a key that cannot be a path");
        }
    }
    sorted
}

/// Returns the URLs in the metadata that users have set: `url`, and `urls` with separators.
fn custom_urls(metadata: BTreeMap<String, Option<String>>) -> Vec<String> {
    let of = |name: &str| {
        metadata
            .get(name)
            .and_then(Option::as_deref)
            .map(split_urls)
    };
    [of("url"), of("urls")]
        .into_iter()
        .flatten()
        .flatten()
        .collect()
}

fn split_urls(text: &str) -> Vec<String> {
    let separators = |c: char| c.is_whitespace() || c == ',';
    text.split(separators).map(str::to_owned).collect()
}

/// Sorts a value by its key.
fn add_value(secrets: &mut ItemSecrets, key: String, value: secrecy::SecretString) {
    match key.as_str() {
        "username" => secrets.username = Some(value),
        "password" => secrets.password = Some(value),
        "totp" | "otpauth" if secrets.totp_secret.is_none() => secrets.totp_secret = Some(value),
        "url" | "urls" => {
            let urls = usable_urls(split_urls(value.expose_secret()));
            secrets.urls.extend(urls);
        }
        _ => {
            let name = display_name(&key);
            secrets.fields.push(SecretField { name, value });
        }
    }
}
