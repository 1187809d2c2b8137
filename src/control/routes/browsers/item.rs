//! `/browsers/{id}`.

use axum::extract::State;
use http::StatusCode;

use super::{BrowserContext, TAG};
use crate::{
    api::{
        ErrorBody,
        browsers::{Browser, GetBrowser, UpdateBrowser},
    },
    control::{
        browsers::{BrowserChange, Browsers},
        routes::authentication::Principal,
    },
    http::{ApiResult, Json, Path, Query},
};

/// Get a browser
///
/// Finds the browser by its id, or by its name within the project.
#[utoipa::path(
    get,
    path = "/browsers/{id}",
    operation_id = "get_browser",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6"), GetBrowser),
    responses((status = 200, body = Browser))
)]
pub(crate) async fn get(
    State(browsers): State<Browsers>,
    principal: Principal,
    context: BrowserContext,
    Path(id): Path<String>,
    Query(request): Query<GetBrowser>,
) -> ApiResult<Json<Browser>> {
    let filter = request.status.into();
    let row = browsers.get(&principal.project, &id, filter).await?;
    Ok(Json(context.to_browser(row, &principal)))
}

/// Update a browser
///
/// Changes an active browser. Fields that are absent or null stay unchanged. Updates of one browser
/// run one after the other; one that still waits when its client disconnects is dropped.
///
/// A viewport beyond 2560 × 1600 that is also larger than the one that the browser started with
/// restarts Chromium: its tabs are lost.
///
/// A `profile` can be given to a browser that has none: its user data is replaced by that of the
/// profile, as when a browser is created. For this Chromium is restarted, unless the profile has no
/// version yet. From then on it is the browser's, which saves it at its end with `save_changes`.
#[utoipa::path(
    patch,
    path = "/browsers/{id}",
    operation_id = "update_browser",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = UpdateBrowser, example = json!({"name": "checkout-test-2", "tags": {"team": "qa", "run": "42"}})),
    responses(
        (status = 200, body = Browser),
        (status = 404, body = ErrorBody, description = "The browser or the profile does not exist"),
        (status = 409, body = ErrorBody, description = "The name is taken, the browser has a profile already, or one is being loaded into it, something else saves the profile (`profile_in_use`), or the profile is of a newer major version of Chromium (`newer_chromium`)"),
        (status = 429, body = ErrorBody, description = "Too many updates of the browser are waiting"),
        (status = 502, body = ErrorBody, description = "The browser rejected the change"),
        (status = 503, body = ErrorBody, description = "The browser does not respond; the request may be repeated"),
    )
)]
pub(crate) async fn update(
    State(browsers): State<Browsers>,
    principal: Principal,
    context: BrowserContext,
    Path(id): Path<String>,
    Json(request): Json<UpdateBrowser>,
) -> ApiResult<Json<Browser>> {
    let change = BrowserChange {
        name: request.name.map(Into::into),
        tags: request.tags.map(|tags| tags.into_inner()),
        viewport: request.viewport,
        start_url: request.start_url.map(Into::into),
        profile: request.profile,
    };
    let row = browsers.update(&principal.project, &id, change).await?;
    Ok(Json(context.to_browser(row, &principal)))
}

/// Delete a browser
///
/// Responds once its processes and files are gone. Its replays remain.
#[utoipa::path(
    delete,
    path = "/browsers/{id}",
    operation_id = "delete_browser",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses((status = 204, description = "The browser is deleted"))
)]
pub(crate) async fn delete(
    State(browsers): State<Browsers>,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    browsers.delete(&principal.project, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
