//! `/profiles/{id_or_name}/upload`.

use axum::extract::State;
use futures::TryStreamExt;

use super::TAG;
use crate::{
    api::{Binary, ErrorBody, profiles::ProfileReceipt},
    control::{
        hosts::Hosts,
        profiles::{ArchiveSourceError, Profiles},
        routes::authentication::Principal,
    },
    http::{ApiResult, BodyError, Json, Path, RawBody},
};

/// Upload a profile
///
/// The body is an archive as `GET /profiles/{id_or_name}/download` returns it. It becomes the new
/// current version once it was stored, read again and inspected; an archive that cannot be used
/// changes nothing.
#[utoipa::path(
    put,
    path = "/profiles/{id_or_name}/upload",
    operation_id = "upload_profile",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the profile", example = "shop-login")),
    request_body(content = inline(Binary), content_type = "application/octet-stream", description = "A tar archive, compressed with zstd"),
    responses(
        (status = 200, body = ProfileReceipt),
        (status = 400, body = ErrorBody, description = "The archive is invalid or incomplete"),
        (status = 408, body = ErrorBody, description = "The body made no progress for 30 s, or took too long"),
        (status = 409, body = ErrorBody, description = "A browser is going to save the profile, or it is being saved (`profile_in_use`); or the archive is of a newer major version of Chromium than all browsers that run now (`newer_chromium`)"),
        (status = 413, body = ErrorBody, description = "The archive, or its content, is too large"),
        (status = 503, body = ErrorBody, description = "The storage of profiles is not available, or too many uploads are in progress"),
    )
)]
pub(crate) async fn upload(
    State(profiles): State<Profiles>,
    State(hosts): State<Hosts>,
    principal: Principal,
    Path(id_or_name): Path<String>,
    body: RawBody,
) -> ApiResult<Json<ProfileReceipt>> {
    let profile = profiles.get(&principal.project, &id_or_name).await?;
    profiles.check_length(body.length())?;
    let archive = body.map_err(|error| match error {
        BodyError::Incomplete => ArchiveSourceError::Incomplete,
        BodyError::IdleTimeout(timeout) => ArchiveSourceError::IdleTimeout(timeout),
    });
    let newest_chromium = hosts.newest_chromium().await;
    let uploaded = profiles.upload(&principal.project, &profile.id, archive, newest_chromium);
    Ok(Json(uploaded.await?))
}
