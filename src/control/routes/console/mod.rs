//! The web console: the page `/`, and its modules and style below `/console`.
//!
//! The page is open, because it holds nothing that the source code does not. It asks for an API key
//! and uses the public API with it. The key stays in the session storage of the tab.

use axum::response::{IntoResponse, Response};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, REFERRER_POLICY,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use self::assets::{Asset, AssetName, INDEX};
use crate::{
    api::{Binary, ErrorBody, groups::SERVER},
    control::Control,
    http::{ApiError, ApiResult, Path, is_not_modified},
};

mod assets;

/// Allows modules, styles and requests of this server only, and thumbnails that the page draws.
/// Trusted Types keep values of the API from being parsed as HTML or as a script.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
/// Makes browsers validate their copy before each use: the addresses have no version, and all parts
/// must be of the same build.
const CACHE_POLICY: &str = "no-cache";

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(index))
        .routes(routes!(asset))
}

/// Open the console
///
/// Returns a web page that shows and changes what an API key has access to. It asks for the key.
#[utoipa::path(
    get,
    path = "/",
    operation_id = "open_console",
    tag = SERVER,
    responses(
        (status = 200, body = String, content_type = "text/html", headers(("ETag" = String, description = "An entity tag, for `If-None-Match`"))),
        (status = 304, description = "The client has the current page"),
    )
)]
pub(crate) async fn index(request: HeaderMap) -> Response {
    respond(&INDEX, &request)
}

/// Get a part of the console
///
/// Returns a script, a style sheet or an image of the page `/`.
#[utoipa::path(
    get,
    path = "/console/{name}",
    operation_id = "get_console_asset",
    tag = SERVER,
    params(("name" = inline(AssetName), Path, description = "The name of the file", example = "main.js")),
    responses(
        (status = 200, description = "The file", content(
            (inline(Binary) = "text/javascript"),
            (inline(Binary) = "text/css"),
            (inline(Binary) = "image/svg+xml"),
        ), headers(("ETag" = String, description = "An entity tag, for `If-None-Match`"))),
        (status = 304, description = "The client has the current file"),
        (status = 404, body = ErrorBody, description = "The console has no such file"),
    )
)]
pub(crate) async fn asset(Path(name): Path<String>, request: HeaderMap) -> ApiResult<Response> {
    let asset = assets::find(&name);
    let asset =
        asset.ok_or_else(|| ApiError::not_found("no file of the console with that name"))?;
    Ok(respond(asset, &request))
}

/// Returns the asset, or 304 if the client has it.
fn respond(asset: &Asset, request: &HeaderMap) -> Response {
    let headers = [
        (CACHE_CONTROL, HeaderValue::from_static(CACHE_POLICY)),
        (
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(CONTENT_POLICY),
        ),
        (ETAG, asset.etag.clone()),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    if is_not_modified(request, &asset.etag) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    let content_type = [(CONTENT_TYPE, HeaderValue::from_static(asset.content_type))];
    (headers, content_type, asset.content).into_response()
}
