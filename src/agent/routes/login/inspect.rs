//! `POST /login/inspect`.

use axum::extract::State;

use super::TAG;
use crate::{
    agent::credentials::login::LoginPages,
    api::{
        ErrorBody,
        login_page::{InspectLoginRequest, InspectedPage},
    },
    http::{ApiResult, Json, LargeJson},
};

/// The most bytes of a body, in which each byte of the values can be escaped.
const BODY_LIMIT: usize = 1 << 20;

/// Describe the login page in front
///
/// Waits until the page is loaded and does not change, and returns its fields, its alternatives,
/// its obstacles, and evidence of a login. Scrolls, and changes nothing. No value of a field or a
/// cookie is in the response.
///
/// From the first inspection on, the agent observes the documents that the tab loads, until 15
/// minutes without a request: so inspect a tab before it navigates. Control calls this route;
/// clients do not reach it.
#[utoipa::path(
    post,
    path = "/login/inspect",
    operation_id = "inspect_login_page",
    tag = TAG,
    request_body(content = InspectLoginRequest, example = json!({"wait_ms": 3000})),
    responses(
        (status = 200, body = InspectedPage),
        (status = 400, body = ErrorBody, description = "A field is out of bounds"),
        (status = 409, body = ErrorBody, description = "`page_changed`: the page navigated again and again"),
        (status = 503, body = ErrorBody, description = "The browser is down, or has no tab"),
        (status = 504, body = ErrorBody, description = "`timeout`: the page did not respond in time"),
    )
)]
pub(crate) async fn inspect(
    State(pages): State<LoginPages>,
    LargeJson(request): LargeJson<InspectLoginRequest, BODY_LIMIT>,
) -> ApiResult<Json<InspectedPage>> {
    pages.inspect(&request).await.map(Json).map_err(Into::into)
}
