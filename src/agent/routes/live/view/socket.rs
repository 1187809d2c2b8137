//! `GET /live/view/socket`

use axum::{
    extract::{Request, State},
    response::Response,
};

use crate::{
    agent::{
        live::LiveViews,
        routes::live::{TAG, socket::connect},
    },
    api::ErrorBody,
    http::ApiResult,
    shutdown::Shutdown,
};

/// Connect the read-only live view
///
/// Like `/live/socket`. A client that sends anything but acknowledgements of frames is disconnected
/// with close code 1008.
#[utoipa::path(
    get,
    path = "/live/view/socket",
    operation_id = "connect_live_view_read_only",
    tag = TAG,
    responses(
        (status = 101, description = "Frames and the state of the browser"),
        (status = 400, body = ErrorBody, description = "The request is not a WebSocket handshake"),
        (status = 409, body = ErrorBody, description = "The browser has no display"),
        (status = 429, body = ErrorBody, description = "The limit of live views is reached"),
    )
)]
pub(crate) async fn socket(
    State(live): State<LiveViews>,
    State(shutdown): State<Shutdown>,
    request: Request,
) -> ApiResult<Response> {
    connect(&live, &shutdown, request, false).await
}
