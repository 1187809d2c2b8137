//! `/replays`

use std::time::Duration;

use super::{FULL_RETRY, RETRY_AFTER};
use crate::{
    agent::replays::{ReplayError, StartError},
    http::ApiError,
};

pub mod collection;
pub mod item;
pub mod stop;

const TAG: &str = crate::api::groups::REPLAYS;

/// How soon to ask again for one that is being recorded.
const RECORDING_RETRY: Duration = Duration::from_secs(5);

impl From<StartError> for ApiError {
    fn from(error: StartError) -> Self {
        let message = error.to_string();
        match error {
            StartError::NoScreen(error) => error.into(),
            StartError::NoEncoder => ApiError::conflict(message).code("no_encoder").permanent(),
            StartError::NoAudio => ApiError::conflict(message).code("no_audio").permanent(),
            StartError::Busy | StartError::Full => ApiError::limit_exceeded(message, FULL_RETRY),
            StartError::Stopping => ApiError::unavailable(message, FULL_RETRY),
            StartError::Screen(cause) => {
                tracing::warn!(%cause, "the screen cannot be recorded");
                ApiError::unavailable("the screen does not answer", RETRY_AFTER)
            }
            StartError::Io(cause) if cause.kind() == std::io::ErrorKind::StorageFull => {
                ApiError::limit_exceeded("the disk is full", FULL_RETRY)
            }
            StartError::Io(cause) => ApiError::internal(cause),
        }
    }
}

impl From<ReplayError> for ApiError {
    fn from(error: ReplayError) -> Self {
        let message = error.to_string();
        match error {
            ReplayError::NotFound | ReplayError::Empty => ApiError::not_found(message),
            ReplayError::Recording => ApiError::conflict(message),
            ReplayError::GivenUp(_) => ApiError::internal(message),
            ReplayError::Io(cause) => ApiError::internal(cause),
        }
    }
}
