//! `POST /chromium/restart`

use axum::extract::State;

use super::{CHANGE_DEADLINE, TAG, describe};
use crate::{
    agent::Agent,
    api::{ErrorBody, agent::ChromiumStatus},
    http::{ApiResult, Json},
};

/// Restart Chromium
///
/// It is closed in order, so that the profile is whole, and answered once the next one is up.
#[utoipa::path(
    post,
    path = "/chromium/restart",
    tag = TAG,
    responses(
        (status = 200, body = ChromiumStatus),
        (status = 503, body = ErrorBody, description = "it did not come up in time"),
    )
)]
pub async fn restart(State(agent): State<Agent>) -> ApiResult<Json<ChromiumStatus>> {
    agent
        .chromium
        .restart("it was asked for", CHANGE_DEADLINE)
        .await?;
    Ok(Json(describe(&agent.chromium.status())))
}
