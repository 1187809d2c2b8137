//! `/login`.

use super::RESTART_RETRY_DELAY;
use crate::{
    agent::{chromium::front::FrontError, credentials::login::LoginPageError},
    http::ApiError,
};

pub(crate) mod act;
pub(crate) mod inspect;
pub(crate) mod open;

const TAG: &str = crate::api::groups::CREDENTIALS;

impl From<LoginPageError> for ApiError {
    fn from(error: LoginPageError) -> Self {
        let message = error.to_string();
        match error {
            // Nothing was clicked, so the page may be inspected again.
            LoginPageError::PageChanged => ApiError::conflict(message).code("page_changed"),
            LoginPageError::WrongKind => ApiError::bad_field("kind", message),
            LoginPageError::OriginRefused(_) | LoginPageError::TargetRefused => {
                ApiError::forbidden(message).code("origin_refused")
            }
            LoginPageError::NotClickable(_) => ApiError::conflict(message).code("not_clickable"),
            LoginPageError::Timeout => ApiError::timeout(message),
            LoginPageError::Front(FrontError::NotReady(error)) => error.into(),
            LoginPageError::Front(cause @ (FrontError::NoTab | FrontError::Cdp(_))) => {
                tracing::warn!(%cause, "cannot reach the page in front");
                ApiError::unavailable("the page does not respond", RESTART_RETRY_DELAY)
            }
        }
    }
}
