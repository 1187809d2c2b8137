//! `GET /live`, and what it shares with `GET /live/view`.

use axum::{
    extract::State,
    response::{Html, IntoResponse, Response},
};
use http::{
    HeaderName, HeaderValue,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
};

use super::FULL_RETRY;
use crate::{
    agent::{
        Agent,
        live::{
            EnterError,
            page::{Page, page},
        },
    },
    api::ErrorBody,
    http::{ApiError, ApiResult},
};

pub mod socket;
pub mod view;

pub const TAG: &str = "live view";

/// The live view
///
/// A page that shows the browser's screen as it is, and passes on mouse, keyboard and clipboard.
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
    agent.live.is_possible()?;
    let Page {
        html,
        script,
        style,
    } = page();
    let policy = format!(
        "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src blob: data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'"
    );
    let mut answer = Html(html.as_str()).into_response();
    let headers: [(HeaderName, HeaderValue); 4] = [
        (
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_str(&policy).map_err(ApiError::internal)?,
        ),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // The page's address may bear a token.
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    answer.headers_mut().extend(headers);
    Ok(answer)
}

impl From<EnterError> for ApiError {
    fn from(error: EnterError) -> Self {
        match error {
            EnterError::NoScreen(error) => error.into(),
            EnterError::Full => ApiError::limit_exceeded(error.to_string(), FULL_RETRY),
        }
    }
}
