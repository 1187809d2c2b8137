//! `/logs`.

use super::{FULL_RETRY_DELAY, fs::file_error};
use crate::{
    agent::{fs::watches::StartWatchError, logs::OpenLogError},
    http::ApiError,
};

pub(crate) mod stream;

const TAG: &str = crate::api::groups::LOGS;

impl From<OpenLogError> for ApiError {
    fn from(error: OpenLogError) -> Self {
        match error {
            OpenLogError::LimitReached => {
                ApiError::limit_exceeded(error.to_string(), FULL_RETRY_DELAY)
            }
            OpenLogError::File(error) => file_error("path", error),
            OpenLogError::Watch(error) => StartWatchError::Watch(error).into(),
        }
    }
}
