//! `POST /computer/clipboard/read`

use axum::extract::State;

use super::TAG;
use crate::{
    agent::Agent,
    api::{ErrorBody, clipboard::ReadClipboardResponse},
    http::{ApiResult, Json},
};

/// Read the clipboard's text
///
/// It is what was written here last, or what a page or program has copied since.
#[utoipa::path(
    post,
    path = "/computer/clipboard/read",
    operation_id = "read_clipboard",
    tag = TAG,
    responses(
        (status = 200, body = ReadClipboardResponse),
        (status = 409, body = ErrorBody, description = "`no_display`: the browser is headless"),
        (status = 413, body = ErrorBody, description = "the text has more than 1 MiB"),
        (status = 429, body = ErrorBody, description = "16 requests wait for the clipboard's text already"),
        (status = 502, body = ErrorBody, description = "the program that has the clipboard does not give the text it offers"),
        (status = 503, body = ErrorBody, description = "the display is being started"),
        (status = 504, body = ErrorBody, description = "the program that has the clipboard did not answer within 5 s"),
    )
)]
pub async fn read(State(agent): State<Agent>) -> ApiResult<Json<ReadClipboardResponse>> {
    let text = agent.clipboard.read().await?;
    Ok(Json(ReadClipboardResponse { text }))
}
