//! `GET /sessions`.

use axum::extract::State;

use crate::{
    agent::sessions::{EndedReplayError, Sessions},
    api::session::EndedSession,
    http::{ApiError, Json},
};

pub(crate) mod replays;

const TAG: &str = crate::api::groups::SESSION;

/// List ended sessions
///
/// The sessions that have ended and have recordings, in the order in which they ended. A session
/// is removed from the list with its last recording.
#[utoipa::path(get, path = "/sessions", operation_id = "list_ended_sessions", tag = TAG,
    responses((status = 200, body = Vec<EndedSession>)))]
pub(crate) async fn list(State(sessions): State<Sessions>) -> Json<Vec<EndedSession>> {
    Json(sessions.with_replays())
}

impl From<EndedReplayError> for ApiError {
    fn from(error: EndedReplayError) -> Self {
        match error {
            EndedReplayError::NotEnded(_) => ApiError::not_found(error.to_string()),
            EndedReplayError::Replay(error) => error.into(),
        }
    }
}
