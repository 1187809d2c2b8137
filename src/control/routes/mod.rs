//! The routes of control. The directories repeat the URL tree.

use std::time::Duration;

use utoipa::openapi::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::authentication::{FLOW_OPERATIONS, SESSION_PARAMETER};
use super::{Control, store::StoreError};
use crate::http::{ApiError, ApiInfo, SessionRoutes};

mod audit_logs;
pub mod auditing;
mod auth;
pub mod authentication;
mod browser_pools;
mod browsers;
mod console;
mod credentials;
mod fleet;
pub mod guard;
mod health;
mod idempotency;
mod limiting;
pub mod login;
mod org;
mod paged;
mod profiles;
pub mod public_base_url;
pub mod sunset;
mod well_known;

/// The title and the introduction of the OpenAPI document.
pub const API_INFO: ApiInfo = ApiInfo {
    title: "Berth control",
    description: include_str!("introduction.md"),
    bearer: "An API key, such as `berth_…`",
    // The headers that select a project can be malformed, or name one without access. A key has a
    // limit of requests.
    guard_errors: &[400, 403, 404, 429],
    session_routes: Some(SessionRoutes {
        prefix: "/browsers/{id}/",
        operations: &FLOW_OPERATIONS,
        parameter: SESSION_PARAMETER,
        description: "The token in a browser's own URLs, or that of a login flow. That of `cdp_ws_url` is valid for all routes of the browser, that of a live view or of a replay only for it, and that of a login flow for its connection. `Authorization` takes precedence, and may have the token of a login flow, too.",
    }),
};

/// The code of a 403 because the project of the request is archived.
const PROJECT_ARCHIVED: &str = "project_archived";
/// `Retry-After` of requests for which the disk has no room.
const DISK_FULL_RETRY_AFTER: Duration = Duration::from_secs(60);
/// `Retry-After` of requests for which the database was not available.
const DATABASE_RETRY_AFTER: Duration = Duration::from_secs(2);

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::DiskFull(cause) => {
                tracing::error!(%cause, "the disk of the database is full");
                let message = "the disk of the server is full";
                ApiError::unavailable(message, DISK_FULL_RETRY_AFTER)
            }
            StoreError::Unavailable(cause) => {
                tracing::error!(%cause, "the database is unavailable");
                let message = "the database of the server is unavailable";
                ApiError::unavailable(message, DATABASE_RETRY_AFTER)
            }
            StoreError::InvalidText(cause) => {
                tracing::debug!(%cause, "a text cannot be stored");
                ApiError::bad_request("a text contains the character NUL")
            }
            error @ (StoreError::UniqueViolation(_)
            | StoreError::Corrupt { .. }
            | StoreError::Database(_)) => ApiError::internal(error),
        }
    }
}

/// Returns the routes that need no credential.
pub fn open() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(health::health))
        .merge(console::router())
        .merge(well_known::router())
        .merge(auth::open_router())
        .merge(login::router())
}

/// Returns the routes that need a credential. `agent` is the OpenAPI document of the routes that
/// are forwarded to agents.
pub fn guarded(agent: OpenApi) -> OpenApiRouter<Control> {
    let mut router = OpenApiRouter::new()
        .merge(audit_logs::router())
        .merge(auth::router())
        .merge(browser_pools::router())
        .merge(browsers::router(agent))
        .merge(credentials::router())
        .merge(fleet::router())
        .merge(org::router())
        .merge(profiles::router());
    sunset::document(router.get_openapi_mut());
    router
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_and_unavailable_database_are_temporary_errors() {
        for temporary in [
            StoreError::DiskFull("no room".to_owned()),
            StoreError::Unavailable("refused".to_owned()),
        ] {
            let error = ApiError::from(temporary);
            let found = (error.status().as_u16(), &*error.body().code);
            assert_eq!(found, (503, "unavailable"));
        }
        let other = ApiError::from(StoreError::Corrupt {
            field: "time",
            value: "-".to_owned(),
        });
        assert_eq!(other.status(), 500);
    }
}
