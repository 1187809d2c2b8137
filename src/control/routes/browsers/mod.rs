//! `/browsers`, and the conversion of browsers and their errors to API types.

use std::time::Duration;

use axum::routing::any;
use http::StatusCode;
use utoipa::openapi::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{PROJECT_ARCHIVED, profiles::PROFILE_IN_USE};
use crate::{
    api::{agent::NEWER_CHROMIUM, browsers::BrowserStatus},
    control::{
        Control,
        browsers::{BrowserError, BrowserProfileError},
        fleet::AgentError,
        profiles::{ProfileError, inspection::InspectError},
        store::StateFilter,
    },
    http::ApiError,
};

mod collection;
mod credentials;
mod item;
mod json;
mod profiles;
mod replays;
mod representation;
mod session;

pub(super) use collection::{BODY_LIMIT, creation};
pub(super) use representation::BrowserContext;

const TAG: &str = crate::api::groups::BROWSERS;
/// `Retry-After` if the browser limit is reached or a browser did not start.
pub(super) const START_RETRY_DELAY: Duration = Duration::from_secs(5);
/// `Retry-After` if a browser or the server is restarting.
const RESTART_RETRY_DELAY: Duration = Duration::from_secs(1);

pub(crate) fn router(agent: OpenApi) -> OpenApiRouter<Control> {
    let mut router = OpenApiRouter::new()
        .routes(routes!(collection::create, collection::list))
        .routes(routes!(item::get, item::update, item::delete))
        .routes(routes!(profiles::save))
        .routes(routes!(credentials::fill::fill))
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
        .route("/browsers/{id}/{*rest}", any(session::forward));
    let forwarded = session::document(agent, &router.get_openapi().paths);
    router.get_openapi_mut().merge(forwarded);
    router
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
            BrowserError::NotFound => ApiError::not_found("no browser with that id or name"),
            BrowserError::NameTaken => {
                ApiError::conflict("another active browser of the project has that name")
                    .detail("name", "is taken")
                    .permanent()
            }
            BrowserError::IdempotencyKeyReused => {
                ApiError::conflict("the idempotency key was used with a different request")
                    .detail("idempotency-key", "was used with a different request")
                    .permanent()
            }
            BrowserError::IdempotencyKeyInFlight => {
                ApiError::conflict("a request with the same idempotency key is in progress")
                    .detail("idempotency-key", "is in use")
            }
            error @ BrowserError::ProjectInactive => {
                ApiError::forbidden(error.to_string()).code(PROJECT_ARCHIVED)
            }
            error @ (BrowserError::LimitReached(_) | BrowserError::ProjectLimitReached(_)) => {
                ApiError::limit_exceeded(error.to_string(), START_RETRY_DELAY)
            }
            error @ BrowserError::UpdateQueueFull(_) => {
                ApiError::limit_exceeded(error.to_string(), RESTART_RETRY_DELAY)
            }
            BrowserError::ShuttingDown => {
                ApiError::unavailable("the server is shutting down", RESTART_RETRY_DELAY)
            }
            error @ BrowserError::NotLeased => ApiError::conflict(error.to_string()).permanent(),
            BrowserError::Abandoned => {
                ApiError::unavailable("the request was cancelled", RESTART_RETRY_DELAY)
            }
            BrowserError::Profile(cause) => profile_error(cause),
            error @ BrowserError::NoHostReady => {
                ApiError::unavailable(error.to_string(), START_RETRY_DELAY)
            }
            BrowserError::HostStart(cause) => {
                tracing::error!(%cause, "cannot start agent of a browser");
                start_failed("the agent did not start")
            }
            BrowserError::NotReady(cause) => {
                tracing::error!(%cause, "browser did not become ready");
                start_failed("the browser exited or did not become ready in time")
            }
            BrowserError::Unreachable(cause) => {
                tracing::warn!(%cause, "browser unreachable");
                ApiError::unavailable("the browser is restarting", RESTART_RETRY_DELAY)
            }
            BrowserError::Agent(cause) => agent_error(cause),
            BrowserError::Store(cause) => cause.into(),
            BrowserError::Task(cause) => ApiError::internal(cause),
        }
    }
}

