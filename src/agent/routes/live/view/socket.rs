//! `GET /live/view/socket`

use axum::{
    extract::{Request, State},
    response::Response,
};

use crate::{
    agent::{
        Agent,
        routes::live::{TAG, socket::connect},
    },
    api::ErrorBody,
    http::ApiResult,
};

/// What the read-only live view's page talks to
///
/// As `/live/socket`; who sends anything but that a picture was drawn is closed out with 1008.
#[utoipa::path(
    get,
    path = "/live/view/socket",
    operation_id = "live_view_read_only_socket",
    tag = TAG,
    responses(
        (status = 101, description = "pictures, and what is told about the browser"),
        (status = 400, body = ErrorBody, description = "not a WebSocket handshake"),
        (status = 409, body = ErrorBody, description = "the browser has no display"),
        (status = 429, body = ErrorBody, description = "too many live views"),
    )
)]
pub async fn socket(State(agent): State<Agent>, request: Request) -> ApiResult<Response> {
    connect(&agent, request, false).await
}
