//! The live view: streams the browser's screen to viewers and plays their mouse, keyboard and
//! clipboard input.
//!
//! Opening a view yields three parts. The WebSocket handler owns all of them and polls them
//! concurrently; dropping them releases held keys and buttons and frees the viewer's permit.
//!
//! ```text
//!  X server ── FrameSource (one thread per viewer) ──┐
//!  browser state ────────────────────────────────────┼─► ViewerStream ─► socket
//!  notices, clipboard ◄── InputHandler ──────────────┘
//!                              ▲
//!  X input thread, clipboard ◄─┤
//!                              │
//!  InputWorker ◄── viewer_queue (bounded) ◄── ViewerInbox ◄── socket
//!                                                  │
//!  FrameSource ◄── FrameAcks ("seen" messages) ◄───┘
//! ```
//!
//! - [`viewer_stream`]: everything that is sent to one viewer, in order.
//! - [`frame_source`]: the thread that captures and encodes frames; [`frame_pacer`] decides when
//!   the next frame is due and at which quality, [`frame`] encodes it.
//! - [`viewer_input`]: receives a viewer's messages and performs them; [`viewer_queue`] is the
//!   bounded queue between both halves.
//! - [`keyboard`], [`wheel`]: convert DOM keys and scrolled pixels to X11 keys and wheel notches.
//!
//! A view without control has no queue and no input handler: any input message closes it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::{
    chromium::{Chromium, NoScreen},
    clipboard::Clipboard,
    computer::Computer,
    cursor::CursorShown,
};

mod frame;
mod frame_pacer;
mod frame_source;
mod keyboard;
mod viewer_input;
mod viewer_queue;
mod viewer_stream;
mod wheel;

use frame_source::FrameAcks;
use viewer_input::InputHandler;

pub use frame_source::FrameEvent;
pub use viewer_input::{InputWorker, ViewerInbox};
pub use viewer_stream::ViewerStream;

/// The number of concurrent live views. Each has a thread that captures and encodes frames while
/// the screen changes.
pub const MAX_VIEWERS: usize = 8;
/// Messages (other than frames) that wait to be sent to one viewer.
const MESSAGE_QUEUE_CAPACITY: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum LiveViewError {
    #[error(transparent)]
    NoScreen(#[from] NoScreen),
    #[error("live view limit reached ({MAX_VIEWERS})")]
    LimitReached,
}

/// Opens live views of the browser's screen.
#[derive(Clone)]
pub struct LiveViews {
    chromium: Chromium,
    computer: Computer,
    clipboard: Clipboard,
    cursor: CursorShown,
    permits: Arc<Semaphore>,
}

impl LiveViews {
    pub fn new(
        chromium: Chromium,
        computer: Computer,
        clipboard: Clipboard,
        cursor: CursorShown,
    ) -> Self {
        Self {
            chromium,
            computer,
            clipboard,
            cursor,
            permits: Arc::new(Semaphore::new(MAX_VIEWERS)),
        }
    }

    /// Fails if this browser will never have a screen to show.
    pub fn check_available(&self) -> Result<(), LiveViewError> {
        match self.chromium.screen() {
            Err(error @ NoScreen::Headless) => Err(error.into()),
            Ok(_) | Err(NoScreen::Down) => Ok(()),
        }
    }

    /// Opens a view for one viewer. `control` lets the viewer use mouse, keyboard and clipboard.
    pub fn open(
        &self,
        control: bool,
    ) -> Result<(ViewerStream, ViewerInbox, InputWorker), LiveViewError> {
        self.check_available()?;
        let permit = self.permits.clone().try_acquire_owned();
        let permit = ViewerPermit::new(permit.map_err(|_| LiveViewError::LimitReached)?);
        let acks = Arc::<FrameAcks>::default();
        let (message_sender, messages) = mpsc::channel(MESSAGE_QUEUE_CAPACITY);
        let (sender, input) = if control {
            let handler = InputHandler::new(
                self.computer.clone(),
                self.clipboard.clone(),
                message_sender,
            );
            let (sender, receiver) = viewer_queue::channel();
            (Some(sender), Some((receiver, handler)))
        } else {
            (None, None)
        };
        let stream = ViewerStream::new(
            self.chromium.clone(),
            self.cursor.clone(),
            control,
            messages,
            acks.clone(),
            permit,
        );
        let inbox = ViewerInbox::new(acks, sender);
        Ok((stream, inbox, InputWorker::new(input)))
    }
}

/// Counts one viewer against [`MAX_VIEWERS`] until it is dropped.
struct ViewerPermit(#[expect(dead_code, reason = "held until dropped")] OwnedSemaphorePermit);

impl ViewerPermit {
    fn new(permit: OwnedSemaphorePermit) -> Self {
        metrics::gauge!("berth_live_viewers").increment(1.0);
        Self(permit)
    }
}

impl Drop for ViewerPermit {
    fn drop(&mut self) {
        metrics::gauge!("berth_live_viewers").decrement(1.0);
    }
}
