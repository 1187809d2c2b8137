//! The values that a page is filled with, and the hosts that they are for.

use std::collections::BTreeSet;

use secrecy::{ExposeSecret, SecretSlice, SecretString};
use url::{Host, Url};

use super::{CredentialError, StoredCredentials, totp};
use crate::{
    api::{
        credentials::TotpSecret, fill::FillSource, ids::ProjectId,
        public_suffix::registrable_domain,
    },
    control::{
        providers::{
            FoundItem, ItemSecrets, LookupError, ProviderError,
            service::{ProviderServiceError, Providers},
        },
        store::{CredentialRow, ProviderListing, TotpOptions},
    },
};

/// The most credentials that the error about several matches names.
const MAX_NAMED: usize = 10;
/// The most providers that are asked for an item.
const MAX_PROVIDERS: u64 = 100;

/// Values by their names, without a one-time code.
pub(super) type Values = Vec<(String, SecretString)>;

/// The values, and the hosts that they are for.
pub(super) struct FillMaterial {
    /// Names the source in the log.
    pub(super) source: String,
    /// Values may be written into pages of its registrable domain.
    pub(super) domain: String,
    /// Further hosts of an item.
    pub(super) hosts: Vec<String>,
    pub(super) values: Values,
    pub(super) code: Option<CodeSource>,
}

/// The source of a one-time code.
pub(super) enum CodeSource {
    /// A secret, of which each time step is used once. `holder` names it.
    Secret {
        holder: String,
        secret: SecretSlice<u8>,
        options: TotpOptions,
    },
    /// A code that a provider has computed.
    Computed(SecretString),
}

/// Why there are no values.
#[derive(Debug, thiserror::Error)]
pub enum MaterialError {
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(transparent)]
    Provider(#[from] ProviderServiceError),
    #[error("{0}")]
    Lookup(#[from] LookupError),
    #[error("no credential and no item of a provider is for {0}")]
    NoMatch(String),
    #[error("several credentials match equally well: {}", .0.join(", "))]
    Ambiguous(Vec<String>),
    #[error("the item has no URL with a host: its domain is not known")]
    NoDomain,
    #[error("the page in front has no host")]
    NoHost,
    #[error("the source has no values")]
    Empty,
}

/// Finds the values of a source. `page_url` is the URL of the page in front, which only
/// [`FillSource::Page`] needs.
pub(super) async fn find(
    credentials: &StoredCredentials,
    providers: &Providers,
    project: &ProjectId,
    source: &FillSource,
    page_url: Option<&str>,
) -> Result<FillMaterial, MaterialError> {
    match source {
        FillSource::Credential(reference) => {
            let row = credentials.get(project, reference.as_str()).await?;
            of_credential(credentials, &row).await
        }
        FillSource::Item { provider, path } => {
            let row = providers.find(provider.as_str()).await?;
            let config = providers.config(&row).await?;
            let found = providers.clients().find_by_path(&config, path.as_str());
            of_item(providers, &found.await?).await
        }
        FillSource::Page => {
            let host = page_url.and_then(host_of).ok_or(MaterialError::NoHost)?;
            if let Some(row) = best_credential(credentials, project, &host).await? {
                return of_credential(credentials, &row).await;
            }
            let listing = ProviderListing {
                limit: MAX_PROVIDERS,
                ..ProviderListing::default()
            };
            let mut configs = Vec::new();
            for row in providers.list(&listing).await? {
                if row.enabled {
                    configs.push(providers.config(&row).await?);
                }
            }
            match providers.clients().find_by_host(&configs, &host).await {
                Err(LookupError::NotFound) => Err(MaterialError::NoMatch(host)),
                found => of_item(providers, &found?).await,
            }
        }
    }
}

/// Returns the credential with the domain that is nearest to a host: the host itself, or else the
/// longest domain above it.
async fn best_credential(
    credentials: &StoredCredentials,
    project: &ProjectId,
    host: &str,
) -> Result<Option<CredentialRow>, MaterialError> {
    let domains = domains_of(host);
    let found = credentials.of_domains(project, &domains).await?;
    let Some(nearest) = domains
        .iter()
        .find(|domain| found.iter().any(|row| row.domain == **domain))
    else {
        return Ok(None);
    };
    let mut matches = found.into_iter().filter(|row| row.domain == *nearest);
    let (first, others) = (matches.next(), matches.map(|row| row.name));
    let others: Vec<String> = others.take(MAX_NAMED).collect();
    match (first, others.is_empty()) {
        (Some(row), false) => {
            let names = [vec![row.name], others].concat();
            Err(MaterialError::Ambiguous(names))
        }
        (found, _) => Ok(found),
    }
}

/// Returns a host and the domains above it, up to its registrable domain.
fn domains_of(host: &str) -> Vec<&str> {
    let Some(registrable) = registrable_domain(host) else {
        return vec![host];
    };
    let mut domains = vec![host];
    let mut rest = host;
    while rest != registrable
        && let Some((_, above)) = rest.split_once('.')
    {
        domains.push(above);
        rest = above;
    }
    domains
}

fn host_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    match url.host()? {
        Host::Domain(domain) => Some(domain.trim_end_matches('.').to_owned()),
        address => Some(address.to_string()),
    }
}

