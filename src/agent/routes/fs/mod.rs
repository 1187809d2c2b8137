//! `/fs`

use std::time::Duration;

use crate::{agent::fs::watches::StartError, http::ApiError, system::watcher::WatchError};

pub mod watch;

const TAG: &str = "files";

/// Watches come and go with what uses them.
const FULL_RETRY: Duration = Duration::from_secs(5);

impl From<StartError> for ApiError {
    fn from(error: StartError) -> Self {
        let message = format!("path: {error}");
        let wrong = |what: String| ApiError::bad_request(message.clone()).detail("path", what);
        match error {
            StartError::Full => ApiError::limit_exceeded(error.to_string(), FULL_RETRY),
            StartError::Stopping => ApiError::unavailable(error.to_string(), FULL_RETRY),
            StartError::Watch(error) => match error {
                WatchError::NotFound => ApiError::not_found(message),
                WatchError::NotADirectory | WatchError::Denied => wrong(error.to_string()),
                WatchError::SystemLimit => ApiError::limit_exceeded(error.to_string(), FULL_RETRY),
                WatchError::Other(cause) => ApiError::internal(cause),
            },
        }
    }
}
