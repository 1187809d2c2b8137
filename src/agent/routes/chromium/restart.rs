//! `POST /chromium/restart`.

use axum::extract::State;

use super::{CHANGE_TIMEOUT, TAG, describe};
use crate::{
    agent::chromium::Chromium,
    api::{ErrorBody, agent::ChromiumStatus},
    http::{ApiResult, Json},
};

/// Restart Chromium
///
/// Closes Chromium in an orderly way, so that its profile is complete, and starts it again.
/// Responds once the new process accepts DevTools connections, within 60 seconds. All tabs are
/// lost; DevTools clients are disconnected with close code 4001.
#[utoipa::path(
    post,
    path = "/chromium/restart",
    operation_id = "restart_chromium",
    tag = TAG,
    responses(
        (status = 200, body = ChromiumStatus),
        (status = 503, body = ErrorBody, description = "Chromium did not come up within 60 s"),
    )
)]
pub(crate) async fn restart(State(chromium): State<Chromium>) -> ApiResult<Json<ChromiumStatus>> {
    chromium.restart("requested", CHANGE_TIMEOUT).await?;
    Ok(Json(describe(&chromium.status())))
}
