//! `POST /login/act`.

use axum::extract::State;

use super::TAG;
use crate::{
    agent::credentials::login::LoginPages,
    api::{
        ErrorBody,
        login_page::{ActOnLoginRequest, LoginActResponse},
    },
    http::{ApiResult, Json},
};

/// Click an element of the login page in front
///
/// Clicks one element that the last inspection has returned. In the step that clicks, it verifies
/// the origin of the frame and of all frames around it, that the element is the same and shown,
/// and where its link or form leads. Enters no value. Control calls this route; clients do not
/// reach it.
///
/// Nothing was clicked if the response is an error.
#[utoipa::path(
    post,
    path = "/login/act",
    operation_id = "act_on_login_page",
    tag = TAG,
    request_body(content = ActOnLoginRequest, example = json!({
        "ref": "9f1c2ab04d7e6353-4",
        "kind": "click",
        "domain": "example.com",
    })),
    responses(
        (status = 200, body = LoginActResponse),
        (status = 400, body = ErrorBody, description = "A field is missing or out of bounds, or `kind` does not fit the element"),
        (status = 403, body = ErrorBody, description = "`origin_refused`: the page, or the target of the element, is not of the domain or of an allowed one, or has no TLS"),
        (status = 409, body = ErrorBody, description = "`page_changed`: the element is not one of the last inspection, or has changed. `not_clickable`: it is hidden, disabled or covered"),
        (status = 503, body = ErrorBody, description = "The browser is down, or has no tab"),
        (status = 504, body = ErrorBody, description = "`timeout`: the page did not respond in time"),
    )
)]
pub(crate) async fn act(
    State(pages): State<LoginPages>,
    Json(request): Json<ActOnLoginRequest>,
) -> ApiResult<Json<LoginActResponse>> {
    pages.act(&request).await.map(Json).map_err(Into::into)
}
