//! Finds one item, by its path or by the host of a page. Several matches are refused.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::join_all;
use url::{Host, Url};

use super::{ItemSummary, ProviderClients, ProviderConfig, ProviderError};
use crate::api::public_suffix::registrable_domain;

/// The most items that the error about several matches names.
const MAX_NAMED: usize = 10;

/// The way in which an item was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchedBy {
    /// By the ids of the vault and the item.
    Id,
    /// By the names of the vault and the item, or one of them.
    Path,
    /// A URL of the item has the host of the page.
    Host,
    /// A URL of the item has the registrable domain of the page.
    Domain,
}

/// An item, and the provider that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundItem {
    pub provider_id: String,
    pub item: ItemSummary,
    pub matched_by: MatchedBy,
}

/// Why no item was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    #[error("no item matches")]
    NotFound,
    #[error("{}", describe_candidates(.named, .more))]
    Ambiguous {
        /// The first of the items: provider, path and id.
        named: Vec<String>,
        /// The number of further ones.
        more: usize,
    },
    /// A provider has no answer, so that the item of another one may not be the right one.
    #[error("provider {provider} cannot be asked: {error}")]
    ProviderFailed {
        provider: String,
        error: ProviderError,
    },
    #[error("provider {provider} is disabled")]
    Disabled { provider: String },
    #[error("not a host name or an address")]
    InvalidHost,
}

impl ProviderClients {
    /// Finds the item with a path `Vault/Item` of names or ids in one provider.
    pub async fn find_by_path(
        &self,
        config: &ProviderConfig,
        path: &str,
    ) -> Result<FoundItem, LookupError> {
        if !config.enabled {
            let provider = config.name.clone();
            return Err(LookupError::Disabled { provider });
        }
        let items = self.items(config).await?;
        let (matches, matched_by) = match_path(&items, path);
        let matches = matches.into_iter().map(|item| (config, item)).collect();
        select(matches, matched_by)
    }

    /// Finds the item for a page in the enabled providers. The URLs of an item with the host of the
    /// page precede those with its registrable domain, and providers of one priority precede those
    /// of the next.
    ///
    /// # Errors
    /// Fails if a provider has no answer and none of a lower number has the item, even if one of a
    /// higher number has: that would fill in another credential while a provider is down.
    pub async fn find_by_host(
        &self,
        configs: &[ProviderConfig],
        host: &str,
    ) -> Result<FoundItem, LookupError> {
        let page = PageHost::parse(host).ok_or(LookupError::InvalidHost)?;
        let mut enabled: Vec<_> = configs.iter().filter(|config| config.enabled).collect();
        enabled.sort_by(|a, b| (a.priority, &a.id).cmp(&(b.priority, &b.id)));
        for group in enabled.chunk_by(|a, b| a.priority == b.priority) {
            let lists = join_all(group.iter().map(|config| self.items(config))).await;
            let lists = lists.into_iter().collect::<Result<Vec<_>, _>>()?;
            let items: Vec<_> = group
                .iter()
                .zip(&lists)
                .flat_map(|(config, list)| list.iter().map(move |item| (*config, item)))
                .collect();
            let (matches, matched_by) = match_host(&items, &page);
            if !matches.is_empty() {
                return select(matches, matched_by);
            }
        }
        Err(LookupError::NotFound)
    }

    async fn items(&self, config: &ProviderConfig) -> Result<Arc<[ItemSummary]>, LookupError> {
        let failed = |error| LookupError::ProviderFailed {
            provider: config.name.clone(),
            error,
        };
        let client = self.client(config).map_err(failed)?;
        client.items().await.map_err(failed)
    }
}

/// An item, and the provider that has it.
type Candidate<'a> = (&'a ProviderConfig, &'a ItemSummary);

/// Returns the item if there is only one.
fn select(matches: Vec<Candidate<'_>>, matched_by: MatchedBy) -> Result<FoundItem, LookupError> {
    match matches.as_slice() {
        [] => Err(LookupError::NotFound),
        [(config, item)] => Ok(FoundItem {
            provider_id: config.id.clone(),
            item: (*item).clone(),
            matched_by,
        }),
        several => {
            let describe = |(config, item): &Candidate<'_>| {
                format!("{} in {} (id {})", item.path, config.name, item.id)
            };
            Err(LookupError::Ambiguous {
                named: several.iter().take(MAX_NAMED).map(describe).collect(),
                more: several.len().saturating_sub(MAX_NAMED),
            })
        }
    }
}

fn describe_candidates(named: &[String], more: &usize) -> String {
    let named = named.join(", ");
    match more {
        0 => format!("several items match: {named}"),
        more => format!("several items match: {named} and {more} more"),
    }
}

/// Returns the items with a path. Ids precede names: only they are unique.
fn match_path<'a>(items: &'a [ItemSummary], path: &str) -> (Vec<&'a ItemSummary>, MatchedBy) {
    let has_parts = |vault: &str, item: &str| {
        let rest = path.strip_prefix(vault);
        rest.and_then(|rest| rest.strip_prefix('/')) == Some(item)
    };
    let by_ids = |item: &&ItemSummary| has_parts(&item.vault_id, &item.id);
    let by_names = |item: &&ItemSummary| {
        has_parts(&item.vault_name, &item.title)
            || has_parts(&item.vault_name, &item.id)
            || has_parts(&item.vault_id, &item.title)
    };
    let found: Vec<_> = items.iter().filter(by_ids).collect();
    if !found.is_empty() {
        return (found, MatchedBy::Id);
    }
    (items.iter().filter(by_names).collect(), MatchedBy::Path)
}

/// Returns the items for a page: those with its host, or else those with its registrable domain.
fn match_host<'a>(items: &[Candidate<'a>], page: &PageHost) -> (Vec<Candidate<'a>>, MatchedBy) {
    let (mut by_host, mut by_domain) = (Vec::new(), Vec::new());
    for candidate in items {
        let hosts: BTreeSet<String> = candidate
            .1
            .urls
            .iter()
            .filter_map(|url| host_of(url))
            .collect();
        if hosts.contains(&page.host) {
            by_host.push(*candidate);
        } else if page.domain.is_some()
            && hosts
                .iter()
                .any(|host| registrable_domain(host) == page.domain.as_deref())
        {
            by_domain.push(*candidate);
        }
    }
    if by_host.is_empty() {
        (by_domain, MatchedBy::Domain)
    } else {
        (by_host, MatchedBy::Host)
    }
}

/// The host of a page, as URLs have it.
struct PageHost {
    host: String,
    domain: Option<String>,
}

impl PageHost {
    fn parse(text: &str) -> Option<PageHost> {
        let host = normalize_host(&Host::parse(text).ok()?.to_string())?;
        let domain = registrable_domain(&host).map(str::to_owned);
        Some(PageHost { host, domain })
    }
}

/// Returns the host of a URL of an item, whose scheme may be missing. URLs with a user name have
/// none: `mailto:a@example.com` and `https://example.com@other.example` look like another host.
pub(in crate::control) fn host_of(url: &str) -> Option<String> {
    let url = if url.contains("://") {
        Url::parse(url)
    } else {
        Url::parse(&format!("https://{url}"))
    };
    let is_page = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
    };
    let url = url.ok().filter(is_page)?;
    normalize_host(url.host_str()?)
}

/// Removes the dot of a name that is complete.
fn normalize_host(host: &str) -> Option<String> {
    let host = host.strip_suffix('.').unwrap_or(host);
    (!host.is_empty()).then(|| host.to_owned())
}

#[cfg(test)]
mod tests;
