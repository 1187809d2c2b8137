//! `POST /computer/type`.

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::computer::Computer,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, TypeText},
    },
    http::{ApiResult, Json, LargeJson},
};

/// Size limit of a request in bytes: a text of 65,536 characters, escaped.
const BODY_LIMIT: usize = 1 << 20;

/// Type text
///
/// Types into the element that has the keyboard focus. A character without a key on the keyboard
/// gets a temporary one. Caps Lock is switched off meanwhile.
#[utoipa::path(
    post,
    path = "/computer/type",
    operation_id = "type_text",
    tag = TAG,
    request_body(content = TypeText, example = json!({"text": "Hello, world!\n", "delay": 20})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "A field is out of bounds, or a character cannot be typed"),
        (status = 500, body = ErrorBody, description = "The action failed; all keys and buttons have been released"),
        (status = 503, body = ErrorBody, description = "The display or the browser is starting, or another client used mouse and keyboard for 60 s"),
    )
)]
pub(crate) async fn type_text(
    State(computer): State<Computer>,
    LargeJson(request): LargeJson<TypeText, BODY_LIMIT>,
) -> ApiResult<Json<Done>> {
    perform(&computer, Action::TypeText(request)).await
}
