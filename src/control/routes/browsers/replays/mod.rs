//! `/browsers/{id}/replays`: recordings of a browser's screen, made by its agent and kept here when it has gone.

use std::time::Duration;

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, Limited};

use super::session::agent;
use crate::{
    api::{
        ids::{BrowserId, ReplayId},
        replays::{Replay, ReplayEndReason, ReplayStatus},
    },
    control::{
        Control,
        browsers::{BrowserError, Session},
        proxy::SessionPath,
        replays::{ReplayError, state::State},
        routes::{
            auth::{Credential, Principal},
            public_base_url::PublicBaseUrl,
        },
        session_token::Scope,
        store::{ReplayRow, StoreError},
    },
    http::{ApiError, ApiResult, RangedAnswer},
};

pub mod collection;
pub mod item;
pub mod stop;
pub mod view;

const TAG: &str = crate::api::groups::REPLAYS;
/// What an agent says of one recording is short.
const MAX_ANSWER: usize = 64 << 10;
/// When a recording under way is worth another look.
const RECORDING_RETRY: Duration = Duration::from_secs(2);

/// The browser whose replays are meant, be it alive or not.
struct Meant {
    id: BrowserId,
    lives: bool,
}

async fn meant(control: &Control, principal: &Principal, id_or_name: &str) -> ApiResult<Meant> {
    let (id, lives) = control
        .browsers
        .resolve(&principal.project, id_or_name)
        .await?;
    // This token ends with its browser; a replay's own does not.
    let ends = matches!(
        principal.credential,
        Credential::SessionToken(Scope::Session)
    );
    if ends && !lives {
        return Err(BrowserError::NotFound.into());
    }
    Ok(Meant { id, lives })
}

/// A replay, and its browser.
async fn found(
    control: &Control,
    principal: &Principal,
    id_or_name: &str,
    replay: &ReplayId,
) -> ApiResult<(Meant, ReplayRow)> {
    let browser = meant(control, principal, id_or_name).await?;
    let row = control
        .replays
        .find(&principal.project, &browser.id, replay);
    let row = row.await?;
    Ok((browser, row))
}

/// The record as clients see it.
fn show(control: &Control, base_url: &PublicBaseUrl, row: ReplayRow) -> Replay {
    let token = token_for(control, &row);
    let path = format!("/replays/{}/view", row.id);
    Replay {
        replay_view_url: Some(base_url.page(&row.browser_id, &path, &token)),
        status: status(row.state),
        replay_id: row.id,
        started_at: row.started_at.into(),
        finished_at: row.end.finished_at.map(Into::into),
        end_reason: row.end.reason,
        duration_ms: row.end.duration_ms,
        size_bytes: row.end.size_bytes,
    }
}

/// Opens the replay and nothing else.
fn token_for(control: &Control, row: &ReplayRow) -> String {
    let scope = Scope::Replay(row.id.clone());
    control
        .tokens
        .issue(&row.browser_id, &row.project_id, &scope)
}

fn status(state: State) -> ReplayStatus {
    match state {
        State::Recording => ReplayStatus::Recording,
        State::Finished | State::Kept | State::Lost => ReplayStatus::Finished,
    }
}

/// Has the agent do something about one recording, and takes down what it says of it. An answer of `expected` is read, and the replay's
/// record comes back; any other answer comes back as it is.
async fn ask(
    control: &Control,
    principal: &Principal,
    session: &Session,
    path: &str,
    expected: StatusCode,
    request: Request,
) -> ApiResult<Result<ReplayRow, Response>> {
    let path = SessionPath::own(path);
    let answer = control.proxy.pass(&agent(session), path, request).await?;
    if answer.status() != expected {
        return Ok(Err(answer));
    }
    let replay = read(answer.into_body()).await?;
    let recorded = async {
        let (project, browser) = (&principal.project, &session.id);
        control.replays.note(project, browser, &replay).await?;
        let row = control.replays.find(project, browser, &replay.replay_id);
        row.await
    };
    let row = recorded.await;
    session.replays_changed.notify_one();
    // It has been done all the same, and is found with the next look at what the agent has: doing it again would be once too often.
    row.map(Ok)
        .map_err(|error| ApiError::from(error).permanent())
}

async fn read(body: Body) -> ApiResult<Replay> {
    let refused = |cause: &dyn std::fmt::Display| {
        tracing::warn!(%cause, "what an agent says of a recording was not understood");
        ApiError::bad_gateway("the browser's answer was not understood").permanent()
    };
    let body = Limited::new(body, MAX_ANSWER).collect().await;
    let body = body.map_err(|error| refused(&error))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| refused(&error))
}

/// A replay's file, or the part of it that is asked for.
async fn file(control: &Control, id: &ReplayId, request: &HeaderMap) -> ApiResult<Response> {
    let length = control.replays.size(id).await?;
    // What is kept of a replay never changes.
    let etag = HeaderValue::try_from(format!("\"{id}\"")).map_err(ApiError::internal)?;
    let answer = RangedAnswer::to(request, length, etag);
    let body = match answer.range() {
        Some(range) => Body::from_stream(control.replays.read(id, range).await?),
        None => Body::empty(),
    };
    let mut response = answer.with(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-cache"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    if response.status().is_success() {
        let name = format!("inline; filename=\"{id}.mp4\"");
        let name = HeaderValue::try_from(name).map_err(ApiError::internal)?;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("video/mp4"));
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// It is being recorded, or on its way from where it was.
fn not_yet() -> Response {
    let again = HeaderValue::from(RECORDING_RETRY.as_secs());
    (StatusCode::ACCEPTED, [(header::RETRY_AFTER, again)]).into_response()
}

fn lost(row: &ReplayRow) -> ApiError {
    let reason = match row.end.reason {
        Some(ReplayEndReason::Lost) | None => "nothing of it is left",
        Some(_) => "nothing was recorded",
    };
    ApiError::gone("the recording is lost").inner("lost", reason)
}

impl From<ReplayError> for ApiError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::NotFound => ApiError::not_found("there is no such replay"),
            ReplayError::Store(cause) => ApiError::internal(cause),
            ReplayError::Blob(cause) => ApiError::internal(cause),
        }
    }
}

fn internal(error: StoreError) -> ApiError {
    ApiError::internal(error)
}
