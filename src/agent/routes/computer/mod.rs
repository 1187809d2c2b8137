//! `/computer`

use super::{FULL_RETRY, RETRY_AFTER};
use crate::{
    agent::{
        Agent,
        chromium::front::FrontError,
        computer::{ComputerError, Failure, PageError},
        screenshots::ScreenshotError,
    },
    api::{ErrorDetail, agent::Done, computer::Action},
    http::{ApiError, ApiResult, FieldErrors, Json},
    system::x11::input::{InputError, PlayError},
};

pub mod batch;
pub mod click_mouse;
pub mod clipboard;
pub mod cursor;
pub mod drag_mouse;
pub mod get_mouse_position;
pub mod move_mouse;
pub mod press_key;
pub mod screenshot;
pub mod scroll;
pub mod r#type;

const TAG: &str = crate::api::groups::COMPUTER;

async fn perform(agent: &Agent, action: Action) -> ApiResult<Json<Done>> {
    agent.computer.perform_one(action).await?;
    Ok(Json(Done { ok: true }))
}

impl From<ComputerError> for ApiError {
    fn from(error: ComputerError) -> Self {
        let message = error.to_string();
        match error {
            ComputerError::NoScreen(error) => error.into(),
            ComputerError::NotReady(error) => error.into(),
            ComputerError::Refused(problems) => {
                let mut errors = FieldErrors::default();
                for problem in problems {
                    errors.add(problem.field, problem.what);
                }
                errors.into()
            }
            ComputerError::Turn => ApiError::unavailable(message, FULL_RETRY),
            ComputerError::Deadline => ApiError::unavailable(message, RETRY_AFTER),
            ComputerError::Input(InputError::Full) => ApiError::unavailable(message, FULL_RETRY),
            ComputerError::Input(InputError::Screen(cause)) => {
                tracing::warn!(%cause, "the screen cannot be reached");
                ApiError::unavailable("the screen cannot be reached", RETRY_AFTER)
            }
            // Some of it may have been done.
            ComputerError::Endless(_) => ApiError::internal(message).permanent(),
            ComputerError::Input(InputError::Ended) | ComputerError::Page(PageError::Ended) => {
                ApiError::internal(message)
            }
            ComputerError::Page(PageError::Full) => ApiError::unavailable(message, FULL_RETRY),
            ComputerError::Page(PageError::Front(error)) => unreached(error),
            ComputerError::Failed(failure) => failed(&failure),
        }
    }
}

/// The page in front.
fn unreached(error: FrontError) -> ApiError {
    match error {
        FrontError::NotReady(error) => error.into(),
        cause @ (FrontError::NoTab | FrontError::Devtools(_) | FrontError::Cdp(_)) => {
            tracing::warn!(%cause, "the page in front cannot be reached");
            ApiError::unavailable("the page does not answer", RETRY_AFTER)
        }
    }
}

/// What was done before it stays done: it is not to be repeated.
fn failed(failure: &Failure) -> ApiError {
    let detail = |code: &str, message: String| ErrorDetail {
        code: code.to_owned(),
        message,
    };
    let results = serde_json::to_string(&failure.results).unwrap_or_default();
    let (index, kind) = (failure.index, failure.kind.name());
    let cause = failure.cause.to_string();
    let (code, why) = match failure.cause {
        PlayError::Screen(_) => (
            "screen_lost",
            "the screen, or its page, went away".to_owned(),
        ),
        PlayError::NotTaken(_) => ("not_taken", cause),
        PlayError::NoKey => ("no_key", cause),
        PlayError::TooLong(_) => ("too_long", cause),
    };
    ApiError::internal(failure)
        .message(format!("action {index} ({kind}) failed"))
        .inner(code, why)
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
            ScreenshotError::Busy => ApiError::unavailable(message, RETRY_AFTER),
            ScreenshotError::Screen(cause) => {
                tracing::warn!(%cause, "no screenshot could be taken");
                ApiError::unavailable("the screen does not answer", RETRY_AFTER)
            }
            ScreenshotError::Page(error) => unreached(error),
            ScreenshotError::Decode(cause) | ScreenshotError::Panic(cause) => {
                ApiError::internal(cause)
            }
        }
    }
}
