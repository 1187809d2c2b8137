//! `POST /computer/batch`.

use axum::extract::State;

use super::TAG;
use crate::{
    agent::computer::Computer,
    api::{
        ErrorBody,
        computer::{BatchRequest, BatchResponse},
    },
    http::{ApiResult, Json, LargeJson},
};

/// Size limit of a request in bytes.
const BODY_LIMIT: usize = 4 << 20;

/// Run a batch of input actions
///
/// Runs the actions in order, without actions of other batches between them. The complete batch is
/// validated first, against the current size of the screen: if any action is invalid, none is run,
/// and the error has one detail per invalid action. A batch may have up to 1,000 actions and
/// 200,000 steps (moves, key presses, characters), and may take up to 600 seconds.
///
/// A batch stops when an action fails or the client disconnects; all keys and buttons are then
/// released. The error names the action by its `index`; all actions before it were run. Moves, and
/// clicks on a screen, are sent without waiting for each, so it may be unknown whether some after
/// the failed one were run. After a successful batch, only buttons that a `click_mouse` with
/// `click_type` `down` pressed are still held.
///
/// Without a display, the actions go to the page that is in front when the batch starts: positions
/// are in pixels of its viewport. Keys reach the page but do not trigger commands of the browser
/// (`Ctrl+t`). All actions but moves wait until the page has handled them: a page that is busy for
/// 5 seconds, or has opened a dialog (which a DevTools client must close), fails the batch.
#[utoipa::path(
    post,
    path = "/computer/batch",
    operation_id = "run_input_batch",
    tag = TAG,
    request_body(content = BatchRequest, example = json!({"actions": [{"type": "click_mouse", "click_mouse": {"x": 320, "y": 240}}, {"type": "type_text", "type_text": {"text": "berth"}}, {"type": "press_key", "press_key": {"keys": ["Return"]}}, {"type": "sleep", "sleep": {"duration_ms": 500}}]})),
    responses(
        (status = 200, body = BatchResponse),
        (status = 400, body = ErrorBody, description = "The batch is empty or has more than 1,000 actions, or an action is invalid; no action was run"),
        (status = 409, body = ErrorBody, description = "`no_display`: the browser has no display, and so no pointer to hide"),
        (status = 500, body = ErrorBody, description = "An action failed. `details` has its `index`, its `type` and, as JSON, the `results` up to it. The code of `inner_error` is the reason: `screen_lost`, `not_taken` (the page did not handle the event), `no_key` (the keyboard has no room for so many temporary keys) or `too_long`"),
        (status = 503, body = ErrorBody, description = "The display or the browser is starting, or another client used mouse and keyboard for 60 s"),
    )
)]
pub(crate) async fn batch(
    State(computer): State<Computer>,
    LargeJson(request): LargeJson<BatchRequest, BODY_LIMIT>,
) -> ApiResult<Json<BatchResponse>> {
    let results = computer.perform(request.actions).await?;
    Ok(Json(BatchResponse { results }))
}
