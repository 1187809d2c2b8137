//! `/browsers/{id}/replays`.

use std::time::Duration;

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use tokio::time::timeout;

use super::{ReplayContext, TAG};
use crate::{
    api::{ErrorBody, replays::Replay},
    control::{replays::MAX_REPLAYS_PER_BROWSER, routes::auditing::Created},
    http::{ApiError, ApiResult, Json, Path},
    request_scope::inherit,
};

/// The time in which an agent must report its recordings. Most rows are up to date without it.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);
/// `Retry-After` if there is no room for a recording. Old replays are deleted hourly.
const CAPACITY_RETRY_DELAY: Duration = Duration::from_secs(60);

/// List replays
///
/// All replays of a browser, also of a deleted one, ordered by start time.
#[utoipa::path(
    get,
    path = "/browsers/{id}/replays",
    operation_id = "list_replays",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = Vec<Replay>),
    )
)]
pub(crate) async fn list(
    context: ReplayContext,
    Path(id): Path<String>,
) -> ApiResult<Json<Vec<Replay>>> {
    let browser = context.find_browser(&id).await?;
    if browser.is_active {
        let refreshed = timeout(REFRESH_TIMEOUT, refresh(&context, &id)).await;
        if refreshed.is_err() {
            tracing::warn!(browser = %browser.id, "listing the agent's recordings timed out");
        }
    }
    let rows = context.replays.list(context.project(), &browser.id).await;
    let rows = rows?.into_iter();
    Ok(Json(rows.map(|row| context.to_replay(row)).collect()))
}

/// Updates the rows to what the agent reports. Every started recording has a row, so the list is
/// complete even if the agent does not respond.
async fn refresh(context: &ReplayContext, id: &str) {
    let session = match context.forwarder.session(id).await {
        Ok(session) => session,
        Err(error) => {
            tracing::debug!(%error, "no agent to list recordings from");
            return;
        }
    };
    let project = context.project();
    let client = session.replay_client();
    let refreshed = context.replays.refresh(project, &session.id, &client);
    match refreshed.await {
        Ok(true) => session.replays_changed.notify_one(),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(browser = %session.id, %error, "cannot list the agent's recordings");
        }
    }
}

/// Start a replay
///
/// Starts to record the screen. The recording ends when it is stopped, at its maximum duration, or
/// with the browser, and is then stored.
///
/// The video shows what the screen shows, including the pointer if it is shown. A frame is added
/// when the screen changes, once more a second later, and every 5 seconds otherwise. The video
/// keeps the size of the screen at the start.
#[utoipa::path(
    post,
    path = "/browsers/{id}/replays",
    operation_id = "start_replay",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = crate::api::replays::ReplayRequest, example = json!({"framerate": 15, "max_duration_in_seconds": 600})),
    responses(
        (status = 201, body = Replay),
        (status = 409, body = ErrorBody, description = "`no_display`: the browser has no display; `no_audio`: no sound server is running"),
        (status = 429, body = ErrorBody, description = "The limit of concurrent recordings, of replays per browser (1,000) or of the size of all stored replays is reached"),
        (status = 502, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is restarting"),
        (status = 504, body = ErrorBody),
    )
)]
pub(crate) async fn start(
    context: ReplayContext,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let session = context.forwarder.session(&id).await?;
    let replays = &context.replays;
    if let Some(exceeded) = replays.exceeded_quota(context.project()).await? {
        metrics::counter!("berth_limit_refusals_total", "limit" => "replays").increment(1);
        let message = exceeded.to_string();
        return Err(ApiError::limit_exceeded(message, CAPACITY_RETRY_DELAY));
    }
    if replays.is_full(&session.id).await? {
        let message = format!("replay limit of the browser reached ({MAX_REPLAYS_PER_BROWSER})");
        return Err(ApiError::limit_exceeded(message, CAPACITY_RETRY_DELAY));
    }
    // A task, so that a client that disconnects does not leave a recording without a row.
    let shutdown = context.shutdown.clone();
    let task = shutdown.spawn(inherit(async move {
        let created = StatusCode::CREATED;
        let started = context
            .forward_and_record(&session, "/replays", created, request)
            .await?;
        Ok(match started {
            Ok(row) => Created {
                id: row.id.to_string(),
                body: context.to_replay(row),
            }
            .into_response(),
            Err(response) => response,
        })
    }));
    task.await
        .map_err(|error| ApiError::internal(error).permanent())?
}
