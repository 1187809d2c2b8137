//! `GET /devtools/browser/{browser_id}`.

use axum::{
    extract::{Request, State},
    response::Response,
};

use crate::{
    agent::routes::cdp::{CdpConnector, TAG},
    api::ErrorBody,
    http::{ApiResult, Path},
    system::cdp::multiplexer::Endpoint,
};

/// Connect to the browser over DevTools by its id
///
/// The same as `/cdp`, at the address that `/json/version` lists. The id changes with every start
/// of Chromium.
#[utoipa::path(
    get,
    path = "/devtools/browser/{browser_id}",
    operation_id = "connect_browser_devtools",
    tag = TAG,
    params(("browser_id" = String, Path, description = "The id in `/json/version`", example = "1f2e7c2a-66f0-4f43-9cf6-1f3e0d7e8a11")),
    responses(
        (status = 101, description = "The DevTools protocol, unchanged"),
        (status = 400, body = ErrorBody, description = "The request is not a WebSocket handshake"),
        (status = 404, body = ErrorBody, description = "Chromium has no target with that id"),
        (status = 429, body = ErrorBody, description = "The limit of DevTools clients is reached"),
        (status = 503, body = ErrorBody, description = "Chromium is not running"),
    )
)]
pub(crate) async fn browser(
    State(connector): State<CdpConnector>,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    connector
        .connect(request, Endpoint::Browser, |devtools| {
            devtools.browser_id.to_string() == id
        })
        .await
}
