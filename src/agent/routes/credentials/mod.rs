//! `/credentials`.

use super::RESTART_RETRY_DELAY;
use crate::{
    agent::{chromium::front::FrontError, credentials::FillError},
    http::ApiError,
};

pub(crate) mod fill;
pub(crate) mod page;

const TAG: &str = crate::api::groups::CREDENTIALS;

impl From<FillError> for ApiError {
    fn from(error: FillError) -> Self {
        let message = error.to_string();
        match error {
            FillError::UnknownField(index) => {
                ApiError::bad_field(format!("fields[{index}].name"), message)
            }
            FillError::InvalidSelector(index) => {
                ApiError::bad_field(format!("fields[{index}].selector"), message)
            }
            FillError::OriginRefused(_) => ApiError::forbidden(message).code("origin_refused"),
            FillError::Ambiguous(names) => {
                let error = ApiError::conflict(message).code("ambiguous_fields");
                let detailed = names.into_iter().fold(error, |error, name| {
                    error.detail(name, "matches several fields equally well")
                });
                detailed.permanent()
            }
            // Nothing was written, so the request may be repeated.
            FillError::PageChanged => ApiError::conflict(message).code("page_changed"),
            FillError::Timeout => ApiError::timeout(message),
            FillError::Front(FrontError::NotReady(error)) => error.into(),
            FillError::Front(cause @ (FrontError::NoTab | FrontError::Cdp(_))) => {
                tracing::warn!(%cause, "cannot reach the page in front");
                ApiError::unavailable("the page does not respond", RESTART_RETRY_DELAY)
            }
        }
    }
}
