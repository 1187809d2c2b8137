//! `/credentials/{id_or_name}`.

use axum::extract::State;
use http::StatusCode;

use super::{TAG, to_credential, to_saved_credential};
use crate::{
    api::{
        ErrorBody,
        credentials::{Credential, UpdateCredential},
    },
    control::{credentials::StoredCredentials, routes::authentication::Principal},
    http::{ApiResult, Json, Path},
};

/// Get a credential
#[utoipa::path(
    get,
    path = "/credentials/{id_or_name}",
    operation_id = "get_credential",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the credential", example = "shop-admin")),
    responses((status = 200, body = Credential))
)]
pub(crate) async fn get(
    State(credentials): State<StoredCredentials>,
    principal: Principal,
    Path(id_or_name): Path<String>,
) -> ApiResult<Json<Credential>> {
    let row = credentials.get(&principal.project, &id_or_name).await?;
    Ok(Json(to_credential(row)))
}

/// Update a credential
///
/// Values are merged into the existing ones, after those of `remove_value_keys` were removed. If
/// the secret of one-time codes is set, the response has the current code, to confirm an enrolment.
#[utoipa::path(
    patch,
    path = "/credentials/{id_or_name}",
    operation_id = "update_credential",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the credential", example = "shop-admin")),
    request_body(content = UpdateCredential, example = json!({
        "values": {"password": "another password"},
        "remove_value_keys": ["pin"],
    })),
    responses(
        (status = 200, body = Credential),
        (status = 409, body = ErrorBody, description = "The name is taken"),
        (status = 503, body = ErrorBody, description = "Other requests change the credential, the disk of the server is full, or a key of its stored secrets is missing"),
    )
)]
pub(crate) async fn update(
    State(credentials): State<StoredCredentials>,
    principal: Principal,
    Path(id_or_name): Path<String>,
    Json(request): Json<UpdateCredential>,
) -> ApiResult<Json<Credential>> {
    let updated = credentials.update(&principal.project, &id_or_name, request);
    Ok(Json(to_saved_credential(updated.await?)))
}

/// Delete a credential
///
/// Deletes the credential with its secrets.
#[utoipa::path(
    delete,
    path = "/credentials/{id_or_name}",
    operation_id = "delete_credential",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the credential", example = "shop-admin")),
    responses(
        (status = 204, description = "The credential is deleted"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn delete(
    State(credentials): State<StoredCredentials>,
    principal: Principal,
    Path(id_or_name): Path<String>,
) -> ApiResult<StatusCode> {
    credentials.delete(&principal.project, &id_or_name).await?;
    Ok(StatusCode::NO_CONTENT)
}
