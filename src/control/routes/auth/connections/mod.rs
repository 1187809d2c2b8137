//! `/auth/connections`, and the conversion of auth connections and their errors to API types.

use std::time::Duration;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    api::auth_connections::ConnectionCredentialFields,
    control::{
        Control,
        auth_connections::{AuthConnectionError, flow::AnswerRefusal, logins::LoginError},
        credentials::CredentialError,
        routes::PROJECT_ARCHIVED,
        store::CredentialReference,
    },
    http::ApiError,
};

mod cancel;
mod collection;
mod events;
mod exchange;
mod item;
mod login;
mod representation;
mod submit;
mod timeline;

use representation::ConnectionContext;

const TAG: &str = crate::api::groups::AUTH_CONNECTIONS;
/// The code of a 409 because the login requests nothing.
const NOT_AWAITING: &str = "not_awaiting_input";
/// `Retry-After` of an attempt to exchange a code beyond the limit.
const ATTEMPT_RETRY_DELAY: Duration = Duration::from_secs(6);
/// `Retry-After` while other requests change a connection.
const RETRY_DELAY: Duration = Duration::from_secs(2);

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(collection::create, collection::list))
        .routes(routes!(item::get, item::update, item::delete))
        .routes(routes!(login::begin))
        .routes(routes!(submit::submit))
        .routes(routes!(cancel::cancel))
        .routes(routes!(events::follow))
        .routes(routes!(timeline::list))
}

/// Returns the routes that need no credential.
pub(crate) fn open_router() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(exchange::exchange))
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

impl From<LoginError> for ApiError {
    fn from(error: LoginError) -> Self {
        let message = error.to_string();
        match error {
            LoginError::InProgress => ApiError::conflict(message).code("flow_in_progress"),
            LoginError::ConnectionNotFound => ApiError::not_found(message),
            LoginError::NoneInProgress => {
                ApiError::conflict(message).code(NOT_AWAITING).permanent()
            }
            LoginError::NoLogin => ApiError::conflict(message).code("no_login").permanent(),
            LoginError::TooManyAttempts => ApiError::limit_exceeded(message, ATTEMPT_RETRY_DELAY),
            LoginError::InvalidCode => ApiError::unauthorized(message).code("invalid_handoff_code"),
            LoginError::Refused(refusal) => refused(&refusal),
            LoginError::Contended => ApiError::unavailable(message, RETRY_DELAY),
            LoginError::Secret(cause) => CredentialError::from(cause).into(),
            LoginError::Store(cause) => cause.into(),
        }
    }
}

fn refused(refusal: &AnswerRefusal) -> ApiError {
    let message = refusal.to_string();
    match refusal {
        AnswerRefusal::Ended => ApiError::conflict(message).code(NOT_AWAITING).permanent(),
        AnswerRefusal::NotAwaiting => ApiError::conflict(message).code(NOT_AWAITING),
        AnswerRefusal::StaleInteraction => ApiError::conflict(message)
            .code("stale_interaction")
            .permanent(),
        AnswerRefusal::NoValue
        | AnswerRefusal::UnknownField(_)
        | AnswerRefusal::MissingField(_) => ApiError::bad_field("fields", message),
        AnswerRefusal::UnknownChoice => ApiError::bad_request(message),
    }
}
