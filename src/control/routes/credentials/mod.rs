//! `/credentials`, and the conversion of credentials and their errors to API types.

use std::time::Duration;

use secrecy::ExposeSecret;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::PROJECT_ARCHIVED;
use crate::{
    api::credentials::Credential,
    control::{
        Control,
        credentials::{CredentialError, SavedCredential, totp::OneTimeCode, value_keys},
        secrets::SecretError,
        store::CredentialRow,
    },
    http::ApiError,
};

mod collection;
mod item;
mod totp_code;

const TAG: &str = crate::api::groups::CREDENTIALS;
/// `Retry-After` while other requests change a credential, or a key is missing.
const RETRY_DELAY: Duration = Duration::from_secs(2);

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(collection::create, collection::list))
        .routes(routes!(item::get, item::update, item::delete))
        .routes(routes!(totp_code::get))
        .routes(routes!(totp_code::get_by_alias))
}

fn to_credential(row: CredentialRow) -> Credential {
    let value_keys = value_keys(&row);
    Credential {
        id: row.id,
        name: row.name,
        domain: row.domain,
        created_at: row.created_at.into(),
        updated_at: row.updated_at.into(),
        has_values: !value_keys.is_empty(),
        value_keys,
        has_totp_secret: row.totp.is_some(),
        totp_algorithm: row.totp.map(|totp| totp.algorithm),
        totp_digits: row.totp.map(|totp| totp.digits),
        totp_period: row.totp.map(|totp| totp.period),
        sso_provider: row.sso_provider,
        totp_code: None,
        totp_code_expires_at: None,
    }
}

fn to_saved_credential(saved: SavedCredential) -> Credential {
    let mut credential = to_credential(saved.row);
    if let Some(OneTimeCode { code, expires_at }) = saved.code {
        credential.totp_code = Some(code.expose_secret().to_owned());
        credential.totp_code_expires_at = Some(expires_at.into());
    }
    credential
}

impl From<SecretError> for ApiError {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::UnknownKey(cause) => {
                tracing::error!(%cause, "a key of stored secrets is missing");
                let message = "a key of the server's stored secrets is missing";
                ApiError::unavailable(message, RETRY_DELAY)
            }
            SecretError::RetiredKey(key) => {
                tracing::error!(key, "the key that wraps new data keys is retired");
                let message = "a key of the server's stored secrets is retired";
                ApiError::unavailable(message, RETRY_DELAY)
            }
            cause @ (SecretError::Damaged | SecretError::Memory(_)) => ApiError::internal(cause),
            SecretError::Store(cause) => cause.into(),
        }
    }
}

impl From<CredentialError> for ApiError {
    fn from(error: CredentialError) -> Self {
        match error {
            error @ CredentialError::NotFound => ApiError::not_found(error.to_string()),
            error @ CredentialError::NameTaken => ApiError::conflict(error.to_string())
                .detail("name", "is taken")
                .permanent(),
            error @ CredentialError::ProjectInactive => {
                ApiError::forbidden(error.to_string()).code(PROJECT_ARCHIVED)
            }
            error @ CredentialError::TooManyValues => {
                ApiError::bad_field("values", error.to_string())
            }
            CredentialError::OptionWithoutSecret(field) => {
                ApiError::bad_field(field, "needs a totp_secret")
            }
            error @ CredentialError::TotpNotConfigured => {
                ApiError::not_found(error.to_string()).code("totp_not_configured")
            }
            error @ CredentialError::Contended => {
                ApiError::unavailable(error.to_string(), RETRY_DELAY)
            }
            CredentialError::Secret(cause) => cause.into(),
            CredentialError::Store(cause) => cause.into(),
        }
    }
}
