//! `/org/credential_providers/{id}/items`.

use axum::extract::State;

use super::{TAG, check_access};
use crate::{
    api::{
        ErrorBody,
        credential_providers::{ProviderItem, ProviderItems},
    },
    control::{providers::service::Providers, routes::authentication::Principal},
    http::{ApiResult, Json, Path},
};

/// List the items of a credential provider
///
/// Without their values, which are fetched when a page is filled. The list may be as old as
/// `cache_ttl_seconds`. Requires a key that is not bound to a project.
#[utoipa::path(
    get,
    path = "/org/credential_providers/{id}/items",
    operation_id = "list_credential_provider_items",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the provider", example = "prov_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = ProviderItems),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
        (status = 502, body = ErrorBody, description = "The provider refused the token, responded with something else than items, or has an address that is not allowed"),
        (status = 503, body = ErrorBody, description = "The provider is not available, or a key of the server's stored secrets is missing"),
        (status = 504, body = ErrorBody, description = "The provider did not respond in time"),
    )
)]
pub(crate) async fn list(
    State(providers): State<Providers>,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<Json<ProviderItems>> {
    check_access(&principal)?;
    let items = providers.items(&id).await?;
    let items = items.iter().map(|item| ProviderItem {
        id: item.id.clone(),
        path: item.path.clone(),
        title: item.title.clone(),
        vault_id: item.vault_id.clone(),
        vault_name: item.vault_name.clone(),
        urls: item.urls.clone(),
    });
    Ok(Json(ProviderItems {
        items: items.collect(),
    }))
}
