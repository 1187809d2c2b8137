//! The values that a page is filled with, and the hosts that they are for.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret, SecretSlice, SecretString};

use super::{CredentialError, StoredCredentials, totp};
use crate::{
    api::{
        credential_fill::{FillDomain, FillDomains, FillFieldName, FillFields},
        credential_providers::ProviderType,
        credentials::{CredentialValues, TotpSecret},
        fill::FillSource,
        ids::ProjectId,
        public_suffix::registrable_domain,
    },
    control::{
        providers::{
            FoundItem, ItemRef, ItemSecrets, LookupError, ProviderConfig, host_of,
            service::{MAX_PROVIDERS, ProviderServiceError, Providers},
        },
        store::{CredentialRow, ProviderListing, TotpOptions},
    },
};

/// The most credentials that the error about several matches names.
const MAX_NAMED: u64 = 10;
/// The most bytes of a value.
const MAX_VALUE: usize = 4096;

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
    Computed {
        holder: String,
        code: ComputedCode,
        config: Box<ProviderConfig>,
        item: ItemRef,
    },
}

/// A code that a provider has computed, which is used once in a time step of the usual length.
pub(super) struct ComputedCode {
    pub(super) value: SecretString,
    /// The end of its time step. `None` if another one began while it was fetched.
    pub(super) step_end: Option<DateTime<Utc>>,
}

impl FillMaterial {
    /// Removes the values that no field names.
    pub(super) fn retain(&mut self, fields: &FillFields) {
        self.values.retain(|(name, _)| {
            let mut fields = fields.as_slice().iter();
            fields.any(|field| field.name.as_str() == name)
        });
    }
}

impl ComputedCode {
    pub(super) fn new(
        value: SecretString,
        requested_at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> ComputedCode {
        let end = |time| totp::step_end(totp::DEFAULT_OPTIONS, time);
        let step_end = (end(requested_at) == end(now)).then(|| end(now));
        ComputedCode { value, step_end }
    }
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
    #[error("the item is for more than {} domains", FillDomains::MAX)]
    TooManyDomains,
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
            of_credential(credentials, row).await
        }
        FillSource::Item { provider, path } => {
            let row = providers.find(provider.as_str()).await?;
            let config = providers.config(&row).await?;
            let found = providers.clients().find_by_path(&config, path.as_str());
            of_item(providers, &config, &found.await?).await
        }
        FillSource::Page => {
            let host = page_url.and_then(host_of).ok_or(MaterialError::NoHost)?;
            if let Some(row) = best_credential(credentials, project, &host).await? {
                return of_credential(credentials, row).await;
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
            let found = match providers.clients().find_by_host(&configs, &host).await {
                Err(LookupError::NotFound) => return Err(MaterialError::NoMatch(host)),
                found => found?,
            };
            let mut configs = configs.iter();
            let config = configs.find(|config| config.id == found.provider_id);
            of_item(providers, config.ok_or(LookupError::NotFound)?, &found).await
        }
    }
}

/// Returns the credential with the domain that is nearest to a host: the host itself, or else the
/// longest domain above it, or else another one of the same registrable domain.
pub(super) async fn best_credential(
    credentials: &StoredCredentials,
    project: &ProjectId,
    host: &str,
) -> Result<Option<CredentialRow>, MaterialError> {
    let domains = domains_of(host);
    for domain in &domains {
        let found = credentials.of_domain(project, domain, MAX_NAMED).await?;
        if let Some(row) = only(found)? {
            return Ok(Some(row));
        }
    }
    match registrable_domain(host) {
        Some(domain) => only(credentials.below(project, domain, MAX_NAMED).await?),
        None => Ok(None),
    }
}

