//! `POST /computer/type`

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, TypeText},
    },
    http::{ApiResult, Json},
};

/// Type a text
///
/// Into whatever has the keyboard's focus. Characters that the keyboard has no key for get one for the time being. Where
/// Caps Lock is on, it is off meanwhile.
#[utoipa::path(
    post,
    path = "/computer/type",
    operation_id = "type_text",
    tag = TAG,
    request_body = TypeText,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "a field out of its bounds, a character that cannot be typed"),
        (status = 500, body = ErrorBody, description = "it failed on the way; all keys and buttons are up"),
        (status = 503, body = ErrorBody, description = "the display or the browser is being started, or others have had mouse and keyboard for a minute"),
    )
)]
pub async fn type_text(
    State(agent): State<Agent>,
    Json(request): Json<TypeText>,
) -> ApiResult<Json<Done>> {
    perform(&agent, Action::TypeText(request)).await
}
