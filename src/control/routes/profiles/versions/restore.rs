//! `/profiles/{id_or_name}/versions/{version}/restore`.

use axum::extract::State;

use crate::{
    api::{ErrorBody, profiles::ProfileReceipt},
    control::{
        profiles::Profiles,
        routes::{
            auditing::Created,
            authentication::Principal,
            profiles::{TAG, to_receipt},
        },
    },
    http::{ApiResult, Path},
};

/// Restore a version of a profile
///
/// Publishes a new version with the content of an earlier one.
#[utoipa::path(
    post,
    path = "/profiles/{id_or_name}/versions/{version}/restore",
    operation_id = "restore_profile_version",
    tag = TAG,
    params(
        ("id_or_name" = String, Path, description = "The id or name of the profile", example = "shop-login"),
        ("version" = u64, Path, description = "The number of the version", example = 3),
    ),
    responses(
        (status = 201, body = ProfileReceipt),
        (status = 409, body = ErrorBody, description = "A browser is going to save the profile, or it is being saved (`profile_in_use`)"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn restore(
    State(profiles): State<Profiles>,
    principal: Principal,
    Path((id_or_name, version)): Path<(String, u64)>,
) -> ApiResult<Created<ProfileReceipt>> {
    let restored = profiles.restore(&principal.project, &id_or_name, version);
    let restored = restored.await?;
    Ok(Created {
        id: restored.profile_id.to_string(),
        body: to_receipt(restored),
    })
}
