//! `/org/webhooks`.

use axum::extract::State;

use super::{TAG, check_access, to_webhook};
use crate::{
    api::{
        ErrorBody,
        paging::Page,
        webhooks::{CreateWebhook, Webhook, WebhookWithSecret},
    },
    control::{
        routes::{auditing::Created, authentication::Principal, paged::Paged},
        secret_token::reveal,
        webhooks::Webhooks,
    },
    http::{ApiResult, Json, Query},
};

/// Create a webhook
///
/// The response contains the secret, if the request has none. It is not shown again. Nothing is
/// sent; a test shows whether the endpoint accepts events. Requires a key that is not bound to a
/// project.
#[utoipa::path(
    post,
    path = "/org/webhooks",
    operation_id = "create_webhook",
    tag = TAG,
    request_body(content = CreateWebhook, example = json!({
        "url": "https://hooks.example.com/berth",
        "events": ["browser.ended", "replay.stored"],
    })),
    responses(
        (status = 201, body = WebhookWithSecret),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
        (status = 409, body = ErrorBody, description = "The limit of webhooks is reached"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full, or a key of its stored secrets is missing"),
    )
)]
pub(crate) async fn create(
    State(webhooks): State<Webhooks>,
    principal: Principal,
    Json(request): Json<CreateWebhook>,
) -> ApiResult<Created<WebhookWithSecret>> {
    check_access(&principal)?;
    let (row, generated) = webhooks.create(request).await?;
    Ok(Created {
        id: row.id.to_string(),
        body: WebhookWithSecret {
            webhook: to_webhook(row),
            secret: generated.as_ref().map(reveal),
        },
    })
}

/// List webhooks
///
/// Without their secrets, newest first. Requires a key that is not bound to a project.
#[utoipa::path(
    get,
    path = "/org/webhooks",
    operation_id = "list_webhooks",
    tag = TAG,
    params(Page),
    responses(
        (status = 200, body = Vec<Webhook>, headers(
            ("X-Has-More" = bool, description = "Whether there are more entries"),
            ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
        )),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
    )
)]
pub(crate) async fn list(
    State(webhooks): State<Webhooks>,
    principal: Principal,
    Query(page): Query<Page>,
) -> ApiResult<Paged<Webhook>> {
    check_access(&principal)?;
    let (offset, limit) = (page.offset.get().into(), page.limit.get().into());
    let rows = webhooks.list(offset, limit).await?;
    Ok(Paged::new(page, rows, to_webhook))
}
