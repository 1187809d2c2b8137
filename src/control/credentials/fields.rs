//! The sealed fields of a credential: its values, and the secret of its one-time codes.

use secrecy::{ExposeSecret, SecretSlice};

use super::{CredentialError, StoredCredentials};
use crate::{
    api::credentials::CredentialValues,
    control::{
        secrets::{DataKeys, Sealed, SealedPlace, SecretError, SecretScope},
        store::{CredentialRow, SealedField},
    },
};

/// The field of the secret of one-time codes.
pub(super) const TOTP_FIELD: &str = "totp";
/// The start of the fields of values. The name of the value follows.
const VALUE_PREFIX: &str = "value:";

/// Returns the field of a value.
pub(super) fn value_field(name: &str) -> String {
    format!("{VALUE_PREFIX}{name}")
}

/// Returns the name of the value in a field, if it has one.
pub(super) fn value_name(field: &str) -> Option<&str> {
    field.strip_prefix(VALUE_PREFIX)
}

impl StoredCredentials {
    /// Seals values, and the secret of one-time codes, for a revision of a credential.
    pub(super) async fn seal(
        &self,
        row: &CredentialRow,
        revision: u64,
        values: &CredentialValues,
        totp_secret: Option<&SecretSlice<u8>>,
    ) -> Result<Vec<SealedField>, CredentialError> {
        if values.0.is_empty() && totp_secret.is_none() {
            return Ok(Vec::new());
        }
        let keys = self.keys(row).await?;
        let values = values.0.iter();
        let values = values.map(|(name, value)| (value_field(name), value.expose().as_bytes()));
        let secret = totp_secret.map(|secret| (TOTP_FIELD.to_owned(), secret.expose_secret()));
        let fields = values.chain(secret).map(|(field, secret)| {
            let sealed = keys.seal(&place(row, &field, revision), secret)?;
            Ok(SealedField {
                revision,
                key_version: sealed.key_version,
                sealed: sealed.bytes,
                field,
            })
        });
        fields.collect()
    }

    /// Opens the fields of a credential that `selects` accepts.
    pub(super) async fn open(
        &self,
        row: &CredentialRow,
        selects: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, SecretSlice<u8>)>, CredentialError> {
        let stored = self.store.sealed_fields(&row.id).await?;
        let keys = self.keys(row).await?;
        let stored = stored.into_iter().filter(|field| selects(&field.field));
        let opened = stored.map(|stored| {
            let sealed = Sealed {
                key_version: stored.key_version,
                bytes: stored.sealed,
            };
            let secret = keys.open(&place(row, &stored.field, stored.revision), &sealed)?;
            Ok((stored.field, secret))
        });
        opened.collect()
    }

    async fn keys(&self, row: &CredentialRow) -> Result<DataKeys, SecretError> {
        let scope = SecretScope::Project(row.project_id.clone());
        self.secrets.keys_of(&scope).await
    }
}

/// Returns where a field belongs. It opens only for the domain that it was entered for.
fn place<'a>(row: &'a CredentialRow, field: &'a str, revision: u64) -> SealedPlace<'a> {
    SealedPlace {
        record: row.id.as_str(),
        purpose: &row.domain,
        field,
        revision,
    }
}
