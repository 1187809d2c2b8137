use std::time::Duration;

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use tokio::time::timeout;

use super::{TAG, ask, internal, meant, show};
use crate::{
    api::{ErrorBody, replays::Replay},
    control::{
        Control,
        routes::{auth::Principal, public_base_url::PublicBaseUrl},
    },
    http::{ApiError, ApiResult, Json, Path},
    request_scope::inherit,
};

/// How long an agent may take to say what it records: most is known without it.
const LOOK: Duration = Duration::from_secs(2);
/// When there may be room again: old replays are removed every hour.
const ROOM_RETRY: Duration = Duration::from_secs(60);

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
        (status = 401, body = ErrorBody),
        (status = 404, body = ErrorBody),
    )
)]
pub async fn list(
    State(control): State<Control>,
    principal: Principal,
    base_url: PublicBaseUrl,
    Path(id): Path<String>,
) -> ApiResult<Json<Vec<Replay>>> {
    let browser = meant(&control, &principal, &id).await?;
    if browser.lives {
        let looking = timeout(LOOK, look(&control, &principal, &id)).await;
        if looking.is_err() {
            tracing::warn!(browser = %browser.id, "an agent takes too long to say what it records");
        }
    }
    let rows = control.replays.list(&principal.project, &browser.id).await;
    let rows = rows.map_err(internal)?.into_iter();
    Ok(Json(
        rows.map(|row| show(&control, &base_url, row)).collect(),
    ))
}

/// Brings the records up to what the agent says. All that was started has one, so that an agent that does not answer makes the list no
/// shorter.
async fn look(control: &Control, principal: &Principal, id: &str) {
    let session = match control.browsers.session(&principal.project, id).await {
        Ok(session) => session,
        Err(reason) => {
            tracing::debug!(%reason, "the browser is not asked for its replays");
            return;
        }
    };
    let looking = control
        .replays
        .look(&principal.project, &session.id, &session.recorder);
    match looking.await {
        Ok(true) => session.replays_changed.notify_one(),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(browser = %session.id, %error, "an agent does not say what it records");
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
        (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "`no_display`: the browser has no display; `no_audio`: no sound server is running"),
        (status = 429, body = ErrorBody, description = "The limit of concurrent recordings, of replays per browser (1,000) or of the size of all stored replays is reached"),
        (status = 503, body = ErrorBody, description = "The browser is restarting"),
    )
)]
pub async fn start(
    State(control): State<Control>,
    principal: Principal,
    base_url: PublicBaseUrl,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let session = control.browsers.session(&principal.project, &id).await?;
    if !control.replays.has_room().await.map_err(internal)? {
        let message = "the replays that are kept leave no room for another one";
        return Err(ApiError::limit_exceeded(message, ROOM_RETRY));
    }
    if control
        .replays
        .is_full(&session.id)
        .await
        .map_err(internal)?
    {
        let message = "the browser has as many replays as may be kept of one";
        return Err(ApiError::limit_exceeded(message, ROOM_RETRY));
    }
    // A client that does not wait must not leave a recording that nobody knows of.
    let tasks = control.shutdown.clone();
    let starting = tasks.spawn(inherit(async move {
        let created = StatusCode::CREATED;
        let asked = ask(&control, &principal, &session, "/replays", created, request).await?;
        Ok(match asked {
            Ok(row) => (created, Json(show(&control, &base_url, row))).into_response(),
            Err(answer) => answer,
        })
    }));
    let started = starting.await;
    started.map_err(|error| ApiError::internal(error).permanent())?
}
