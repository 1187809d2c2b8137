//! `/automation`

use std::time::Duration;

use crate::{agent::automation::ExecuteError, http::ApiError};

pub mod execute;

const TAG: &str = crate::api::groups::AUTOMATION;

/// Long enough for a short script to end.
const BUSY_RETRY: Duration = Duration::from_secs(1);
/// A restart of the browser takes about this long.
const DOWN_RETRY: Duration = Duration::from_secs(2);

impl From<ExecuteError> for ApiError {
    fn from(error: ExecuteError) -> Self {
        let message = error.to_string();
        match error {
            ExecuteError::Busy(_)
            | ExecuteError::ExecutorQueueFull(_)
            | ExecuteError::TooManyWaiting
            | ExecuteError::ExecutorsFull => ApiError::limit_exceeded(message, BUSY_RETRY),
            ExecuteError::BrowserDown | ExecuteError::Stopping => {
                ApiError::unavailable(message, DOWN_RETRY)
            }
            ExecuteError::NoWorker(cause) => {
                // What keeps workers from starting is the operator's affair.
                tracing::error!(%cause, "no script worker");
                ApiError::unavailable(message, DOWN_RETRY)
            }
        }
    }
}
