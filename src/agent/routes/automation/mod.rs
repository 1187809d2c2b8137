//! `/automation`.

use std::time::Duration;

use crate::{agent::automation::ExecuteError, http::ApiError};

pub(crate) mod execute;

const TAG: &str = crate::api::groups::AUTOMATION;

/// The delay before a client retries while all workers are busy: a short script ends within it.
const BUSY_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The delay before a client retries while the browser is down: about the time of a restart.
const DOWN_RETRY_DELAY: Duration = Duration::from_secs(2);

impl From<ExecuteError> for ApiError {
    fn from(error: ExecuteError) -> Self {
        let message = error.to_string();
        match error {
            ExecuteError::Busy(_)
            | ExecuteError::ExecutorQueueFull(_)
            | ExecuteError::TooManyWaiting
            | ExecuteError::ExecutorsFull => ApiError::limit_exceeded(message, BUSY_RETRY_DELAY),
            ExecuteError::BrowserDown | ExecuteError::Stopping => {
                ApiError::unavailable(message, DOWN_RETRY_DELAY)
            }
            ExecuteError::NoWorker(cause) => {
                // The cause is for the operator: it may name programs and directories.
                tracing::error!(%cause, "cannot start a script worker");
                ApiError::unavailable(message, DOWN_RETRY_DELAY)
            }
        }
    }
}
