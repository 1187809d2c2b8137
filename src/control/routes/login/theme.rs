//! The appearance of the login page: `/login/theme`, with its logo.

use axum::{extract::State, response::Response};
use http::{HeaderMap, HeaderValue};

use super::HostedLoginPage;
use crate::{
    api::{Binary, ErrorBody, groups::SERVER, login_theme::LoginTheme},
    http::{ApiError, ApiResult},
};

/// Allows the style of an SVG image. Nothing in it runs, also if it is opened as a page.
static LOGO_POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox");

/// Get the appearance of the hosted login page
///
/// Returns the name and the colors that the operator has set.
#[utoipa::path(
    get,
    path = "/login/theme",
    operation_id = "get_login_page_theme",
    tag = SERVER,
    responses(
        (status = 200, body = LoginTheme, headers(("ETag" = String, description = "An entity tag, for `If-None-Match`"))),
        (status = 304, description = "The client has the current theme"),
    )
)]
pub(crate) async fn theme(State(page): State<HostedLoginPage>, request: HeaderMap) -> Response {
    page.theme.respond(&request, &page.policy)
}

/// Get the logo of the hosted login page
///
/// Returns the image that the operator has set.
#[utoipa::path(
    get,
    path = "/login/theme/logo",
    operation_id = "get_login_page_logo",
    tag = SERVER,
    responses(
        (status = 200, description = "The image", content(
            (inline(Binary) = "image/svg+xml"),
            (inline(Binary) = "image/png"),
        ), headers(("ETag" = String, description = "An entity tag, for `If-None-Match`"))),
        (status = 304, description = "The client has the current image"),
        (status = 404, body = ErrorBody, description = "The login page has no logo"),
    )
)]
pub(crate) async fn logo(
    State(page): State<HostedLoginPage>,
    request: HeaderMap,
) -> ApiResult<Response> {
    let logo = page.logo.as_ref();
    let logo = logo.ok_or_else(|| ApiError::not_found("the login page has no logo"))?;
    Ok(logo.respond(&request, &LOGO_POLICY))
}
