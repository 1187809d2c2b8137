//! Mouse and keyboard of the browser: on its X screen, or on the front page if it is headless.
//!
//! ```text
//!  batch of actions ──► plan (validated completely) ──► Input ──────► X server
//!                                                  └──► PageInput ──► front page (DevTools)
//!  viewer's input ────► LiveInput ────────────────────► Input
//! ```
//!
//! - [`batch`]: validates a batch, waits for its turn and converts its result.
//! - [`plan`]: converts actions to steps; [`path`] computes pointer paths.
//! - [`page`]: the input of a headless browser. The input of a screen is
//!   [`crate::system::x11::input`].
//! - [`live_input`]: a viewer's input, which is performed between the steps of a batch.
//!
//! The input thread (or, headless, the page's task) owns what is held. A background task passes
//! the current screen to the input thread.

use std::{io, time::Duration};

use tokio::time::{sleep, timeout};

use super::chromium::{Chromium, NoScreen, NotReady};
use crate::{
    api::computer::{ActionResult, ActionType, InvalidAction},
    shutdown::Shutdown,
    system::x11::{
        input::{Input, InputError, PlayError, Point, ScreenState},
        server::DisplayAccess,
    },
};

mod batch;
mod live_input;
mod page;
mod path;
mod plan;

use page::PageInput;

pub use live_input::LiveInput;
pub use page::PageError;

/// The time the screen may take to report its state.
const VIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay before the current screen is passed to the input thread again after a full queue.
const ATTEND_RETRY_DELAY: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum ComputerError {
    #[error(transparent)]
    NoScreen(#[from] NoScreen),
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error("{} actions are invalid", .0.len())]
    Invalid(Vec<InvalidAction>),
    #[error("mouse and keyboard were in use by other clients for {} s", .0.as_secs())]
    Busy(Duration),
    #[error("the screen did not respond within {} s", VIEW_TIMEOUT.as_secs())]
    ViewTimeout,
    #[error("the input did not end within {} s", .0.as_secs())]
    ResultTimeout(Duration),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Page(#[from] PageError),
    #[error(transparent)]
    Failed(Box<FailedAction>),
}

/// An action that failed or is not confirmed. Later actions were not started, or are not confirmed
/// either.
#[derive(Debug, thiserror::Error)]
#[error("action {index} ({}) failed: {cause}", kind.name())]
pub struct FailedAction {
    pub index: usize,
    pub kind: ActionType,
    pub cause: PlayError,
    /// The results of all actions up to and including this one.
    pub results: Vec<ActionResult>,
}

/// The browser's mouse and keyboard. Clones share them.
#[derive(Clone)]
pub struct Computer {
    chromium: Chromium,
    input: Input,
    page: PageInput,
}

/// The target of input.
#[derive(Clone)]
enum Surface {
    Screen(DisplayAccess),
    /// The front page of a headless browser.
    Page,
}

impl Computer {
    /// Starts the input thread and tasks. `on_cursor` is called with whether the pointer is hidden
    /// whenever that changes.
    pub fn start(
        chromium: Chromium,
        on_cursor: impl Fn(bool) + Send + 'static,
        shutdown: &Shutdown,
    ) -> io::Result<Self> {
        let input = Input::start(on_cursor)?;
        shutdown.spawn(follow_screen(
            chromium.clone(),
            input.clone(),
            shutdown.clone(),
        ));
        Ok(Self {
            page: PageInput::start(chromium.clone(), shutdown),
            chromium,
            input,
        })
    }

    /// Returns the pointer's position.
    pub async fn position(&self) -> Result<Point, ComputerError> {
        match self.surface()? {
            Surface::Page => Ok(self.page.position()),
            screen => Ok(self.view(screen).await?.pointer),
        }
    }

    /// Waits until the page has received the last scroll, which a screenshot should show.
    pub async fn scrolled(&self) {
        self.input.scrolled().await;
    }

    fn surface(&self) -> Result<Surface, NoScreen> {
        let access = self.chromium.optional_screen()?;
        Ok(access.map_or(Surface::Page, Surface::Screen))
    }

    async fn view(&self, surface: Surface) -> Result<ScreenState, ComputerError> {
        let view = async {
            match surface {
                Surface::Screen(access) => Ok(self.input.view(access).await?),
                Surface::Page => Ok(self.page.view().await?),
            }
        };
        let state = timeout(VIEW_TIMEOUT, view).await;
        state.map_err(|_| ComputerError::ViewTimeout)?
    }
}

/// Passes the current screen to the input thread until shutdown.
async fn follow_screen(chromium: Chromium, input: Input, shutdown: Shutdown) {
    let mut state = chromium.watch();
    loop {
        let attended = input.attend(chromium.screen().ok());
        if let Err(error) = &attended {
            tracing::debug!(%error, "cannot pass the screen to the input thread");
        }
        tokio::select! {
            () = shutdown.requested() => return,
            () = sleep(ATTEND_RETRY_DELAY), if matches!(attended, Err(InputError::Full)) => {}
            changed = state.changed() => if changed.is_err() {
                return;
            },
        }
    }
}
