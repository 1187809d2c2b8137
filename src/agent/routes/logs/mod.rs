//! `/logs`

use super::{FULL_RETRY, fs::refusal};
use crate::{
    agent::{fs::watches::StartError, logs::OpenError},
    http::ApiError,
};

pub mod stream;

const TAG: &str = "logs";

impl From<OpenError> for ApiError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Full => ApiError::limit_exceeded(error.to_string(), FULL_RETRY),
            OpenError::File(error) => refusal("path", error),
            OpenError::Watch(error) => StartError::Watch(error).into(),
        }
    }
}
