//! `/org/webhooks/{id}/deliveries`.

use axum::extract::State;

use super::{TAG, check_access, to_delivery};
use crate::{
    api::{
        ErrorBody,
        paging::Page,
        webhooks::{ListWebhookDeliveries, WebhookDelivery},
    },
    control::{
        routes::{authentication::Principal, paged::Paged},
        store::WebhookDeliveryListing,
        webhooks::Webhooks,
    },
    http::{ApiResult, Path, Query},
};

/// List the deliveries of a webhook
///
/// Newest first, with the last attempt of each. Deliveries that have ended are listed for up to 30
/// days. Requires a key that is not bound to a project.
#[utoipa::path(
    get,
    path = "/org/webhooks/{id}/deliveries",
    operation_id = "list_webhook_deliveries",
    tag = TAG,
    params(
        ("id" = String, Path, description = "The id of the webhook", example = "hook_01kgc3v7e8r9t0w1x2y3z4a5b6"),
        ListWebhookDeliveries,
        Page,
    ),
    responses(
        (status = 200, body = Vec<WebhookDelivery>, headers(
            ("X-Has-More" = bool, description = "Whether there are more entries"),
            ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
        )),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
    )
)]
pub(crate) async fn list(
    State(webhooks): State<Webhooks>,
    principal: Principal,
    Path(id): Path<String>,
    Query(request): Query<ListWebhookDeliveries>,
) -> ApiResult<Paged<WebhookDelivery>> {
    check_access(&principal)?;
    let page = request.page();
    let listing = WebhookDeliveryListing {
        status: request.status,
        offset: page.offset.get().into(),
        limit: page.limit.get().into(),
    };
    let rows = webhooks.deliveries(&id, listing).await?;
    let deliveries: Result<Vec<WebhookDelivery>, _> = rows.into_iter().map(to_delivery).collect();
    Ok(Paged::new(page, deliveries?, |delivery| delivery))
}
