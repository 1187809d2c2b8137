//! `POST /computer/clipboard/read`.

use axum::extract::State;

use super::TAG;
use crate::{
    agent::clipboard::Clipboard,
    api::{ErrorBody, clipboard::ReadClipboardResponse},
    http::{ApiResult, Json},
};

/// Read the clipboard
///
/// Returns the text that was written or copied last, by this API, a page or a program.
#[utoipa::path(
    post,
    path = "/computer/clipboard/read",
    operation_id = "read_clipboard",
    tag = TAG,
    responses(
        (status = 200, body = ReadClipboardResponse),
        (status = 409, body = ErrorBody, description = "`no_display`: the browser has no display"),
        (status = 413, body = ErrorBody, description = "The text is longer than 1 MiB"),
        (status = 429, body = ErrorBody, description = "16 other requests wait for the text of the clipboard"),
        (status = 502, body = ErrorBody, description = "The program that owns the clipboard does not hand over its text"),
        (status = 503, body = ErrorBody, description = "The display is starting"),
        (status = 504, body = ErrorBody, description = "The program that owns the clipboard did not respond within 5 s"),
    )
)]
pub(crate) async fn read(
    State(clipboard): State<Clipboard>,
) -> ApiResult<Json<ReadClipboardResponse>> {
    let text = clipboard.read().await?;
    Ok(Json(ReadClipboardResponse { text }))
}
