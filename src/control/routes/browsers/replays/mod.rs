//! `/browsers/{id}/replays`: recordings of a browser's screen, made by its agent and stored by
//! control when they are finished.

use std::time::Duration;

use axum::{
    body::Body,
    extract::{FromRequestParts, Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, Limited};

use super::session::SessionForwarder;
use crate::{
    api::{
        ids::{ProjectId, ReplayId},
        replays::{Replay, ReplayEndReason, ReplayStatus},
    },
    control::{
        Control,
        blobs::BlobError,
        browsers::{BrowserError, KnownBrowser, Session},
        proxy::SessionPath,
        replays::{ReplayError, Replays, state::State as ReplayState},
        routes::{authentication::RequestCredential, public_base_url::PublicBaseUrl},
        session_token::{Scope, SessionTokens},
        store::ReplayRow,
    },
    http::{ApiError, ApiResult, RangeResponse},
    shutdown::Shutdown,
};

pub(crate) mod collection;
pub(crate) mod item;
pub(crate) mod stop;
pub(crate) mod view;

const TAG: &str = crate::api::groups::REPLAYS;
/// The most bytes of an agent's response about one recording.
const MAX_RESPONSE: usize = 64 << 10;
/// `Retry-After` while a replay is being recorded or fetched.
const RECORDING_RETRY_DELAY: Duration = Duration::from_secs(2);

/// `Retry-After` while the blob store is not available.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The services and the request data that the replay routes share.
#[derive(FromRequestParts)]
#[from_request(state(Control))]
pub(crate) struct ReplayContext {
    forwarder: SessionForwarder,
    #[from_request(via(State))]
    replays: Replays,
    #[from_request(via(State))]
    tokens: SessionTokens,
    #[from_request(via(State))]
    shutdown: Shutdown,
    base_url: PublicBaseUrl,
}

impl ReplayContext {
    fn project(&self) -> &ProjectId {
        &self.forwarder.principal.project
    }

    /// Finds a browser, active or ended.
    async fn find_browser(&self, id_or_name: &str) -> ApiResult<KnownBrowser> {
        let forwarder = &self.forwarder;
        let browser = forwarder.browsers.resolve(self.project(), id_or_name);
        let browser = browser.await?;
        // A token for the session is valid until the browser ends; a token for a replay longer.
        let ends_with_browser = matches!(
            forwarder.principal.credential,
            RequestCredential::SessionToken {
                scope: Scope::Session,
                ..
            }
        );
        if ends_with_browser && !browser.is_active {
            return Err(BrowserError::NotFound.into());
        }
        Ok(browser)
    }

    /// Finds a replay and its browser.
    async fn find_replay(
        &self,
        id_or_name: &str,
        replay: &ReplayId,
    ) -> ApiResult<(KnownBrowser, ReplayRow)> {
        let browser = self.find_browser(id_or_name).await?;
        let row = self.replays.find(self.project(), &browser.id, replay);
        let row = row.await?;
        Ok((browser, row))
    }

    /// Converts a row to its API representation, with a URL that contains a token.
    fn to_replay(&self, row: ReplayRow) -> Replay {
        let token = self.replay_token(&row);
        let path = format!("/replays/{}/view", row.id);
        Replay {
            replay_view_url: Some(self.base_url.page(&row.browser_id, &path, &token)),
            status: status(row.state),
            replay_id: row.id,
            started_at: row.started_at.into(),
            finished_at: row.end.finished_at.map(Into::into),
            end_reason: row.end.reason,
            duration_ms: row.end.duration_ms,
            size_bytes: row.end.size_bytes,
        }
    }

    /// Issues a token that is valid for one replay only.
    fn replay_token(&self, row: &ReplayRow) -> String {
        let scope = Scope::Replay(row.id.clone());
        let issuer = &self.forwarder.principal.issuer;
        self.tokens
            .issue(issuer, &row.browser_id, &row.project_id, &scope)
    }

    /// Forwards a request about one recording to its agent, and records the recording in the
    /// response. Returns its row, or the response if the status is not `expected`.
    async fn forward_and_record(
        &self,
        session: &Session,
        path: &str,
        expected: StatusCode,
        request: Request,
    ) -> ApiResult<Result<ReplayRow, Response>> {
        let path = SessionPath::internal(path);
        let response = self.forwarder.forward(session, path, request).await?;
        if response.status() != expected {
            return Ok(Err(response));
        }
        let replay = read_replay(response.into_body()).await?;
        let recorded = self.record(session, &replay).await;
        session.replays_changed.notify_one();
        // The agent has processed the request, and the replay collector will find the recording.
        // A retry would repeat the request.
        recorded
            .map(Ok)
            .map_err(|error| ApiError::from(error).permanent())
    }

    async fn record(&self, session: &Session, replay: &Replay) -> Result<ReplayRow, ReplayError> {
        let (project, browser) = (self.project(), &session.id);
        self.replays.record(project, browser, replay).await?;
        self.replays.find(project, browser, &replay.replay_id).await
    }

    /// Returns a stored replay's file, or the requested range of it.
    async fn file(&self, id: &ReplayId, request: &HeaderMap) -> ApiResult<Response> {
        let length = self.replays.size(id).await?;
        // A stored file never changes.
        let etag = HeaderValue::try_from(format!("\"{id}\"")).map_err(ApiError::internal)?;
        let ranged = RangeResponse::new(request, length, etag);
        let body = match ranged.range() {
            Some(range) => Body::from_stream(self.replays.read(id, range).await?),
            None => Body::empty(),
        };
        let mut response = ranged.with_body(body);
        let is_success = response.status().is_success();
        let headers = response.headers_mut();
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("private, no-cache"),
        );
        headers.insert(
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        );
        if is_success {
            let name = format!("inline; filename=\"{id}.mp4\"");
            let name = HeaderValue::try_from(name).map_err(ApiError::internal)?;
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("video/mp4"));
            headers.insert(header::CONTENT_DISPOSITION, name);
        }
        Ok(response)
    }
}

