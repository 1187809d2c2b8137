//! `POST /login/open`.

use axum::extract::State;
use http::StatusCode;

use super::TAG;
use crate::{
    agent::credentials::login::LoginPages,
    api::{ErrorBody, login_page::OpenLoginRequest},
    http::{ApiResult, Json},
};

/// Open a login page in the tab in front
///
/// Begins the navigation, and observes the documents that the tab loads from then on. An inspection
/// shows where it has led. Control calls this route; clients do not reach it.
#[utoipa::path(
    post,
    path = "/login/open",
    operation_id = "open_login_page",
    tag = TAG,
    request_body(content = OpenLoginRequest, example = json!({"url": "https://example.com/login"})),
    responses(
        (status = 204, description = "The tab waits for the page, or shows it"),
        (status = 400, body = ErrorBody, description = "`url` is not an absolute http or https URL"),
        (status = 503, body = ErrorBody, description = "The browser is down, or has no tab"),
        (status = 504, body = ErrorBody, description = "`timeout`: the page did not respond in time"),
    )
)]
pub(crate) async fn open(
    State(pages): State<LoginPages>,
    Json(request): Json<OpenLoginRequest>,
) -> ApiResult<StatusCode> {
    pages.open(request.url.0.as_str()).await?;
    Ok(StatusCode::NO_CONTENT)
}
