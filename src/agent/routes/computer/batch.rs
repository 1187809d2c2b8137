//! `POST /computer/batch`

use axum::extract::State;

use super::TAG;
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        computer::{BatchRequest, BatchResponse},
    },
    http::{ApiResult, Json},
};

/// Do several things with mouse and keyboard
///
/// In order, and nothing of another batch comes between. The whole is checked first, against the size the screen has by then: where anything
/// is wrong, nothing is done, and each action that is wrong has one detail. It may have 200000 steps (moves, presses, characters) and take 600
/// seconds. It stops where an action fails, and where the client goes away; then all keys and buttons are up. What fails is told by its `index`:
/// all before it was done. Moves, and on a screen clicks, are sent without a wait for each, so that of some after the one that failed it may not
/// be known whether they were done. After a batch that has been done, only what a `click_mouse` with `click_type` `down` has
/// pressed is still down.
///
/// Where the browser has no display, all of this is done to the page that is in front when the batch begins: places are in pixels of what that
/// page shows, and the bounds are its size. There, keys reach the page and no command of the browser (`Ctrl+t`), and all but moves wait until
/// the page has taken them: one that is busy for five seconds, or that has opened a dialog (which a DevTools client has to answer), fails.
#[utoipa::path(
    post,
    path = "/computer/batch",
    operation_id = "computer_batch",
    tag = TAG,
    request_body = BatchRequest,
    responses(
        (status = 200, body = BatchResponse),
        (status = 400, body = ErrorBody, description = "no actions or more than 1000, or actions that are wrong: nothing was done"),
        (status = 409, body = ErrorBody, description = "`no_display`: the browser runs without one, and so without a pointer to be hidden"),
        (status = 500, body = ErrorBody, description = "an action failed; `details` has its `index`, its `type`, and as JSON the `results` up to it; `inner_error` says why: `screen_lost`, `not_taken` by the page, `no_key` where the keyboard has no room for as many other keys at once, or `too_long`"),
        (status = 503, body = ErrorBody, description = "the display or the browser is being started, or others have had mouse and keyboard for a minute"),
    )
)]
pub async fn batch(
    State(agent): State<Agent>,
    Json(request): Json<BatchRequest>,
) -> ApiResult<Json<BatchResponse>> {
    let results = agent.computer.perform(request.actions).await?;
    Ok(Json(BatchResponse { results }))
}
