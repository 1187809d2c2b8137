//! `/auth/connections`, and the conversion of auth connections and their errors to API types.

use std::time::Duration;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    api::{
        auth_connections::{AuthConnection, ConnectionCredentialFields},
        time::Timestamp,
    },
    control::{
        Control,
        auth_connections::{AuthConnectionDetails, AuthConnectionError},
        routes::PROJECT_ARCHIVED,
        store::CredentialReference,
    },
    http::ApiError,
};

mod collection;
mod item;

const TAG: &str = crate::api::groups::AUTH_CONNECTIONS;
/// `Retry-After` while other requests change a connection.
const RETRY_DELAY: Duration = Duration::from_secs(2);

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(collection::create, collection::list))
        .routes(routes!(item::get, item::update, item::delete))
}

fn to_connection(details: AuthConnectionDetails) -> AuthConnection {
    let AuthConnectionDetails { row, reauth_reason } = details;
    let settings = row.settings;
    AuthConnection {
        id: row.id,
        domain: row.domain,
        profile_name: row.profile_name,
        status: row.status,
        record_session: settings.record_session,
        save_credentials: settings.save_credentials,
        allowed_domains: settings.allowed_domains,
        auto_reauth: settings.auto_reauth,
        can_reauth: reauth_reason.permits_reauth(),
        can_reauth_reason: reauth_reason,
        credential: settings.credential.map(to_credential),
        login_url: settings.login_url,
        post_login_url: row.post_login_url,
        health_checks: settings.health_checks,
        health_check_interval: settings.health_check_interval,
        last_auth_at: row.last_auth_at.map(Timestamp::from),
        last_auth_check_at: row.last_auth_check_at.map(Timestamp::from),
        browser_session_id: row.browser_id,
        created_at: row.created_at.into(),
        updated_at: row.updated_at.into(),
    }
}

fn to_credential(reference: CredentialReference) -> ConnectionCredentialFields {
    let none = ConnectionCredentialFields::default();
    match reference {
        CredentialReference::Credential(name) => ConnectionCredentialFields {
            name: Some(name),
            ..none
        },
        CredentialReference::Item { provider, path } => ConnectionCredentialFields {
            provider: Some(provider),
            path: Some(path),
            ..none
        },
        CredentialReference::ProviderMatch { provider } => ConnectionCredentialFields {
            provider: Some(provider),
            auto: Some(true),
            ..none
        },
    }
}

impl From<AuthConnectionError> for ApiError {
    fn from(error: AuthConnectionError) -> Self {
        match error {
            error @ AuthConnectionError::NotFound => ApiError::not_found(error.to_string()),
            error @ AuthConnectionError::AlreadyExists => ApiError::conflict(error.to_string())
                .detail("profile_name", "has a connection with the domain")
                .permanent(),
            error @ AuthConnectionError::ProjectInactive => {
                ApiError::forbidden(error.to_string()).code(PROJECT_ARCHIVED)
            }
            error @ AuthConnectionError::LimitReached(_) => {
                ApiError::conflict(error.to_string()).permanent()
            }
            AuthConnectionError::FixedField(field) => {
                ApiError::bad_field(field, "cannot be changed")
            }
            AuthConnectionError::CredentialRequired => ApiError::bad_field(
                "allowed_domains",
                "needs credential in the same request for a further domain",
            ),
            AuthConnectionError::InvalidLoginUrl(rule) => ApiError::bad_field("login_url", rule),
            error @ (AuthConnectionError::CredentialNotFound
            | AuthConnectionError::CredentialOfOtherDomain { .. }) => {
                ApiError::bad_field("credential.name", error.to_string())
            }
            error @ AuthConnectionError::ProviderNotFound => {
                ApiError::bad_field("credential.provider", error.to_string())
            }
            error @ AuthConnectionError::Contended => {
                ApiError::unavailable(error.to_string(), RETRY_DELAY)
            }
            AuthConnectionError::Credential(cause) => cause.into(),
            AuthConnectionError::Provider(cause) => cause.into(),
            AuthConnectionError::Store(cause) => cause.into(),
        }
    }
}
