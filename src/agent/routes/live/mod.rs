//! `GET /live`, and what it shares with `GET /live/view`.

use axum::{extract::State, response::Response};

use self::page::PAGE;
use super::FULL_RETRY;
use crate::{
    agent::{Agent, live::LiveViewError},
    api::ErrorBody,
    http::{ApiError, ApiResult},
};

mod page;
pub mod socket;
pub mod view;

pub const TAG: &str = crate::api::groups::LIVE_VIEW;

/// The live view
///
/// A page that shows the browser's screen as it is, and passes on mouse, keyboard and clipboard. A browser's `browser_live_view_url` leads
/// here, with the token that the page needs for its connection: a header cannot be sent from there.
#[utoipa::path(
    get,
    path = "/live",
    operation_id = "live_view",
    tag = TAG,
    responses(
        (status = 200, description = "the page", body = String, content_type = "text/html"),
        (status = 409, body = ErrorBody, description = "the browser has no display"),
    )
)]
pub async fn live(State(agent): State<Agent>) -> ApiResult<Response> {
    show(&agent)
}

fn show(agent: &Agent) -> ApiResult<Response> {
    agent.live.check_available()?;
    Ok(PAGE.answer(&[]))
}

impl From<LiveViewError> for ApiError {
    fn from(error: LiveViewError) -> Self {
        match error {
            LiveViewError::NoScreen(error) => error.into(),
            LiveViewError::LimitReached => ApiError::limit_exceeded(error.to_string(), FULL_RETRY),
        }
    }
}
