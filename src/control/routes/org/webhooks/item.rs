//! `/org/webhooks/{id}`.

use axum::extract::State;
use http::StatusCode;

use super::{TAG, check_access, to_webhook};
use crate::{
    api::{
        ErrorBody,
        webhooks::{UpdateWebhook, Webhook},
    },
    control::{routes::authentication::Principal, webhooks::Webhooks},
    http::{ApiResult, Json, Path},
};

/// Get a webhook
///
/// Requires a key that is not bound to a project.
#[utoipa::path(
    get,
    path = "/org/webhooks/{id}",
    operation_id = "get_webhook",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the webhook", example = "hook_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = Webhook),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
    )
)]
pub(crate) async fn get(
    State(webhooks): State<Webhooks>,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<Json<Webhook>> {
    check_access(&principal)?;
    Ok(Json(to_webhook(webhooks.get(&id).await?)))
}

/// Update a webhook
///
/// Attempts from now on have the new URL and are signed with the new secret, also those at events
/// of before. Requires a key that is not bound to a project.
#[utoipa::path(
    patch,
    path = "/org/webhooks/{id}",
    operation_id = "update_webhook",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the webhook", example = "hook_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = UpdateWebhook, example = json!({"events": ["browser.ended"], "enabled": true})),
    responses(
        (status = 200, body = Webhook),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
        (status = 503, body = ErrorBody, description = "Other requests change the webhook, the disk of the server is full, or a key of its stored secrets is missing"),
    )
)]
pub(crate) async fn update(
    State(webhooks): State<Webhooks>,
    principal: Principal,
    Path(id): Path<String>,
    Json(request): Json<UpdateWebhook>,
) -> ApiResult<Json<Webhook>> {
    check_access(&principal)?;
    Ok(Json(to_webhook(webhooks.update(&id, request).await?)))
}

/// Delete a webhook
///
/// Its deliveries are deleted with it, those that are still to be made included. Requires a key
/// that is not bound to a project.
#[utoipa::path(
    delete,
    path = "/org/webhooks/{id}",
    operation_id = "delete_webhook",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the webhook", example = "hook_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 204, description = "The webhook is deleted"),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn delete(
    State(webhooks): State<Webhooks>,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    check_access(&principal)?;
    webhooks.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
