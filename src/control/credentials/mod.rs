//! The credential service: what logs in to sites. Its secrets are sealed before they are stored,
//! and opened only to compute a code or to fill a page.
//!
//! - [`login`]: the credential of a login of an auth connection.
//! - [`fields`]: seals and opens the fields of a credential.
//! - [`totp`]: one-time codes.
//! - [`material`]: finds the values for a page. [`fill`]: fills it with them.

use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use subtle::ConstantTimeEq;

use self::totp::OneTimeCode;
use super::{
    secrets::{self, SecretError, Secrets},
    store::{
        CreateCredentialError, CredentialChange, CredentialListing, CredentialRow, Store,
        StoreError, TotpOptions, UniqueConstraint,
    },
};
use crate::api::{
    credentials::{
        CreateCredential, CredentialName, CredentialValues, SsoProviderChange, TotpAlgorithm,
        TotpDigits, TotpPeriod, TotpSecret, TotpSecretChange, UpdateCredential,
    },
    ids::{CredentialId, ProjectId},
};

mod fields;
pub mod fill;
pub mod login;
pub mod material;
#[cfg(test)]
mod tests;
pub mod totp;

use fields::{TOTP_FIELD, value_field, value_name};

/// The most attempts of a change while other requests change the credential, too.
const MAX_UPDATE_ATTEMPTS: usize = 8;

/// Why an operation on a credential failed.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("no credential with that id or name")]
    NotFound,
    #[error("another credential of the project has that name")]
    NameTaken,
    #[error("the project is archived or deleted")]
    ProjectInactive,
    #[error("a credential has at most {} values", CredentialValues::MAX)]
    TooManyValues,
    /// The name of the field is `totp_algorithm` or the like.
    #[error("{0} needs a totp_secret")]
    OptionWithoutSecret(&'static str),
    #[error("the credential has no totp_secret")]
    TotpNotConfigured,
    #[error("the credential is being changed by other requests")]
    Contended,
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for CredentialError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UniqueViolation(UniqueConstraint::CredentialName) => {
                CredentialError::NameTaken
            }
            other => CredentialError::Store(other),
        }
    }
}

impl From<CreateCredentialError> for CredentialError {
    fn from(error: CreateCredentialError) -> Self {
        match error {
            CreateCredentialError::ProjectInactive => CredentialError::ProjectInactive,
            CreateCredentialError::Store(error) => error.into(),
        }
    }
}

/// A credential, and the current code if its secret was just set.
pub struct SavedCredential {
    pub row: CredentialRow,
    pub code: Option<OneTimeCode>,
}

/// The options of one-time codes in a request.
#[derive(Clone, Copy)]
struct RequestedOptions {
    algorithm: Option<TotpAlgorithm>,
    digits: Option<u32>,
    period: Option<u32>,
}

/// The credential service. Clones share its state.
#[derive(Clone)]
pub struct StoredCredentials {
    store: Store,
    secrets: Secrets,
    clock: fn() -> DateTime<Utc>,
}

impl StoredCredentials {
    #[must_use]
    pub fn new(store: Store, secrets: Secrets) -> StoredCredentials {
        StoredCredentials {
            store,
            secrets,
            clock: Utc::now,
        }
    }

    /// Creates a credential.
    pub async fn create(
        &self,
        project: &ProjectId,
        request: CreateCredential,
    ) -> Result<SavedCredential, CredentialError> {
        let requested = RequestedOptions::new(
            request.totp_algorithm,
            request.totp_digits,
            request.totp_period,
        );
        let secret = request.totp_secret.and_then(TotpSecretChange::secret);
        let totp = match &secret {
            Some(secret) => Some(requested.of_new_secret(secret)),
            None => {
                requested.reject_without_secret()?;
                None
            }
        };
        let now = (self.clock)();
        let mut row = CredentialRow {
            id: CredentialId::generate(),
            project_id: project.clone(),
            name: request.name.as_str().to_owned(),
            domain: request.domain.as_str().to_owned(),
            sso_provider: match request.sso_provider {
                SsoProviderChange::Set(provider) => Some(provider),
                SsoProviderChange::Unchanged | SsoProviderChange::Remove => None,
            },
            totp,
            revision: 1,
            created_at: now,
            updated_at: now,
            fields: Vec::new(),
        };
        let secret = secret.map(|secret| secret.bytes);
        let fields = self.seal(&row, 1, &request.values, secret.as_ref());
        let fields = fields.await?;
        row.fields = fields.iter().map(|field| field.field.clone()).collect();
        row.fields.sort();
        self.store.create_credential(&row, fields).await?;
        let code = secret.zip(row.totp);
        Ok(SavedCredential {
            row,
            code: code.map(|(secret, options)| totp::code_at(&secret, options, now)),
        })
    }

