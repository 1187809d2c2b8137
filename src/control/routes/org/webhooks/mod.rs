//! `/org/webhooks`. Webhooks receive events of all projects, so that the routes need a key that is
//! valid for all.

use std::time::Duration;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    api::webhooks::{Webhook, WebhookDelivery},
    control::{
        Control,
        routes::authentication::Principal,
        store::{StoreError, WebhookDeliveryRow, WebhookRow},
        webhooks::service::WebhookError,
    },
    http::{ApiError, ApiResult},
};

mod collection;
mod deliveries;
mod item;
mod test;

const TAG: &str = crate::api::groups::WEBHOOKS;
/// `Retry-After` while other requests change a webhook, or test webhooks.
const RETRY_DELAY: Duration = Duration::from_secs(5);

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(collection::create, collection::list))
        .routes(routes!(item::get, item::update, item::delete))
        .routes(routes!(test::test))
        .routes(routes!(deliveries::list))
}

/// Rejects session tokens, and keys that are bound to a project.
fn check_access(principal: &Principal) -> ApiResult<()> {
    principal.organization_key("webhooks receive events of")?;
    Ok(())
}

fn to_webhook(row: WebhookRow) -> Webhook {
    Webhook {
        id: row.id,
        url: row.url,
        events: row.events,
        enabled: row.disabled_reason.is_none(),
        disabled_reason: row.disabled_reason,
        created_at: row.created_at.into(),
        updated_at: row.updated_at.into(),
    }
}

fn to_delivery(row: WebhookDeliveryRow) -> Result<WebhookDelivery, StoreError> {
    let payload = serde_json::from_str(&row.payload);
    Ok(WebhookDelivery {
        payload: payload.map_err(|error| StoreError::Corrupt {
            field: "payload",
            value: error.to_string(),
        })?,
        id: row.id,
        status: row.status,
        attempts: row.attempts,
        created_at: row.created_at.into(),
        last_attempt_at: row.last_attempt_at.map(Into::into),
        next_attempt_at: row.next_attempt_at.map(Into::into),
        duration_ms: row.duration_ms,
        response_status: row.response_status,
        response_body: row.response_body,
        error: row.error,
    })
}

impl From<WebhookError> for ApiError {
    fn from(error: WebhookError) -> Self {
        let message = error.to_string();
        match error {
            WebhookError::NotFound => ApiError::not_found(message),
            WebhookError::TooMany(_) => ApiError::conflict(message).permanent(),
            WebhookError::HttpsRequired => ApiError::bad_field("url", "must be an https URL"),
            WebhookError::SecretRequired => {
                ApiError::bad_field("secret", "is required with another scheme, host or port")
            }
            WebhookError::Contended | WebhookError::Busy => {
                ApiError::unavailable(message, RETRY_DELAY)
            }
            WebhookError::Secret(cause) => cause.into(),
            WebhookError::Store(cause) => cause.into(),
        }
    }
}
