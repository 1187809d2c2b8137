//! `/logs`

use std::time::Duration;

use super::fs::refusal;
use crate::{
    agent::{fs::watches::StartError, logs::OpenError},
    http::ApiError,
};

pub mod stream;

const TAG: &str = "logs";

/// Readers come and go with their clients.
const FULL_RETRY: Duration = Duration::from_secs(5);

impl From<OpenError> for ApiError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Full => ApiError::limit_exceeded(error.to_string(), FULL_RETRY),
            OpenError::File(error) => refusal("path", error),
            OpenError::Watch(error) => StartError::Watch(error).into(),
        }
    }
}
