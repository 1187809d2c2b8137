//! The credential of a login, and entering its values beside those that a person has submitted.

use std::sync::Arc;

use secrecy::SecretString;
use tokio::time::Instant;

use super::{
    CredentialError,
    fill::{CODE_NAME, FillPageError, PREPARATION_TIMEOUT, PageFiller, PreparedFill},
    material::{self, FillMaterial, MaterialError},
};
use crate::{
    api::{
        credential_fill::{
            FillField, FillFieldName, FillFields, FillResponse, FillSelector, IDENTIFIER_NAMES,
        },
        ids::ProjectId,
        public_suffix::{is_same_site, registrable_domain},
    },
    control::{
        browsers::BrowserHandle,
        providers::{FoundItem, ProviderConfig},
        store::CredentialReference,
    },
};

/// The stored credential of a login. It cannot be printed.
pub struct LoginCredential {
    material: FillMaterial,
    sso_provider: Option<String>,
}

/// A value for one field of a login form.
pub struct LoginEntry {
    pub selector: FillSelector,
    /// The name from which the agent knows the meaning of the field.
    pub name: String,
    pub value: LoginValue,
}

/// The source of a value.
pub enum LoginValue {
    /// The value of the stored credential with that name; `code` for a one-time code.
    Stored(String),
    Submitted(SecretString),
}

impl LoginCredential {
    /// Returns the names of the values, without that of a one-time code.
    pub fn value_names(&self) -> impl Iterator<Item = &str> {
        self.material.values.iter().map(|(name, _)| name.as_str())
    }

    /// Returns whether there is a source of one-time codes.
    #[must_use]
    pub fn has_code(&self) -> bool {
        self.material.code.is_some()
    }

    /// Returns the identity provider that the values belong to.
    #[must_use]
    pub fn sso_provider(&self) -> Option<&str> {
        self.sso_provider.as_deref()
    }

    /// Returns the values that sites show as the name of an account.
    pub fn identifiers(&self) -> impl Iterator<Item = &SecretString> {
        let values = self.material.values.iter();
        values.filter_map(|(name, value)| {
            let mut known = IDENTIFIER_NAMES.iter();
            let is_account = known.any(|known| known.eq_ignore_ascii_case(name));
            is_account.then_some(value)
        })
    }

    /// Returns all values.
    pub fn values(&self) -> impl Iterator<Item = &SecretString> {
        self.material.values.iter().map(|(_, value)| value)
    }
}

impl PageFiller {
    /// Finds the credential of a connection for a domain.
    pub async fn find_login_credential(
        &self,
        project: &ProjectId,
        reference: &CredentialReference,
        domain: &str,
    ) -> Result<LoginCredential, MaterialError> {
        let (credentials, providers) = (&self.credentials, &self.providers);
        match reference {
            CredentialReference::Credential(name) => {
                let row = credentials.get(project, name).await?;
                let sso_provider = row.sso_provider.clone();
                let material = material::of_credential(credentials, row).await?;
                // One of another site may have got the name since.
                if !is_same_site(domain, &material.domain) {
                    return Err(CredentialError::NotFound.into());
                }
                Ok(LoginCredential {
                    material,
                    sso_provider,
                })
            }
            CredentialReference::Item { provider, path } => {
                let config = self.provider_config(provider).await?;
                let found = providers.clients().find_by_path(&config, path).await?;
                self.item_credential(&config, &found).await
            }
            CredentialReference::ProviderMatch { provider } => {
                let config = self.provider_config(provider).await?;
                let configs = std::slice::from_ref(&config);
                let found = providers.clients().find_by_host(configs, domain).await?;
                self.item_credential(&config, &found).await
            }
        }
    }

    async fn provider_config(&self, name: &str) -> Result<ProviderConfig, MaterialError> {
        let row = self.providers.find(name).await?;
        Ok(self.providers.config(&row).await?)
    }

    async fn item_credential(
        &self,
        config: &ProviderConfig,
        found: &FoundItem,
    ) -> Result<LoginCredential, MaterialError> {
        Ok(LoginCredential {
            sso_provider: None,
            material: material::of_item(&self.providers, config, found).await?,
        })
    }

    /// Enters values into the login form in front of a browser, only on pages of the registrable
    /// domain of `host`, and submits it.
    pub(in crate::control) async fn enter_login(
        &self,
        browser: &Arc<BrowserHandle>,
        host: &str,
        credential: Option<LoginCredential>,
        entries: Vec<LoginEntry>,
    ) -> Result<FillResponse, FillPageError> {
        let (stored, code) = match credential {
            Some(LoginCredential { material, .. }) => (material.values, material.code),
            None => (Vec::new(), None),
        };
        let (mut values, mut fields) = (Vec::new(), Vec::new());
        let mut uses_code = false;
        for entry in entries {
            let (name, value) = match entry.value {
                LoginValue::Stored(name) if name == CODE_NAME && code.is_some() => {
                    uses_code = true;
                    (name, None)
                }
                LoginValue::Stored(name) => {
                    let mut values = stored.iter();
                    let found = values.find(|(own, _)| *own == name);
                    let (_, value) = found.ok_or(MaterialError::Empty)?;
                    (entry.name, Some(value.clone()))
                }
                LoginValue::Submitted(value) => (entry.name, Some(value)),
            };
            let name = unique_name(name, &fields);
            if let Some(value) = value {
                values.push((name.as_str().to_owned(), value));
            }
            fields.push(FillField {
                name,
                selector: Some(entry.selector),
            });
        }
        let domain = registrable_domain(host).unwrap_or(host);
        self.fill(PreparedFill {
            _activity: browser.activity().begin(),
            browser: browser.clone(),
            material: FillMaterial {
                source: "login".to_owned(),
                domain: domain.to_owned(),
                hosts: Vec::new(),
                values,
                code: code.filter(|_| uses_code),
            },
            fields: FillFields::new(fields),
            submit: true,
            deadline: Instant::now() + PREPARATION_TIMEOUT,
        })
        .await
    }

    /// Whether pages with `http` of other machines may be used.
    #[must_use]
    pub fn allows_http(&self) -> bool {
        self.allow_http
    }
}

/// Returns a name that no other field has.
fn unique_name(name: String, fields: &[FillField]) -> FillFieldName {
    let is_taken = |name: &FillFieldName| fields.iter().any(|field| field.name == *name);
    let base = FillFieldName::parse(name).unwrap_or_else(|_| FillFieldName::numbered(0));
    if !is_taken(&base) {
        return base;
    }
    let mut names = (2..).map(FillFieldName::numbered);
    names.find(|name| !is_taken(name)).unwrap_or(base)
}