    /// Finds a credential by its id or its name.
    pub async fn get(
        &self,
        project: &ProjectId,
        id_or_name: &str,
    ) -> Result<CredentialRow, CredentialError> {
        let found = match id_or_name.parse() {
            Ok(id) => self.store.find_credential(project, &id).await?,
            Err(_) => match CredentialName::parse(id_or_name.to_owned()) {
                Ok(name) => {
                    let store = &self.store;
                    store.find_credential_named(project, name.as_str()).await?
                }
                Err(_) => None,
            },
        };
        found.ok_or(CredentialError::NotFound)
    }

    /// Lists credentials, newest first, with one more than the limit if there are more.
    pub async fn list(
        &self,
        project: &ProjectId,
        listing: &CredentialListing,
    ) -> Result<Vec<CredentialRow>, CredentialError> {
        Ok(self.store.list_credentials(project, listing).await?)
    }

    /// Changes a credential.
    pub async fn update(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        request: UpdateCredential,
    ) -> Result<SavedCredential, CredentialError> {
        let mut row = self.get(project, id_or_name).await?;
        for _ in 0..MAX_UPDATE_ATTEMPTS {
            let change = self.change(&row, &request).await?;
            let Some(change) = change else {
                return Ok(SavedCredential { row, code: None });
            };
            let now = (self.clock)();
            let is_updated = self.store.update_credential(&row, change, now).await?;
            let found = self.store.find_credential(project, &row.id).await?;
            row = found.ok_or(CredentialError::NotFound)?;
            if is_updated {
                let code = match (&request.totp_secret, row.totp) {
                    (Some(TotpSecretChange::Set(secret)), Some(options)) => {
                        Some(totp::code_at(&secret.bytes, options, now))
                    }
                    _ => None,
                };
                return Ok(SavedCredential { row, code });
            }
        }
        Err(CredentialError::Contended)
    }

    /// Returns what a request changes of a credential, or `None` if that is nothing.
    async fn change(
        &self,
        row: &CredentialRow,
        request: &UpdateCredential,
    ) -> Result<Option<CredentialChange>, CredentialError> {
        let requested = RequestedOptions::new(
            request.totp_algorithm,
            request.totp_digits,
            request.totp_period,
        );
        let totp = requested.change(request.totp_secret.as_ref(), row.totp)?;
        let secret = match &request.totp_secret {
            Some(TotpSecretChange::Set(secret)) => Some(&secret.bytes),
            _ => None,
        };
        let mut removed: Vec<String> = request
            .remove_value_keys
            .0
            .iter()
            .map(|name| value_field(name))
            .collect();
        removed.retain(|field| row.fields.contains(field));
        check_value_count(row, &removed, &request.values)?;
        if totp == Some(None) {
            removed.push(TOTP_FIELD.to_owned());
        }
        let sso_provider = match &request.sso_provider {
            SsoProviderChange::Unchanged => None,
            SsoProviderChange::Remove => row.sso_provider.as_ref().map(|_| None),
            SsoProviderChange::Set(provider) => Some(Some(provider.clone())),
        };
        let is_empty = request.name.is_none()
            && sso_provider.is_none()
            && totp.is_none()
            && removed.is_empty()
            && request.values.0.is_empty();
        if is_empty {
            return Ok(None);
        }
        let written = self.seal(row, row.revision + 1, &request.values, secret);
        Ok(Some(CredentialChange {
            name: request.name.as_ref().map(|name| name.as_str().to_owned()),
            sso_provider,
            totp,
            has_new_totp_secret: self.is_other_secret(row, secret).await?,
            removed_fields: removed,
            written_fields: written.await?,
        }))
    }

    /// Returns whether a secret has other codes than the one of a credential, whose used codes must
    /// not become usable again.
    async fn is_other_secret(
        &self,
        row: &CredentialRow,
        secret: Option<&SecretSlice<u8>>,
    ) -> Result<bool, CredentialError> {
        let Some(secret) = secret else {
            return Ok(false);
        };
        if row.totp.is_none() {
            return Ok(true);
        }
        let current = match self.totp_secret(row).await {
            Ok(current) => current,
            // It was removed meanwhile, which the revision shows when the row is written; or it is
            // damaged, and replaced.
            Err(
                CredentialError::TotpNotConfigured | CredentialError::Secret(SecretError::Damaged),
            ) => return Ok(true),
            Err(error) => return Err(error),
        };
        let is_same = current.expose_secret().ct_eq(secret.expose_secret());
        Ok(!bool::from(is_same))
    }

    /// Deletes a credential with its secrets.
    pub async fn delete(
        &self,
        project: &ProjectId,
        id_or_name: &str,
    ) -> Result<(), CredentialError> {
        let row = self.get(project, id_or_name).await?;
        match self.store.delete_credential(project, &row.id).await? {
            true => Ok(()),
            false => Err(CredentialError::NotFound),
        }
    }

