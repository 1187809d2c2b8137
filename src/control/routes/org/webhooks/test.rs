//! `/org/webhooks/{id}/test`.

use axum::extract::State;

use super::{TAG, check_access, to_delivery};
use crate::{
    api::{
        ErrorBody,
        webhooks::{WebhookDeliveryStatus, WebhookTest},
    },
    control::{routes::authentication::Principal, webhooks::Webhooks},
    http::{ApiResult, Json, Path},
};

/// Test a webhook
///
/// Sends `webhook.test` once, also if the webhook is disabled, and waits for the response. An
/// endpoint that cannot be reached or does not accept it is a result, not an error. Requires a key
/// that is not bound to a project.
#[utoipa::path(
    post,
    path = "/org/webhooks/{id}/test",
    operation_id = "test_webhook",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the webhook", example = "hook_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = WebhookTest),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
        (status = 503, body = ErrorBody, description = "Too many tests are in progress"),
    )
)]
pub(crate) async fn test(
    State(webhooks): State<Webhooks>,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<Json<WebhookTest>> {
    check_access(&principal)?;
    let delivery = webhooks.test(&id).await?;
    Ok(Json(WebhookTest {
        success: delivery.status == WebhookDeliveryStatus::Delivered,
        delivery: to_delivery(delivery)?,
    }))
}
