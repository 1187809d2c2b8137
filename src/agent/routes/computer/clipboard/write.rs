//! `POST /computer/clipboard/write`

use axum::extract::State;

use super::TAG;
use crate::{
    agent::Agent,
    api::{ErrorBody, agent::Done, clipboard::WriteClipboardRequest},
    http::{ApiResult, Json},
};

/// Put text on the clipboard
///
/// It can be pasted when this answers, and stays until something else is copied; a restart of the browser or of its display
/// leaves it there.
#[utoipa::path(
    post,
    path = "/computer/clipboard/write",
    operation_id = "write_clipboard",
    tag = TAG,
    request_body = WriteClipboardRequest,
    responses(
        (status = 200, body = Done, description = "it is on the clipboard"),
        (status = 400, body = ErrorBody, description = "no text"),
        (status = 409, body = ErrorBody, description = "`no_display`: the browser is headless"),
        (status = 413, body = ErrorBody, description = "more than 1 MiB of text, or a body over 10 MiB"),
        (status = 429, body = ErrorBody, description = "16 texts wait to be written already"),
        (status = 503, body = ErrorBody, description = "the display is being started"),
        (status = 504, body = ErrorBody, description = "the clipboard was not taken within 10 s"),
    )
)]
pub async fn write(
    State(agent): State<Agent>,
    Json(request): Json<WriteClipboardRequest>,
) -> ApiResult<Json<Done>> {
    agent.clipboard.write(request.text).await?;
    Ok(Json(Done { ok: true }))
}