    /// Returns the current one-time code of a credential.
    pub async fn totp_code(
        &self,
        project: &ProjectId,
        id_or_name: &str,
    ) -> Result<OneTimeCode, CredentialError> {
        let row = self.get(project, id_or_name).await?;
        let options = row.totp.ok_or(CredentialError::TotpNotConfigured)?;
        let secret = self.totp_secret(&row).await?;
        Ok(totp::code_at(&secret, options, (self.clock)()))
    }

    /// Returns up to `limit` credentials of a project for a domain.
    pub(super) async fn of_domain(
        &self,
        project: &ProjectId,
        domain: &str,
        limit: u64,
    ) -> Result<Vec<CredentialRow>, CredentialError> {
        let found = self.store.credentials_of_domain(project, domain, limit);
        Ok(found.await?)
    }

    /// Returns up to `limit` credentials of a project for domains below one.
    pub(super) async fn below(
        &self,
        project: &ProjectId,
        domain: &str,
        limit: u64,
    ) -> Result<Vec<CredentialRow>, CredentialError> {
        let found = self.store.credentials_below(project, domain, limit);
        Ok(found.await?)
    }

    /// Returns the credentials of a project that have one of the names.
    pub(super) async fn named(
        &self,
        project: &ProjectId,
        names: &[&str],
    ) -> Result<Vec<CredentialRow>, CredentialError> {
        Ok(self.store.credentials_named(project, names).await?)
    }

    async fn totp_secret(&self, row: &CredentialRow) -> Result<SecretSlice<u8>, CredentialError> {
        let fields = self.open(row, |field| field == TOTP_FIELD).await?;
        let secret = fields.into_iter().next();
        let (_, secret) = secret.ok_or(CredentialError::TotpNotConfigured)?;
        Ok(secret)
    }

    /// Opens the values of a credential.
    pub async fn values(
        &self,
        row: &CredentialRow,
    ) -> Result<Vec<(String, SecretString)>, CredentialError> {
        let fields = self.open(row, |field| value_name(field).is_some()).await?;
        let values = fields.into_iter().map(|(field, value)| {
            let name = value_name(&field).unwrap_or_default().to_owned();
            Ok((name, secrets::to_text(&value)?))
        });
        values.collect()
    }
}

/// Returns the names of the values of a credential, sorted.
#[must_use]
pub fn value_keys(row: &CredentialRow) -> Vec<String> {
    let names = row.fields.iter().filter_map(|field| value_name(field));
    names.map(str::to_owned).collect()
}

fn check_value_count(
    row: &CredentialRow,
    removed: &[String],
    added: &CredentialValues,
) -> Result<(), CredentialError> {
    let remaining = row.fields.iter().filter(|field| {
        value_name(field).is_some_and(|name| !added.0.contains_key(name))
            && !removed.contains(field)
    });
    match remaining.count() + added.0.len() > CredentialValues::MAX {
        true => Err(CredentialError::TooManyValues),
        false => Ok(()),
    }
}

impl RequestedOptions {
    fn new(
        algorithm: Option<TotpAlgorithm>,
        digits: Option<TotpDigits>,
        period: Option<TotpPeriod>,
    ) -> RequestedOptions {
        RequestedOptions {
            algorithm,
            digits: digits.map(TotpDigits::get),
            period: period.map(TotpPeriod::get),
        }
    }

    fn is_empty(self) -> bool {
        self.algorithm.is_none() && self.digits.is_none() && self.period.is_none()
    }

    fn reject_without_secret(self) -> Result<(), CredentialError> {
        let given = [
            ("totp_algorithm", self.algorithm.is_some()),
            ("totp_digits", self.digits.is_some()),
            ("totp_period", self.period.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(CredentialError::OptionWithoutSecret(name)),
            None => Ok(()),
        }
    }

    /// Returns the options of a new secret. Those of the request come before those of its URI.
    fn of_new_secret(self, secret: &TotpSecret) -> TotpOptions {
        self.over(totp::options_of(secret))
    }

    /// Returns the new options of a credential, or `None` if they do not change.
    fn change(
        self,
        secret: Option<&TotpSecretChange>,
        current: Option<TotpOptions>,
    ) -> Result<Option<Option<TotpOptions>>, CredentialError> {
        match (secret, current) {
            (Some(TotpSecretChange::Set(secret)), _) => Ok(Some(Some(self.of_new_secret(secret)))),
            (None, Some(_)) if self.is_empty() => Ok(None),
            (None, Some(current)) => Ok(Some(Some(self.over(current)))),
            (Some(TotpSecretChange::Remove), _) | (None, None) => {
                self.reject_without_secret()?;
                Ok(current.map(|_| None))
            }
        }
    }

    fn over(self, options: TotpOptions) -> TotpOptions {
        TotpOptions {
            algorithm: self.algorithm.unwrap_or(options.algorithm),
            digits: self.digits.unwrap_or(options.digits),
            period: self.period.unwrap_or(options.period),
        }
    }
}
