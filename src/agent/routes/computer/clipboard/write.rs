//! `POST /computer/clipboard/write`.

use axum::extract::State;

use super::TAG;
use crate::{
    agent::clipboard::Clipboard,
    api::{ErrorBody, agent::Done, clipboard::WriteClipboardRequest},
    http::{ApiResult, Json, LargeJson},
};

/// Size limit of a request in bytes: a text of 1 MiB, escaped.
const BODY_LIMIT: usize = 2 << 20;

/// Write the clipboard
///
/// The text can be pasted once the response arrives. It stays until something else is copied, also
/// across restarts of the browser and of its display.
#[utoipa::path(
    post,
    path = "/computer/clipboard/write",
    operation_id = "write_clipboard",
    tag = TAG,
    request_body(content = WriteClipboardRequest, example = json!({"text": "Hello, world!"})),
    responses(
        (status = 200, body = Done, description = "The text is on the clipboard"),
        (status = 400, body = ErrorBody, description = "`text` is missing"),
        (status = 409, body = ErrorBody, description = "`no_display`: the browser has no display"),
        (status = 413, body = ErrorBody, description = "The text is longer than 1 MiB, or the body is longer than 2 MiB"),
        (status = 429, body = ErrorBody, description = "16 other texts wait to be written"),
        (status = 503, body = ErrorBody, description = "The display is starting"),
        (status = 504, body = ErrorBody, description = "The clipboard could not be written within 10 s"),
    )
)]
pub(crate) async fn write(
    State(clipboard): State<Clipboard>,
    LargeJson(request): LargeJson<WriteClipboardRequest, BODY_LIMIT>,
) -> ApiResult<Json<Done>> {
    clipboard.write(request.text).await?;
    Ok(Json(Done { ok: true }))
}
