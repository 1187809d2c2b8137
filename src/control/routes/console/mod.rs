//! The web console: the page `/`, and its modules and style below `/console`.
//!
//! The page is open, because it holds nothing that the source code does not. It asks for an API key
//! and uses the public API with it. The key stays in the session storage of the tab.

use axum::response::Response;
use http::{HeaderMap, HeaderValue};
use utoipa_axum::{router::OpenApiRouter, routes};

use self::assets::{AssetName, INDEX};
use crate::{
    api::{Binary, ErrorBody, groups::SERVER},
    control::Control,
    http::{ApiError, ApiResult, Path},
};

mod assets;

/// Allows modules, styles and requests of this server only, and thumbnails that the page draws.
/// Trusted Types keep values of the API from being parsed as HTML or as a script.
static CONTENT_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);

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
    INDEX.respond(&request, &CONTENT_POLICY)
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
    Ok(asset.respond(&request, &CONTENT_POLICY))
}
