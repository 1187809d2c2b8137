//! The credentials of auth connections.

use std::collections::{HashMap, HashSet};

use super::{AuthConnectionError, AuthConnections};
use crate::{
    api::{
        auth_connections::{ConnectionCredential, ReauthReason},
        auth_flow::FlowErrorCode,
        fill::ReferenceText,
        ids::ProjectId,
        public_suffix::is_same_site,
    },
    control::{
        credentials::{CredentialError, value_keys},
        providers::service::{MAX_PROVIDERS, ProviderServiceError},
        store::{AuthConnectionRow, CredentialReference, CredentialRow, ProviderListing},
    },
};

/// The credentials and providers that connections refer to, as far as they exist.
#[derive(Default)]
pub(super) struct KnownCredentials {
    /// By their names.
    credentials: HashMap<String, CredentialRow>,
    /// The names of the enabled providers.
    providers: HashSet<String>,
}

impl AuthConnections {
    /// Checks that the credential of a request exists and is for the site of a connection, unless
    /// it is that of the connection already.
    pub(super) async fn resolve(
        &self,
        row: &AuthConnectionRow,
        credential: &ConnectionCredential,
    ) -> Result<CredentialReference, AuthConnectionError> {
        let unchanged = as_named(credential);
        if row.settings.credential.as_ref() == Some(&unchanged) {
            return Ok(unchanged);
        }
        match credential {
            ConnectionCredential::Named(name) => {
                let credential = self.credentials.get(&row.project_id, name.as_str()).await;
                let credential = credential.map_err(|error| match error {
                    CredentialError::NotFound => AuthConnectionError::CredentialNotFound,
                    error => AuthConnectionError::Credential(error),
                })?;
                match is_same_site(&row.domain, &credential.domain) {
                    true => Ok(CredentialReference::Credential(credential.name)),
                    false => Err(AuthConnectionError::CredentialOfOtherDomain {
                        credential: credential.domain,
                        connection: row.domain.clone(),
                    }),
                }
            }
            ConnectionCredential::Item { provider, path } => Ok(CredentialReference::Item {
                provider: self.provider_name(provider).await?,
                path: path.as_str().to_owned(),
            }),
            ConnectionCredential::ProviderMatch { provider } => {
                Ok(CredentialReference::ProviderMatch {
                    provider: self.provider_name(provider).await?,
                })
            }
        }
    }

    async fn provider_name(&self, provider: &ReferenceText) -> Result<String, AuthConnectionError> {
        match self.providers.find(provider.as_str()).await {
            Ok(row) => Ok(row.name),
            Err(ProviderServiceError::NotFound) => Err(AuthConnectionError::ProviderNotFound),
            Err(error) => Err(AuthConnectionError::Provider(error)),
        }
    }

    /// Finds the credentials and providers that connections of a project refer to.
    pub(super) async fn known_credentials(
        &self,
        project: &ProjectId,
        rows: &[AuthConnectionRow],
    ) -> Result<KnownCredentials, AuthConnectionError> {
        let mut known = KnownCredentials::default();
        let mut names = HashSet::new();
        let mut has_provider = false;
        for row in rows {
            match &row.settings.credential {
                None => {}
                Some(CredentialReference::Credential(name)) => {
                    names.insert(name.as_str());
                }
                Some(
                    CredentialReference::Item { .. } | CredentialReference::ProviderMatch { .. },
                ) => has_provider = true,
            }
        }
        let names: Vec<&str> = names.into_iter().collect();
        let credentials = self.credentials.named(project, &names).await;
        let credentials = credentials.map_err(AuthConnectionError::Credential)?;
        let credentials = credentials.into_iter().map(|row| (row.name.clone(), row));
        known.credentials.extend(credentials);
        if has_provider {
            let listing = ProviderListing {
                limit: MAX_PROVIDERS,
                ..ProviderListing::default()
            };
            let providers = self.providers.list(&listing).await;
            let providers = providers.map_err(AuthConnectionError::Provider)?;
            let enabled = providers.into_iter().filter(|provider| provider.enabled);
            known
                .providers
                .extend(enabled.map(|provider| provider.name));
        }
        Ok(known)
    }
}

/// Returns the reference of a request that has the names of its credential and its provider, as
/// responses have them.
fn as_named(credential: &ConnectionCredential) -> CredentialReference {
    let text = |reference: &ReferenceText| reference.as_str().to_owned();
    match credential {
        ConnectionCredential::Named(name) => CredentialReference::Credential(text(name)),
        ConnectionCredential::Item { provider, path } => CredentialReference::Item {
            provider: text(provider),
            path: text(path),
        },
        ConnectionCredential::ProviderMatch { provider } => CredentialReference::ProviderMatch {
            provider: text(provider),
        },
    }
}

impl KnownCredentials {
    /// Returns why a connection can, or cannot, be logged in without a person.
    pub(super) fn reauth_reason(&self, row: &AuthConnectionRow) -> ReauthReason {
        let by_credential = self.reason_of_credential(row);
        match row.health.reauth_stopped {
            Some(error) if by_credential.permits_reauth() => reason_of_failure(error),
            _ => by_credential,
        }
    }

    fn reason_of_credential(&self, row: &AuthConnectionRow) -> ReauthReason {
        match &row.settings.credential {
            None => ReauthReason::NoCredential,
            Some(CredentialReference::Credential(name)) => match self.credentials.get(name) {
                // Another one with the name may have been created since.
                Some(credential) if !is_same_site(&row.domain, &credential.domain) => {
                    ReauthReason::NoCredential
                }
                Some(credential) if value_keys(credential).is_empty() => {
                    ReauthReason::RequiresCustomerInput
                }
                Some(_) => ReauthReason::HasCredential,
                None => ReauthReason::NoCredential,
            },
            Some(
                CredentialReference::Item { provider, .. }
                | CredentialReference::ProviderMatch { provider },
            ) => match self.providers.contains(provider) {
                true => ReauthReason::ExternalCredential,
                false => ReauthReason::NoCredential,
            },
        }
    }
}

/// Returns the reason for which logins that failed were given up.
fn reason_of_failure(error: FlowErrorCode) -> ReauthReason {
    match error {
        FlowErrorCode::CredentialRejected | FlowErrorCode::InputRequired => {
            ReauthReason::RequiresCustomerInput
        }
        FlowErrorCode::ExternalActionRequired => ReauthReason::RequiresExternalAction,
        _ => ReauthReason::NoViablePlans,
    }
}