fn status(state: ReplayState) -> ReplayStatus {
    match state {
        ReplayState::Recording => ReplayStatus::Recording,
        ReplayState::Finished | ReplayState::Stored | ReplayState::Lost => ReplayStatus::Finished,
    }
}

async fn read_replay(body: Body) -> ApiResult<Replay> {
    let invalid = |cause: &dyn std::fmt::Display| {
        tracing::warn!(%cause, "invalid response about a recording from an agent");
        ApiError::bad_gateway("the browser's response is invalid").permanent()
    };
    let body = Limited::new(body, MAX_RESPONSE).collect().await;
    let body = body.map_err(|error| invalid(&error))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| invalid(&error))
}

/// Returns the response while a replay is being recorded or fetched.
fn not_ready() -> Response {
    let delay = HeaderValue::from(RECORDING_RETRY_DELAY.as_secs());
    (StatusCode::ACCEPTED, [(header::RETRY_AFTER, delay)]).into_response()
}

fn lost(row: &ReplayRow) -> ApiError {
    let reason = match row.end.reason {
        Some(ReplayEndReason::Lost) | None => "the file does not exist",
        Some(_) => "nothing was recorded",
    };
    ApiError::gone("the recording is lost").inner("lost", reason)
}

impl From<ReplayError> for ApiError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::NotFound => ApiError::not_found("no replay with that id"),
            ReplayError::Store(cause) => cause.into(),
            ReplayError::Blob(BlobError::Remote(cause)) => {
                tracing::error!(%cause, "blob store not available");
                ApiError::unavailable("the replay storage is not available", STORE_RETRY_DELAY)
            }
            ReplayError::Blob(cause) => ApiError::internal(cause),
            ReplayError::Orphaned(cause) => ApiError::internal(cause),
            cause @ ReplayError::WrongBlobStore { .. } => ApiError::internal(cause),
        }
    }
}
