//! `/replays`.

use std::time::Duration;

use super::{FULL_RETRY_DELAY, RESTART_RETRY_DELAY};
use crate::{
    agent::replays::{ReplayError, StartReplayError},
    http::ApiError,
};

pub(crate) mod collection;
pub(crate) mod item;
pub(crate) mod stop;
pub(crate) mod video;

const TAG: &str = crate::api::groups::REPLAYS;

/// The delay before a client retries the download of a replay that is being recorded.
const RECORDING_RETRY_DELAY: Duration = Duration::from_secs(5);

impl From<StartReplayError> for ApiError {
    fn from(error: StartReplayError) -> Self {
        let message = error.to_string();
        match error {
            StartReplayError::NoScreen(error) => error.into(),
            StartReplayError::NoEncoder => {
                ApiError::conflict(message).code("no_encoder").permanent()
            }
            StartReplayError::NoAudio => ApiError::conflict(message).code("no_audio").permanent(),
            StartReplayError::LimitReached | StartReplayError::QuotaExceeded => {
                ApiError::limit_exceeded(message, FULL_RETRY_DELAY)
            }
            StartReplayError::ShuttingDown => ApiError::unavailable(message, FULL_RETRY_DELAY),
            StartReplayError::Screen(cause) => {
                tracing::warn!(%cause, "cannot record the screen");
                ApiError::unavailable("the screen does not respond", RESTART_RETRY_DELAY)
            }
            StartReplayError::Io(cause) if cause.kind() == std::io::ErrorKind::StorageFull => {
                ApiError::limit_exceeded("the disk is full", FULL_RETRY_DELAY)
            }
            StartReplayError::Io(cause) => ApiError::internal(cause),
        }
    }
}

impl From<ReplayError> for ApiError {
    fn from(error: ReplayError) -> Self {
        let message = error.to_string();
        match error {
            ReplayError::NotFound | ReplayError::Empty => ApiError::not_found(message),
            ReplayError::Recording => ApiError::conflict(message),
            ReplayError::Aborted(_) => ApiError::internal(message),
            ReplayError::Io(cause) => ApiError::internal(cause),
        }
    }
}