/// Converts the failure of a change. Clients may retry every change as it is.
pub(super) fn agent_error(cause: AgentError) -> ApiError {
    match cause {
        AgentError::Rejected {
            status: StatusCode::BAD_REQUEST,
            error,
        } => ApiError::bad_request(error.message).details(error.details),
        AgentError::Rejected { status, .. } if status != StatusCode::SERVICE_UNAVAILABLE => {
            tracing::warn!(%cause, "agent rejected change");
            ApiError::bad_gateway("the browser rejected the change")
        }
        cause => {
            tracing::warn!(%cause, "agent failed to apply change");
            ApiError::unavailable("the browser does not respond", RESTART_RETRY_DELAY)
        }
    }
}

/// Converts the failure of a load or a save of a profile.
fn profile_error(error: BrowserProfileError) -> ApiError {
    match error {
        error @ BrowserProfileError::NotFound => {
            ApiError::not_found(error.to_string()).detail("profile", "does not exist")
        }
        error @ BrowserProfileError::InUse => ApiError::conflict(error.to_string())
            .code(PROFILE_IN_USE)
            .detail("profile.save_changes", "another browser saves the profile")
            .permanent(),
        error @ BrowserProfileError::BeingSaved => ApiError::conflict(error.to_string())
            .code(PROFILE_IN_USE)
            .detail("profile.save_changes", "a save is in progress"),
        BrowserProfileError::Load(ProfileError::Restore(AgentError::Rejected {
            error, ..
        })) if error.code == NEWER_CHROMIUM => ApiError::conflict(error.message)
            .code(NEWER_CHROMIUM)
            .detail("profile", "is of a newer Chromium than that of the host")
            .permanent(),
        error @ BrowserProfileError::HasProfile => ApiError::conflict(error.to_string())
            .detail("profile", "the browser has one")
            .permanent(),
        error @ BrowserProfileError::Loading => ApiError::conflict(error.to_string()),
        BrowserProfileError::Load(ProfileError::Restore(cause)) => {
            tracing::error!(%cause, "cannot restore the profile of a browser");
            start_failed("the profile could not be restored")
        }
        BrowserProfileError::Load(cause) => cause.into(),
        // Not the fault of the client, which has not sent the archive.
        BrowserProfileError::Save(ProfileError::Inspect(cause))
            if !matches!(cause, InspectError::Io(_)) =>
        {
            tracing::warn!(%cause, "the archive of a browser cannot be used");
            ApiError::bad_gateway("the user data of the browser cannot be used")
        }
        BrowserProfileError::Save(cause) => cause.into(),
    }
}

/// Returns the error for a browser that did not start. The log has the complete reason, which names
/// programs and directories.
fn start_failed(reason: &'static str) -> ApiError {
    ApiError::unavailable("the browser could not be started", START_RETRY_DELAY)
        .inner("start_failed", reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ErrorBody, ErrorDetail};

    #[test]
    fn only_bad_request_of_an_agent_is_passed_to_the_client() {
        let convert = |status: u16| {
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
            agent_error(AgentError::Rejected { status, error })
        };
        let rejected = convert(400);
        assert_eq!(rejected.body().code, "bad_request");
        assert_eq!(rejected.body().details[0].code, "viewport.width");
        for (status, code) in [
            (401, "bad_gateway"),
            (404, "bad_gateway"),
            (413, "bad_gateway"),
            (500, "bad_gateway"),
            (503, "unavailable"),
        ] {
            let error = convert(status);
            assert_eq!(error.body().code, code);
            assert!(error.body().details.is_empty());
        }
    }
}