async fn of_credential(
    credentials: &StoredCredentials,
    row: &CredentialRow,
) -> Result<FillMaterial, MaterialError> {
    let code = match row.totp {
        Some(options) => Some(CodeSource::Secret {
            holder: row.id.to_string(),
            secret: credentials.totp_secret(row).await?,
            options,
        }),
        None => None,
    };
    let values = credentials.values(row).await?;
    if values.is_empty() && code.is_none() {
        return Err(MaterialError::Empty);
    }
    Ok(FillMaterial {
        source: row.id.to_string(),
        domain: row.domain.clone(),
        hosts: Vec::new(),
        values,
        code,
    })
}

async fn of_item(providers: &Providers, found: &FoundItem) -> Result<FillMaterial, MaterialError> {
    let row = providers.get(&found.provider_id).await?;
    let config = providers.config(&row).await?;
    let client = providers.clients().client(&config);
    let client = client.map_err(ProviderServiceError::from)?;
    let secrets = client.fetch(&found.item.item_ref()).await;
    let secrets = secrets.map_err(ProviderServiceError::from)?;
    let urls = found.item.urls.iter().chain(&secrets.urls);
    let hosts: BTreeSet<String> = urls.filter_map(|url| host_of_item_url(url)).collect();
    let mut hosts = hosts.into_iter();
    let domain = hosts.next().ok_or(MaterialError::NoDomain)?;
    let holder = format!("{}/{}/{}", row.id, found.item.vault_id, found.item.id);
    let code = code_of_item(&secrets, holder)?;
    let values = values_of_item(secrets);
    if values.is_empty() && code.is_none() {
        return Err(MaterialError::Empty);
    }
    Ok(FillMaterial {
        source: format!("{}/{}", row.id, found.item.id),
        domain,
        hosts: hosts.collect(),
        values,
        code,
    })
}

/// Returns the host of a URL that a person has entered, perhaps without a scheme.
fn host_of_item_url(url: &str) -> Option<String> {
    match url.contains("://") {
        true => host_of(url),
        false => host_of(&format!("https://{url}")),
    }
}

fn code_of_item(
    secrets: &ItemSecrets,
    holder: String,
) -> Result<Option<CodeSource>, MaterialError> {
    let Some(secret) = &secrets.totp_secret else {
        let code = secrets.one_time_code.clone();
        return Ok(code.map(CodeSource::Computed));
    };
    let parsed = TotpSecret::parse(secret.expose_secret().to_owned());
    let invalid = ProviderError::InvalidResponse("the secret of one-time codes is malformed");
    let secret = parsed.map_err(|_| ProviderServiceError::from(invalid))?;
    Ok(Some(CodeSource::Secret {
        holder,
        options: totp::options_of(&secret),
        secret: secret.bytes,
    }))
}

/// Returns the values of an item. Its user name and password precede fields with their names.
fn values_of_item(secrets: ItemSecrets) -> Values {
    let mut values = Values::new();
    let named = [
        ("username", secrets.username),
        ("password", secrets.password),
    ];
    for (name, value) in named {
        values.extend(value.map(|value| (name.to_owned(), value)));
    }
    for field in secrets.fields {
        if !values.iter().any(|(name, _)| *name == field.name) {
            values.push((field.name, field.value));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_end_at_the_registrable_one() {
        for (host, domains) in [
            ("example.com", vec!["example.com"]),
            (
                "a.b.example.co.uk",
                vec!["a.b.example.co.uk", "b.example.co.uk", "example.co.uk"],
            ),
            ("localhost", vec!["localhost"]),
            ("127.0.0.1", vec!["127.0.0.1"]),
        ] {
            assert_eq!(domains_of(host), domains);
        }
    }

    #[test]
    fn host_of_an_item_is_that_of_its_url() {
        for (url, host) in [
            ("https://Example.com:8443/login?a=b", Some("example.com")),
            ("example.com/login", Some("example.com")),
            ("http://[::1]/", Some("[::1]")),
            ("ftp://example.com", None),
            ("javascript:alert(1)", None),
            ("", None),
            ("not a host", None),
        ] {
            assert_eq!(host_of_item_url(url).as_deref(), host, "{url}");
        }
    }
}
