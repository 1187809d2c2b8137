//! `/browsers/{id}/profiles`.

use axum::extract::State;

use crate::{
    api::{
        ErrorBody, groups,
        profiles::{ProfileReceipt, SaveProfile},
    },
    control::{
        browsers::Browsers,
        profiles::BrowserSave,
        routes::{auditing::Created, authentication::Principal},
    },
    http::{ApiResult, Json, Path},
};

/// Save a browser to a profile
///
/// Saves the user data of a running browser as a new version of a profile, named by `profile_id` or
/// by `name`. With a name that no profile has, a profile is created. Chromium keeps running, and
/// its clients stay connected; it stands still while its user data is copied. Responds once the
/// stored archive was read again and inspected. Requires an API key.
#[utoipa::path(
    post,
    path = "/browsers/{id}/profiles",
    operation_id = "save_browser_profile",
    tag = groups::PROFILES,
    params(("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = SaveProfile, example = json!({"name": "shop-login"})),
    responses(
        (status = 201, body = ProfileReceipt),
        (status = 408, body = ErrorBody, description = "The archive took too long"),
        (status = 409, body = ErrorBody, description = "Another browser is going to save the profile, or it is being saved (`profile_in_use`)"),
        (status = 413, body = ErrorBody, description = "The archive is too large"),
        (status = 502, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is restarting, or the storage of profiles is not available"),
    )
)]
pub(crate) async fn save(
    State(browsers): State<Browsers>,
    principal: Principal,
    Path(id): Path<String>,
    Json(request): Json<SaveProfile>,
) -> ApiResult<Created<ProfileReceipt>> {
    principal.api_key()?;
    let (project, kind) = (&principal.project, BrowserSave::Live);
    let saved = browsers.save_profile(project, &id, &request.profile, kind);
    let receipt = saved.await?;
    Ok(Created {
        id: receipt.profile_id.to_string(),
        body: receipt,
    })
}
