//! `/org/credential_providers/{id}`.

use axum::extract::State;
use http::StatusCode;

use super::{TAG, check_access, to_provider};
use crate::{
    api::{
        ErrorBody,
        credential_providers::{CredentialProvider, UpdateCredentialProvider},
    },
    control::{providers::service::Providers, routes::authentication::Principal},
    http::{ApiResult, Json, Path},
};

/// Get a credential provider
///
/// Requires a key that is not bound to a project.
#[utoipa::path(
    get,
    path = "/org/credential_providers/{id}",
    operation_id = "get_credential_provider",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the provider", example = "prov_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = CredentialProvider),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
    )
)]
pub(crate) async fn get(
    State(providers): State<Providers>,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<Json<CredentialProvider>> {
    check_access(&principal)?;
    Ok(Json(to_provider(providers.get(&id).await?)))
}

/// Update a credential provider
///
/// Requires a key that is not bound to a project.
#[utoipa::path(
    patch,
    path = "/org/credential_providers/{id}",
    operation_id = "update_credential_provider",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the provider", example = "prov_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = UpdateCredentialProvider, example = json!({"enabled": false, "priority": 10})),
    responses(
        (status = 200, body = CredentialProvider),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
        (status = 409, body = ErrorBody, description = "The name is taken"),
        (status = 503, body = ErrorBody, description = "Other requests change the provider, the disk of the server is full, or a key of its stored secrets is missing"),
    )
)]
pub(crate) async fn update(
    State(providers): State<Providers>,
    principal: Principal,
    Path(id): Path<String>,
    Json(request): Json<UpdateCredentialProvider>,
) -> ApiResult<Json<CredentialProvider>> {
    check_access(&principal)?;
    Ok(Json(to_provider(providers.update(&id, request).await?)))
}

/// Delete a credential provider
///
/// Requires a key that is not bound to a project. Nothing changes at the provider.
#[utoipa::path(
    delete,
    path = "/org/credential_providers/{id}",
    operation_id = "delete_credential_provider",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the provider", example = "prov_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 204, description = "The provider is deleted"),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn delete(
    State(providers): State<Providers>,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    check_access(&principal)?;
    providers.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
