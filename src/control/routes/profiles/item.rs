//! `/profiles/{id_or_name}`.

use axum::extract::State;
use http::StatusCode;

use super::{TAG, to_profile};
use crate::{
    api::{
        ErrorBody,
        profiles::{Profile, UpdateProfile},
    },
    control::{profiles::Profiles, routes::authentication::Principal},
    http::{ApiResult, Json, Path},
};

/// Get a profile
#[utoipa::path(
    get,
    path = "/profiles/{id_or_name}",
    operation_id = "get_profile",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the profile", example = "shop-login")),
    responses((status = 200, body = Profile))
)]
pub(crate) async fn get(
    State(profiles): State<Profiles>,
    principal: Principal,
    Path(id_or_name): Path<String>,
) -> ApiResult<Json<Profile>> {
    let row = profiles.get(&principal.project, &id_or_name).await?;
    Ok(Json(to_profile(row)))
}

/// Update a profile
///
/// Changes the name, also in the auth connections that log the profile in.
#[utoipa::path(
    patch,
    path = "/profiles/{id_or_name}",
    operation_id = "update_profile",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the profile", example = "shop-login")),
    request_body(content = UpdateProfile, example = json!({"name": "shop-admin"})),
    responses(
        (status = 200, body = Profile),
        (status = 409, body = ErrorBody, description = "The name is taken, or an auth connection would have the domain and the profile of another one"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn update(
    State(profiles): State<Profiles>,
    principal: Principal,
    Path(id_or_name): Path<String>,
    Json(request): Json<UpdateProfile>,
) -> ApiResult<Json<Profile>> {
    let renamed = profiles.rename(&principal.project, &id_or_name, request.name.as_ref());
    Ok(Json(to_profile(renamed.await?)))
}

/// Delete a profile
///
/// Deletes the profile with all its versions.
#[utoipa::path(
    delete,
    path = "/profiles/{id_or_name}",
    operation_id = "delete_profile",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the profile", example = "shop-login")),
    responses(
        (status = 204, description = "The profile is deleted"),
        (status = 409, body = ErrorBody, description = "A browser, a pool or an auth connection has the profile, or it is being saved (`profile_in_use`)"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn delete(
    State(profiles): State<Profiles>,
    principal: Principal,
    Path(id_or_name): Path<String>,
) -> ApiResult<StatusCode> {
    profiles.delete(&principal.project, &id_or_name).await?;
    Ok(StatusCode::NO_CONTENT)
}
