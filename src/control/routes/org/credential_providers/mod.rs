//! `/org/credential_providers`. Providers serve all projects, so that the routes need a key that is
//! valid for all.

use std::time::Duration;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    api::credential_providers::CredentialProvider,
    control::{
        Control,
        providers::{ProviderError, service::ProviderServiceError},
        routes::authentication::Principal,
        store::ProviderRow,
    },
    http::{ApiError, ApiResult},
};

mod collection;
mod item;
mod items;
mod test;

const TAG: &str = crate::api::groups::CREDENTIALS;
/// `Retry-After` while a provider is not available.
const PROVIDER_RETRY_DELAY: Duration = Duration::from_secs(5);

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(collection::create, collection::list))
        .routes(routes!(item::get, item::update, item::delete))
        .routes(routes!(test::test))
        .routes(routes!(items::list))
}

/// Rejects session tokens, and keys that are bound to a project.
fn check_access(principal: &Principal) -> ApiResult<()> {
    principal.organization_key("credential providers serve")?;
    Ok(())
}

fn to_provider(row: ProviderRow) -> CredentialProvider {
    CredentialProvider {
        id: row.id,
        provider_type: row.provider_type,
        name: row.name,
        enabled: row.enabled,
        priority: row.priority,
        base_url: row.base_url,
        cache_ttl_seconds: row.cache_ttl_seconds,
        created_at: row.created_at.into(),
        updated_at: row.updated_at.into(),
    }
}

impl From<ProviderServiceError> for ApiError {
    fn from(error: ProviderServiceError) -> Self {
        match error {
            error @ ProviderServiceError::NotFound => ApiError::not_found(error.to_string()),
            error @ ProviderServiceError::NameTaken => ApiError::conflict(error.to_string())
                .detail("name", "is taken")
                .permanent(),
            error @ ProviderServiceError::TooMany(_) => {
                ApiError::conflict(error.to_string()).permanent()
            }
            ProviderServiceError::InvalidToken(rule) => ApiError::bad_field("token", rule),
            ProviderServiceError::InvalidUrl(rule) => ApiError::bad_field("base_url", rule),
            ProviderServiceError::NoDefaultUrl => {
                ApiError::bad_field("base_url", "is required: the server has no default")
            }
            ProviderServiceError::TokenRequired => {
                ApiError::bad_field("token", "is required with another base_url")
            }
            error @ ProviderServiceError::Contended => {
                ApiError::unavailable(error.to_string(), PROVIDER_RETRY_DELAY)
            }
            ProviderServiceError::Provider(error) => provider_error(&error),
            ProviderServiceError::Secret(cause) => cause.into(),
            ProviderServiceError::Store(cause) => cause.into(),
        }
    }
}

/// Returns the response about a provider that has no answer.
pub(in crate::control::routes) fn provider_error(error: &ProviderError) -> ApiError {
    let message = error.to_string();
    match error {
        ProviderError::Timeout => ApiError::timeout(message),
        ProviderError::NotFound | ProviderError::InvalidId => ApiError::not_found(message),
        error if error.is_temporary() => {
            let delay = error.retry_after().unwrap_or(PROVIDER_RETRY_DELAY);
            ApiError::unavailable(message, delay)
        }
        _ => ApiError::bad_gateway(message),
    }
}
