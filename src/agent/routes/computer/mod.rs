//! `/computer`: mouse, keyboard, clipboard and screenshots.
//!
//! Each single action is a batch of one. The errors of [`crate::agent::computer`] and
//! [`crate::agent::screenshots`] are mapped to API errors here.

use super::{FULL_RETRY_DELAY, RESTART_RETRY_DELAY};
use crate::{
    agent::{
        chromium::front::FrontError,
        computer::{Computer, ComputerError, FailedAction, PageError},
        screenshots::ScreenshotError,
    },
    api::{ErrorDetail, agent::Done, computer::Action},
    http::{ApiError, ApiResult, FieldErrors, Json},
    system::x11::input::{InputError, PlayError},
};

pub(crate) mod batch;
pub(crate) mod click_mouse;
pub(crate) mod clipboard;
pub(crate) mod cursor;
pub(crate) mod drag_mouse;
pub(crate) mod get_mouse_position;
pub(crate) mod move_mouse;
pub(crate) mod press_key;
pub(crate) mod screenshot;
pub(crate) mod scroll;
pub(crate) mod r#type;

const TAG: &str = crate::api::groups::COMPUTER;

/// Runs a batch of one action.
async fn perform(computer: &Computer, action: Action) -> ApiResult<Json<Done>> {
    computer.perform_one(action).await?;
    Ok(Json(Done { ok: true }))
}

impl From<ComputerError> for ApiError {
    fn from(error: ComputerError) -> Self {
        let message = error.to_string();
        match error {
            ComputerError::NoScreen(error) => error.into(),
            ComputerError::NotReady(error) => error.into(),
            ComputerError::Invalid(problems) => {
                let mut errors = FieldErrors::default();
                for problem in problems {
                    errors.add(problem.field, problem.message);
                }
                errors.into()
            }
            ComputerError::Busy(_) => ApiError::unavailable(message, FULL_RETRY_DELAY),
            ComputerError::ViewTimeout => ApiError::unavailable(message, RESTART_RETRY_DELAY),
            ComputerError::Input(InputError::Full) => {
                ApiError::unavailable(message, FULL_RETRY_DELAY)
            }
            ComputerError::Input(InputError::Screen(cause)) => {
                tracing::warn!(%cause, "cannot reach the screen");
                ApiError::unavailable("the screen cannot be reached", RESTART_RETRY_DELAY)
            }
            // Some of its actions may have been run.
            ComputerError::ResultTimeout(_) => ApiError::internal(message).permanent(),
            ComputerError::Input(InputError::Terminated)
            | ComputerError::Page(PageError::Terminated) => ApiError::internal(message),
            ComputerError::Page(PageError::Full) => {
                ApiError::unavailable(message, FULL_RETRY_DELAY)
            }
            ComputerError::Page(PageError::Front(error)) => front_error(error),
            ComputerError::Failed(failure) => batch_failure(&failure),
        }
    }
}

/// Maps the failure to reach the page in front.
fn front_error(error: FrontError) -> ApiError {
    match error {
        FrontError::NotReady(error) => error.into(),
        cause @ (FrontError::NoTab | FrontError::Cdp(_)) => {
            tracing::warn!(%cause, "cannot reach the page in front");
            ApiError::unavailable("the page does not respond", RESTART_RETRY_DELAY)
        }
    }
}

/// Maps a failed action. The actions before it were run, so the request must not be repeated.
fn batch_failure(failure: &FailedAction) -> ApiError {
    let detail = |code: &str, message: String| ErrorDetail {
        code: code.to_owned(),
        message,
    };
    let results = serde_json::to_string(&failure.results).unwrap_or_default();
    let (index, kind) = (failure.index, failure.kind.name());
    let cause = failure.cause.to_string();
    let (code, reason) = match failure.cause {
        PlayError::ScreenLost(_) => ("screen_lost", "the screen, or the page, is gone".to_owned()),
        PlayError::Unresponsive(_) => ("not_taken", cause),
        PlayError::NoSpareKeycode => ("no_key", cause),
        PlayError::Overrun(_) => ("too_long", cause),
    };
    ApiError::internal(failure)
        .message(format!("action {index} ({kind}) failed"))
        .inner(code, reason)
        .details([
            detail("index", index.to_string()),
            detail("type", kind.to_owned()),
            detail("results", results),
        ])
        .permanent()
}

impl From<ScreenshotError> for ApiError {
    fn from(error: ScreenshotError) -> Self {
        let message = error.to_string();
        match error {
            ScreenshotError::NoScreen(error) => error.into(),
            ScreenshotError::OutOfBounds(_) => ApiError::bad_field("region", message),
            ScreenshotError::Busy => ApiError::unavailable(message, RESTART_RETRY_DELAY),
            ScreenshotError::Screen(cause) => {
                tracing::warn!(%cause, "cannot take a screenshot");
                ApiError::unavailable("the screen does not respond", RESTART_RETRY_DELAY)
            }
            ScreenshotError::Page(error) => front_error(error),
            ScreenshotError::Decode(cause) | ScreenshotError::Panic(cause) => {
                ApiError::internal(cause)
            }
        }
    }
}
