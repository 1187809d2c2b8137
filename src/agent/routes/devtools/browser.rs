//! `GET /devtools/browser/{id}`

use axum::{
    extract::{Request, State},
    response::Response,
};

use super::is_id;
use crate::{
    agent::{
        Agent,
        routes::cdp::{TAG, connect},
    },
    api::ErrorBody,
    http::{ApiError, ApiResult, Path},
};

/// The browser's DevTools by its id
#[utoipa::path(
    get,
    path = "/devtools/browser/{id}",
    tag = TAG,
    params(("id" = String, Path, description = "The id in `/json/version`")),
    responses(
        (status = 101, description = "the DevTools protocol, as Chromium speaks it"),
        (status = 400, body = ErrorBody, description = "not a WebSocket handshake"),
        (status = 404, body = ErrorBody, description = "no such id"),
        (status = 429, body = ErrorBody, description = "too many clients"),
        (status = 503, body = ErrorBody, description = "Chromium is not up"),
    )
)]
pub async fn browser(
    State(agent): State<Agent>,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    if !is_id(&id) {
        return Err(ApiError::not_found("there is nothing of that id"));
    }
    connect(agent, request, Some(format!("/devtools/browser/{id}"))).await
}
