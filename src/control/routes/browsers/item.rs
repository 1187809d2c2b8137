use axum::extract::State;
use http::StatusCode;

use super::{TAG, show};
use crate::{
    api::{
        ErrorBody,
        browsers::{Browser, GetBrowser, UpdateBrowser},
    },
    control::{
        Control,
        browsers::BrowserChange,
        routes::{auth::Principal, public_base_url::PublicBaseUrl},
    },
    http::{ApiResult, Json, Path, Query},
};

/// One browser, by its id or its name.
#[utoipa::path(
    get,
    path = "/browsers/{id}",
    tag = TAG,
    params(("id" = String, Path, description = "Id or name"), GetBrowser),
    responses((status = 200, body = Browser), (status = 404, body = ErrorBody))
)]
pub async fn get(
    State(control): State<Control>,
    principal: Principal,
    base_url: PublicBaseUrl,
    Path(id): Path<String>,
    Query(request): Query<GetBrowser>,
) -> ApiResult<Json<Browser>> {
    let filter = request.status.into();
    let row = control
        .browsers
        .get(&principal.project, &id, filter)
        .await?;
    Ok(Json(show(&control, &base_url, row)))
}

/// Changes a live browser.
///
/// A viewport beyond 2560 × 1600, and beyond the one it began with, restarts it: its tabs are lost.
#[utoipa::path(
    patch,
    path = "/browsers/{id}",
    tag = TAG,
    params(("id" = String, Path, description = "Id or name")),
    request_body = UpdateBrowser,
    responses(
        (status = 200, body = Browser),
        (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "The name is taken"),
        (status = 502, body = ErrorBody, description = "The browser did not do it"),
        (status = 503, body = ErrorBody, description = "The browser does not answer; the request may be repeated"),
    )
)]
pub async fn update(
    State(control): State<Control>,
    principal: Principal,
    base_url: PublicBaseUrl,
    Path(id): Path<String>,
    Json(request): Json<UpdateBrowser>,
) -> ApiResult<Json<Browser>> {
    let change = BrowserChange {
        name: request.name.map(Into::into),
        tags: request.tags.map(|tags| tags.into_inner()),
        viewport: request.viewport,
        start_url: request.start_url.map(Into::into),
    };
    let row = control
        .browsers
        .update(&principal.project, &id, change)
        .await?;
    Ok(Json(show(&control, &base_url, row)))
}

/// Ends a browser; answers once nothing is left of it.
#[utoipa::path(
    delete,
    path = "/browsers/{id}",
    tag = TAG,
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 204), (status = 404, body = ErrorBody))
)]
pub async fn delete(
    State(control): State<Control>,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    control.browsers.delete(&principal.project, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
