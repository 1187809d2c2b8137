//! `/computer/clipboard`.

use super::TAG;
use crate::{
    agent::{
        clipboard::ClipboardError,
        routes::{FULL_RETRY_DELAY, RESTART_RETRY_DELAY},
    },
    http::ApiError,
    system::x11::clipboard::ReadError,
};

pub(crate) mod read;
pub(crate) mod write;

impl From<ClipboardError> for ApiError {
    fn from(error: ClipboardError) -> Self {
        let message = error.to_string();
        match error {
            ClipboardError::NoScreen(error) => error.into(),
            ClipboardError::TooLarge(size) => {
                ApiError::payload_too_large(message).detail("text", format!("has {size} bytes"))
            }
            ClipboardError::TooManyReads | ClipboardError::TooManyWrites => {
                ApiError::limit_exceeded(message, FULL_RETRY_DELAY)
            }
            ClipboardError::WriteTimeout(_) => ApiError::timeout(message),
            ClipboardError::Read(error) => error.into(),
            ClipboardError::Write(cause) => {
                tracing::error!(%cause, "cannot write the clipboard");
                ApiError::unavailable(message, RESTART_RETRY_DELAY)
            }
            ClipboardError::ShuttingDown => ApiError::unavailable(message, RESTART_RETRY_DELAY),
        }
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        let message = error.to_string();
        match error {
            ReadError::Display(cause) => {
                tracing::warn!(%cause, "cannot read the clipboard");
                ApiError::unavailable("the display cannot be reached", RESTART_RETRY_DELAY)
            }
            ReadError::Timeout(_) => ApiError::timeout(message),
            ReadError::TooLarge => ApiError::payload_too_large(message),
            ReadError::Refused => ApiError::bad_gateway(message),
        }
    }
}
