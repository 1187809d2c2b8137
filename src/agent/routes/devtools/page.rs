//! `GET /devtools/page/{target_id}`.

use axum::{
    extract::{Request, State},
    response::Response,
};

use super::is_id;
use crate::{
    agent::routes::cdp::{CdpConnector, TAG},
    api::ErrorBody,
    http::{ApiError, ApiResult, Path},
    system::cdp::multiplexer::Endpoint,
};

/// Connect to a tab over DevTools
///
/// A WebSocket that speaks the Chrome DevTools Protocol with one tab or other target. When the tab
/// closes, the connection ends with close code 1000.
#[utoipa::path(
    get,
    path = "/devtools/page/{target_id}",
    operation_id = "connect_tab_devtools",
    tag = TAG,
    params(("target_id" = String, Path, description = "The id in `/json/list`", example = "6D1C8A52B0F94E7D9A3C51F6E2B7D480")),
    responses(
        (status = 101, description = "The DevTools protocol, unchanged"),
        (status = 400, body = ErrorBody, description = "The request is not a WebSocket handshake"),
        (status = 404, body = ErrorBody, description = "Chromium has no target with that id"),
        (status = 429, body = ErrorBody, description = "The limit of DevTools clients is reached"),
        (status = 503, body = ErrorBody, description = "Chromium is not running"),
    )
)]
pub(crate) async fn page(
    State(connector): State<CdpConnector>,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    if !is_id(&id) {
        return Err(ApiError::not_found("Chromium has no target with that id"));
    }
    let endpoint = Endpoint::Target(id);
    connector.connect(request, endpoint, |_| true).await
}
