//! `GET /session`.

use axum::extract::State;

use super::FULL_RETRY_DELAY;
use crate::{
    agent::sessions::{EndError, Sessions},
    api::session::SessionStatus,
    http::{ApiError, Json},
};

pub(crate) mod end;

const TAG: &str = crate::api::groups::SESSION;

/// Get the current session
#[utoipa::path(get, path = "/session", operation_id = "get_session", tag = TAG,
    responses((status = 200, body = SessionStatus)))]
pub(crate) async fn status(State(sessions): State<Sessions>) -> Json<SessionStatus> {
    Json(sessions.status())
}

impl From<EndError> for ApiError {
    fn from(error: EndError) -> Self {
        match error {
            EndError::NotCurrent(_) => ApiError::gone(error.to_string()).code("session_ended"),
            EndError::ShuttingDown => ApiError::unavailable(error.to_string(), FULL_RETRY_DELAY),
            EndError::Next(cause) => ApiError::internal(cause),
        }
    }
}
