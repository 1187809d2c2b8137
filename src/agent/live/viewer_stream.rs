//! The messages and frames sent to one viewer.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::{
    ViewerPermit,
    frame_source::{FrameAcks, FrameEvent, FrameSource},
};
use crate::{
    agent::{
        chromium::{BrowserState, Chromium},
        cursor::CursorShown,
        optional_sleep::sleep_until_some,
    },
    api::live::AgentMessage,
};

/// The delay before a screen that could not be opened is opened again.
const SCREEN_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Everything that is sent to one viewer: a greeting, the browser's state, frames and notices.
pub struct ViewerStream {
    chromium: Chromium,
    cursor: CursorShown,
    hello: Option<AgentMessage>,
    messages: mpsc::Receiver<AgentMessage>,
    state: watch::Receiver<BrowserState>,
    source: Option<FrameSource>,
    acks: Arc<FrameAcks>,
    /// When to open the screen again. Set only while the browser runs but its screen is lost.
    retry_at: Option<Instant>,
    _permit: ViewerPermit,
}

impl ViewerStream {
    pub(super) fn new(
        chromium: Chromium,
        cursor: CursorShown,
        control: bool,
        messages: mpsc::Receiver<AgentMessage>,
        acks: Arc<FrameAcks>,
        permit: ViewerPermit,
    ) -> Self {
        let mut state = chromium.watch();
        state.mark_changed();
        Self {
            chromium,
            cursor,
            hello: Some(AgentMessage::Hello { control }),
            messages,
            state,
            source: None,
            acks,
            retry_at: None,
            _permit: permit,
        }
    }

    /// Returns the next frame or message. Cancel-safe: a dropped future loses nothing.
    pub async fn next(&mut self) -> FrameEvent {
        if let Some(hello) = self.hello.take() {
            return FrameEvent::Message(hello);
        }
        loop {
            tokio::select! {
                Ok(()) = self.state.changed() => {
                    return FrameEvent::Message(self.follow_browser_state());
                }
                Some(message) = self.messages.recv() => return FrameEvent::Message(message),
                event = next_event(&mut self.source) => match event {
                    Some(event) => return event,
                    None => self.retry_later(),
                },
                () = sleep_until_some(self.retry_at) => self.start_source(),
            }
        }
    }

    /// Starts or stops the frame source with the browser, and returns the message about its state.
    fn follow_browser_state(&mut self) -> AgentMessage {
        let state = self.state.borrow_and_update().clone();
        // While the browser is down, its screen shows the last image or black.
        self.source = None;
        self.retry_at = None;
        if state.devtools().is_some() {
            self.start_source();
        }
        AgentMessage::Browser {
            state: state.name(),
            reason: match &state {
                BrowserState::Restarting { reason } => Some(reason.to_string()),
                _ => None,
            },
        }
    }

    fn start_source(&mut self) {
        self.retry_at = None;
        let source = self.chromium.screen().map(|access| {
            FrameSource::start(access, self.cursor.clone(), self.acks.clone())
                .inspect_err(|error| tracing::warn!(%error, "cannot start a live view thread"))
        });
        match source {
            Ok(Ok(source)) => self.source = Some(source),
            Ok(Err(_)) | Err(_) => self.retry_later(),
        }
    }

    fn retry_later(&mut self) {
        self.source = None;
        self.retry_at = Some(Instant::now() + SCREEN_RETRY_DELAY);
    }
}

async fn next_event(source: &mut Option<FrameSource>) -> Option<FrameEvent> {
    match source {
        Some(source) => source.next().await,
        None => std::future::pending().await,
    }
}