/// Refuses several credentials.
fn only(mut found: Vec<CredentialRow>) -> Result<Option<CredentialRow>, MaterialError> {
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => {
            let names = found.into_iter().map(|row| row.name);
            Err(MaterialError::Ambiguous(names.collect()))
        }
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

/// Reads the values of a credential, all of one revision.
pub(super) async fn of_credential(
    credentials: &StoredCredentials,
    mut row: CredentialRow,
) -> Result<FillMaterial, MaterialError> {
    loop {
        let material = read_credential(credentials, &row).await;
        let current = credentials.get(&row.project_id, row.id.as_str()).await?;
        if current.revision == row.revision {
            return material;
        }
        row = current;
    }
}

async fn read_credential(
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

pub(super) async fn of_item(
    providers: &Providers,
    config: &ProviderConfig,
    found: &FoundItem,
) -> Result<FillMaterial, MaterialError> {
    let item = found.item.item_ref();
    let (secrets, computed) = fetch(providers, config, &item).await?;
    // The list may be older than the item.
    let listed = match config.provider_type {
        ProviderType::Kv => &found.item.urls[..],
        ProviderType::VendorPassword => &[],
    };
    let urls = listed.iter().chain(&secrets.urls);
    let hosts = urls.filter_map(|url| host_of_item_url(url));
    let hosts: BTreeSet<String> = hosts
        .map(|host| registrable_domain(&host).map(str::to_owned).unwrap_or(host))
        .collect();
    let mut hosts = hosts.into_iter();
    let domain = hosts.next().ok_or(MaterialError::NoDomain)?;
    if hosts.len() > FillDomains::MAX {
        return Err(MaterialError::TooManyDomains);
    }
    let holder = format!("{}/{}/{}", config.id, found.item.vault_id, found.item.id);
    let code = secret_of_item(&secrets, &holder).or_else(|| {
        Some(CodeSource::Computed {
            holder,
            code: computed?,
            config: Box::new(config.clone()),
            item,
        })
    });
    let values = values_of_item(secrets);
    if values.is_empty() && code.is_none() {
        return Err(MaterialError::Empty);
    }
    Ok(FillMaterial {
        source: format!("{}/{}", config.id, found.item.id),
        domain,
        hosts: hosts.collect(),
        values,
        code,
    })
}

/// Fetches the values of an item, and the code that its provider has computed.
async fn fetch(
    providers: &Providers,
    config: &ProviderConfig,
    item: &ItemRef,
) -> Result<(ItemSecrets, Option<ComputedCode>), MaterialError> {
    let client = providers.clients().client(config);
    let client = client.map_err(ProviderServiceError::from)?;
    let requested_at = Utc::now();
    let secrets = client.fetch(item).await;
    let mut secrets = secrets.map_err(ProviderServiceError::from)?;
    let code = secrets.one_time_code.take();
    let code = code.map(|value| ComputedCode::new(value, requested_at, Utc::now()));
    Ok((secrets, code))
}

/// Returns the host of a URL of an item, if it is one that an agent fills.
fn host_of_item_url(url: &str) -> Option<String> {
    host_of(url).filter(|host| FillDomain::parse(host).is_ok())
}

/// Returns the source of a code for the present time step. Only a provider that computes codes is
/// asked again.
pub(super) async fn renew(
    providers: &Providers,
    source: CodeSource,
) -> Result<CodeSource, MaterialError> {
    let CodeSource::Computed {
        holder,
        config,
        item,
        ..
    } = source
    else {
        return Ok(source);
    };
    let (_, computed) = fetch(providers, &config, &item).await?;
    Ok(CodeSource::Computed {
        holder,
        code: computed.ok_or(MaterialError::Empty)?,
        config,
        item,
    })
}

/// Returns the secret of one-time codes of an item. One that cannot be used, such as that of codes
/// of another kind, is none.
fn secret_of_item(secrets: &ItemSecrets, holder: &str) -> Option<CodeSource> {
    let secret = secrets.totp_secret.as_ref()?.expose_secret().to_owned();
    let secret = TotpSecret::parse(secret).ok()?;
    Some(CodeSource::Secret {
        holder: holder.to_owned(),
        options: totp::options_of(&secret),
        secret: secret.bytes,
    })
}

/// Returns the values of an item that can be filled: as many as a credential may have. Its user
/// name and password precede fields with their names.
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
    values.retain(|(name, value)| {
        let bytes = value.expose_secret().len();
        (1..=MAX_VALUE).contains(&bytes) && FillFieldName::parse(name.clone()).is_ok()
    });
    values.truncate(CredentialValues::MAX);
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
            ("https://example.com@other.example", None),
            ("alice@other.example", None),
            ("mailto:alice@other.example", None),
            ("javascript:alert(1)", None),
            ("", None),
            ("not a host", None),
        ] {
            assert_eq!(host_of_item_url(url).as_deref(), host, "{url}");
        }
    }
}
