//! Mouse and keyboard of a headless browser: sends input to the front page over DevTools.
//!
//! A single task plays one batch after the other. Positions are relative to the top left corner of
//! the page's viewport.
//!
//! ```text
//!  PageInput::play ──► queue of batches ──► PagePlayer ──DevTools──► front page
//!                                            └─ InputState: what is held on this page
//! ```
//!
//! - [`player`]: the task. It switches to the front page before each batch.
//! - [`input_state`]: the buttons, keys and clicks that the next event depends on.
//! - [`keyboard`]: the DOM events of each key of a US keyboard.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::{mpsc, watch};

use crate::{
    agent::chromium::{
        Chromium,
        front::{FrontError, FrontPage},
    },
    shutdown::Shutdown,
    system::{
        cdp::connection::CdpError,
        x11::input::{Batch, PlayResult, Point, ScreenState, Size, Step},
    },
};

mod input_state;
mod keyboard;
mod player;

pub(super) use player::BATCH_GRACE_PERIOD;
use player::PagePlayer;

/// Batches that may be queued.
const BATCH_QUEUE_CAPACITY: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("the input queue is full")]
    Full,
    #[error(transparent)]
    Front(#[from] FrontError),
    #[error("the input task has terminated")]
    Terminated,
}

impl From<CdpError> for PageError {
    fn from(error: CdpError) -> Self {
        Self::Front(error.into())
    }
}

/// The handle of the task. Clones share it.
#[derive(Clone)]
pub(super) struct PageInput {
    chromium: Chromium,
    batches: mpsc::Sender<Batch<PageError>>,
    busy: Arc<AtomicBool>,
    pointer: watch::Receiver<Point>,
}

impl PageInput {
    pub(super) fn start(chromium: Chromium, shutdown: &Shutdown) -> Self {
        let (batches, batch_receiver) = mpsc::channel(BATCH_QUEUE_CAPACITY);
        let (pointer_sender, pointer) = watch::channel(Point::default());
        let busy = Arc::new(AtomicBool::new(false));
        let player = PagePlayer::new(chromium.clone(), shutdown.clone(), pointer_sender);
        shutdown.spawn(player.run(batch_receiver, busy.clone()));
        Self {
            chromium,
            batches,
            busy,
            pointer,
        }
    }

    /// Returns the pointer's last position.
    pub(super) fn position(&self) -> Point {
        *self.pointer.borrow()
    }

    /// Returns whether a new batch would have to wait.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) || self.batches.capacity() < BATCH_QUEUE_CAPACITY
    }

    /// Returns the front page's state. Does not wait for the batch in progress.
    pub(super) async fn view(&self) -> Result<ScreenState, PageError> {
        let page = self.chromium.front_page().await?;
        let size = viewport_size(&page).await?;
        Ok(ScreenState {
            size,
            pointer: self.position().clamped(size),
        })
    }

    /// Plans a batch when its turn comes and plays it. Plays nothing if the plan fails. Dropping
    /// the future aborts the batch and releases what it holds.
    pub(super) async fn play<E: Send + 'static>(
        &self,
        plan: impl FnOnce(Size, Option<Point>) -> Result<Vec<Vec<Step>>, E> + Send + 'static,
    ) -> Result<Result<PlayResult, E>, PageError> {
        let (batch, outcome) = Batch::new(plan);
        self.batches.try_send(batch).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => PageError::Full,
            mpsc::error::TrySendError::Closed(_) => PageError::Terminated,
        })?;
        outcome.wait().await.unwrap_or(Err(PageError::Terminated))
    }
}

async fn viewport_size(page: &FrontPage) -> Result<Size, PageError> {
    let (width, height) = page.session.size().await?;
    let side = |side: u32| side.min(u16::MAX.into());
    Ok(Size {
        width: side(width),
        height: side(height),
    })
}
