//! `/browsers`.

use std::time::Duration;

use axum::routing::any;
use http::StatusCode;
use utoipa::openapi::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::public_base_url::PublicBaseUrl;
use crate::{
    api::browsers::{Browser, BrowserStatus},
    control::{
        Control,
        browsers::BrowserError,
        fleet::AgentError,
        session_token::Scope,
        store::{BrowserRow, StateFilter},
    },
    http::ApiError,
};

mod collection;
mod item;
mod json;
mod replays;
mod session;

const TAG: &str = crate::api::groups::BROWSERS;
/// When a machine that is full, or a host that comes back, is worth another try.
const FULL_RETRY: Duration = Duration::from_secs(5);
const COMEBACK_RETRY: Duration = Duration::from_secs(1);

pub fn router(agent: OpenApi) -> OpenApiRouter<Control> {
    let mut router = OpenApiRouter::new()
        .routes(routes!(collection::create, collection::list))
        .routes(routes!(item::get, item::update, item::delete))
        .routes(routes!(json::version::version))
        .routes(routes!(json::version::version_slash))
        .routes(routes!(json::list::list))
        .routes(routes!(json::list::root))
        .routes(routes!(
            replays::collection::list,
            replays::collection::start
        ))
        .routes(routes!(replays::item::get))
        .routes(routes!(replays::stop::stop))
        .routes(routes!(replays::view::view))
        .route("/browsers/{id}/{*rest}", any(session::pass));
    let passed_on = session::document(agent, &router.get_openapi().paths);
    router.get_openapi_mut().merge(passed_on);
    router
}

/// The record as clients see it.
fn show(control: &Control, base_url: &PublicBaseUrl, row: BrowserRow) -> Browser {
    let token = |scope| control.tokens.issue(&row.id, &row.project_id, &scope);
    // Without a screen, or once it has ended, there is nothing to look at.
    let has_live_view = !row.headless && row.deleted_at.is_none();
    let live_view =
        |path, scope| has_live_view.then(|| base_url.page(&row.id, path, &token(scope)));
    Browser {
        cdp_ws_url: base_url.cdp(&row.id, &token(Scope::Session)),
        browser_live_view_url: live_view("/live", Scope::Live),
        browser_live_view_read_only_url: live_view("/live/view", Scope::LiveView),
        base_url: base_url.browser(&row.id),
        session_id: row.id,
        created_at: row.created_at.into(),
        headless: row.headless,
        stealth: false,
        kiosk_mode: row.kiosk_mode,
        timeout_seconds: row.timeout_seconds,
        name: row.name,
        tags: row.tags,
        viewport: row.viewport,
        start_url: row.start_url,
        deleted_at: row.deleted_at.map(Into::into),
    }
}

impl From<BrowserStatus> for StateFilter {
    fn from(status: BrowserStatus) -> Self {
        match status {
            BrowserStatus::Active => StateFilter::Active,
            BrowserStatus::Deleted => StateFilter::Deleted,
            BrowserStatus::All => StateFilter::All,
        }
    }
}

impl From<BrowserError> for ApiError {
    fn from(error: BrowserError) -> Self {
        match error {
            BrowserError::NotFound => ApiError::not_found("there is no such browser"),
            BrowserError::NameTaken => {
                ApiError::conflict("another live browser of the project has that name")
                    .detail("name", "is taken")
                    .permanent()
            }
            BrowserError::IdempotencyKeyReused => {
                ApiError::conflict("the idempotency key came with another request before")
                    .detail("idempotency-key", "is used")
                    .permanent()
            }
            BrowserError::IdempotencyKeyInFlight => {
                ApiError::conflict("another request with the idempotency key is under way")
                    .detail("idempotency-key", "is in use")
            }
            BrowserError::Full(_) => {
                ApiError::limit_exceeded("as many browsers live as may at once", FULL_RETRY)
            }
            BrowserError::Stopping => {
                ApiError::unavailable("the server is stopping", COMEBACK_RETRY)
            }
            BrowserError::Abandoned => {
                ApiError::unavailable("the request was given up", COMEBACK_RETRY)
            }
            BrowserError::NotStarted(cause) => {
                tracing::error!(%cause, "a browser's agent did not start");
                not_up("its agent did not start")
            }
            BrowserError::NotUp(cause) => {
                tracing::error!(%cause, "a browser did not come up");
                not_up("it did not come up in time, or ended")
            }
            BrowserError::Unreachable(cause) => {
                tracing::warn!(%cause, "a browser cannot be base_url");
                ApiError::unavailable("the browser is being started again", COMEBACK_RETRY)
            }
            BrowserError::Agent(cause) => agent_error(cause),
            BrowserError::Store(cause) => ApiError::internal(cause),
            BrowserError::Task(cause) => ApiError::internal(cause),
        }
    }
}

/// A change may be asked for again as it is, whatever came of it.
fn agent_error(cause: AgentError) -> ApiError {
    match cause {
        AgentError::Refused {
            status: StatusCode::BAD_REQUEST,
            error,
        } => ApiError::bad_request(error.message).details(error.details),
        AgentError::Refused { status, .. } if status != StatusCode::SERVICE_UNAVAILABLE => {
            tracing::warn!(%cause, "an agent refused its part");
            ApiError::bad_gateway("the browser did not do it")
        }
        cause => {
            tracing::warn!(%cause, "an agent did not do its part");
            ApiError::unavailable("the browser does not answer", COMEBACK_RETRY)
        }
    }
}

/// The reason in full is in the log: it names programs and folders.
fn not_up(reason: &'static str) -> ApiError {
    ApiError::unavailable("the browser could not be started", FULL_RETRY)
        .inner("start_failed", reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ErrorBody, ErrorDetail};

    #[test]
    fn only_what_an_agent_finds_wrong_with_the_request_is_the_clients_fault() {
        let told = |status: u16| {
            let error = Box::new(ErrorBody {
                code: "x".to_owned(),
                message: "the screen cannot have this size".to_owned(),
                details: vec![ErrorDetail {
                    code: "viewport.width".to_owned(),
                    message: "is too large".to_owned(),
                }],
                inner_error: None,
            });
            let status = StatusCode::from_u16(status).unwrap();
            agent_error(AgentError::Refused { status, error })
        };
        let refused = told(400);
        assert_eq!(refused.body().code, "bad_request");
        assert_eq!(refused.body().details[0].code, "viewport.width");
        for (status, code) in [
            (401, "bad_gateway"),
            (404, "bad_gateway"),
            (413, "bad_gateway"),
            (500, "bad_gateway"),
            (503, "unavailable"),
        ] {
            let error = told(status);
            assert_eq!(error.body().code, code);
            assert!(error.body().details.is_empty());
        }
    }
}
