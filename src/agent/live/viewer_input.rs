//! Receives one viewer's messages and performs them with the browser's mouse, keyboard and
//! clipboard.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    frame_source::FrameAcks,
    keyboard::{Keyboard, Stroke},
    viewer_queue::{ViewerReceiver, ViewerSender},
    wheel::Wheel,
};
use crate::{
    agent::{
        clipboard::{Clipboard, ClipboardError},
        computer::{Computer, ComputerError, LiveInput},
        optional_sleep::sleep_until_some,
    },
    api::{
        computer::KeyboardText,
        live::{AgentMessage, Coordinate, ViewerMessage},
    },
    rate_limit::RateLimit,
    system::x11::{
        clipboard::ReadError,
        input::{InputError, Point},
    },
};

/// The average interval between a viewer's actions: 500 per second, which no human exceeds.
const ACTION_INTERVAL: Duration = Duration::from_millis(2);
/// The time by which a burst of actions may run ahead of the average rate.
const BURST_WINDOW: Duration = Duration::from_millis(500);
/// Attempts to queue one action while the input queue is full: for one second in all.
const QUEUE_ATTEMPTS: u32 = 50;
const QUEUE_RETRY_DELAY: Duration = Duration::from_millis(20);
/// The time a silent viewer may hold a key. The X server repeats held keys. The page reports
/// several times a second that it still holds one; silence means that its connection is stalled or
/// lost.
const HELD_KEY_TIMEOUT: Duration = Duration::from_secs(1);
/// The time a silent viewer may hold modifiers and mouse buttons, which are not repeated.
const HELD_INPUT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest text, in characters, that is typed as single keys. A longer one is submitted as a
/// batch, which waits for the batches of other clients.
const MAX_DIRECT_TEXT: usize = 100;
/// The time a program may take to copy after it received the keys to do so.
const COPY_TIMEOUT: Duration = Duration::from_millis(1500);
/// The longest copied text, in bytes, that fits a message even if every character is escaped.
const MAX_COPIED: usize = 256 << 10;

/// Why a viewer's message is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ViewerMessageError {
    #[error("this live view is read-only")]
    ReadOnly,
}

/// Receives a viewer's messages. Dropping it ends the [`InputWorker`] once its queue is empty.
pub struct ViewerInbox {
    acks: Arc<FrameAcks>,
    /// `None` if the view is read-only.
    sender: Option<ViewerSender>,
    rate_limit: RateLimit,
}

impl ViewerInbox {
    pub(super) fn new(acks: Arc<FrameAcks>, sender: Option<ViewerSender>) -> Self {
        Self {
            acks,
            sender,
            rate_limit: RateLimit::new(ACTION_INTERVAL, BURST_WINDOW),
        }
    }

    /// Waits until the rate limit allows one more message.
    pub async fn ready(&mut self) {
        self.rate_limit.wait().await;
    }

    /// Processes a frame acknowledgement at once and queues everything else. Waits while the queue
    /// is full.
    pub async fn receive(&mut self, message: ViewerMessage) -> Result<(), ViewerMessageError> {
        if let Some(sender) = &self.sender {
            sender.touch();
        }
        match (message, &self.sender) {
            (ViewerMessage::Seen { sequence }, _) => self.acks.acknowledge(sequence),
            (_, None) => return Err(ViewerMessageError::ReadOnly),
            (ViewerMessage::Holding, Some(_)) => {}
            (message, Some(sender)) => sender.send(message).await,
        }
        Ok(())
    }
}

/// Performs a viewer's queued messages in order.
pub struct InputWorker {
    /// `None` if the view is read-only.
    input: Option<(ViewerReceiver, InputHandler)>,
}

impl InputWorker {
    pub(super) fn new(input: Option<(ViewerReceiver, InputHandler)>) -> Self {
        Self { input }
    }

    /// Runs until the [`ViewerInbox`] is dropped and the queue is empty. Keys and buttons that are
    /// still held are released when the worker is dropped.
    pub async fn run(&mut self) {
        let Some((receiver, handler)) = &mut self.input else {
            return;
        };
        loop {
            let last_activity = receiver.last_activity();
            tokio::select! {
                biased;
                message = receiver.recv() => match message {
                    Some(message) => handler.handle(message).await,
                    None => return,
                },
                // Messages that are not queued (acknowledgements, `holding`) move the deadline.
                () = sleep_until_some(handler.release_deadline(last_activity)) => {
                    if receiver.last_activity() == last_activity {
                        handler.release_stale(last_activity).await;
                    }
                }
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum ActionError {
    #[error(transparent)]
    Computer(#[from] ComputerError),
    #[error(transparent)]
    Clipboard(#[from] ClipboardError),
    #[error("the text {0}")]
    Text(String),
}

/// Performs one viewer's messages. Reports failures to the viewer as notices.
pub(super) struct InputHandler {
    computer: Computer,
    clipboard: Clipboard,
    messages: mpsc::Sender<AgentMessage>,
    /// Created by the first action. Releases held keys and buttons when it is dropped.
    input: Option<LiveInput>,
    keyboard: Keyboard,
    wheel: Wheel,
    rate_limit: RateLimit,
    copy_task: Option<AbortOnDropHandle<()>>,
}

impl InputHandler {
    pub(super) fn new(
        computer: Computer,
        clipboard: Clipboard,
        messages: mpsc::Sender<AgentMessage>,
    ) -> Self {
        Self {
            computer,
            clipboard,
            messages,
            input: None,
            keyboard: Keyboard::default(),
            wheel: Wheel::default(),
            rate_limit: RateLimit::new(ACTION_INTERVAL, BURST_WINDOW),
            copy_task: None,
        }
    }

    async fn handle(&mut self, message: ViewerMessage) {
        self.rate_limit.wait().await;
        if let Err(error) = self.perform(message).await {
            self.report_failure(&error);
        }
    }

    async fn perform(&mut self, message: ViewerMessage) -> Result<(), ActionError> {
        match message {
            // Handled by the inbox.
            ViewerMessage::Seen { .. } | ViewerMessage::Holding => {}
            ViewerMessage::PointerMove { x, y } => self.move_pointer(x, y).await?,
            ViewerMessage::PointerDown { x, y, button } => {
                self.move_pointer(x, y).await?;
                self.submit(|input| input.button(button, true)).await?;
            }
            ViewerMessage::PointerUp { x, y, button } => {
                self.move_pointer(x, y).await?;
                self.submit(|input| input.button(button, false)).await?;
            }
            ViewerMessage::Wheel {
                x,
                y,
                delta_x,
                delta_y,
            } => {
                self.move_pointer(x, y).await?;
                for notch in self.wheel.scroll(delta_x.pixels(), delta_y.pixels()) {
                    self.rate_limit.wait().await;
                    self.submit(|input| input.wheel(notch)).await?;
                }
            }
            ViewerMessage::KeyDown { code, key } => {
                let strokes = self.keyboard.key_down(code, &key);
                self.send_strokes(&strokes).await?;
            }
            ViewerMessage::KeyUp { code } => {
                let stroke = self.keyboard.key_up(&code);
                self.send_strokes(stroke.as_slice()).await?;
            }
            ViewerMessage::Release => self.release_all(),
            ViewerMessage::Text { text } => {
                let text = KeyboardText::parse(text.into_string()).map_err(ActionError::Text)?;
                self.type_text(text).await?;
            }
            ViewerMessage::Paste { text } => {
                if let Some(text) = text {
                    self.clipboard.write(text.into_string()).await?;
                }
                let strokes = self.keyboard.paste_strokes();
                self.send_strokes(&strokes).await?;
            }
            ViewerMessage::Copy => self.watch_for_copy().await,
        }
        Ok(())
    }

    /// Returns when to release held input if the viewer stays silent after `last_activity`.
    fn release_deadline(&self, last_activity: Instant) -> Option<Instant> {
        let timeout = match &self.input {
            _ if self.keyboard.has_repeating_keys() => HELD_KEY_TIMEOUT,
            Some(_) => HELD_INPUT_TIMEOUT,
            None => return None,
        };
        Some(last_activity + timeout)
    }

    /// Releases the input that a silent viewer may not hold any longer.
    async fn release_stale(&mut self, last_activity: Instant) {
        if last_activity.elapsed() >= HELD_INPUT_TIMEOUT {
            return self.release_all();
        }
        let strokes = self.keyboard.release_repeating_keys();
        if let Err(error) = self.send_strokes(&strokes).await {
            self.report_failure(&error.into());
        }
    }

    async fn type_text(&mut self, text: KeyboardText) -> Result<(), ComputerError> {
        let (before, after) = self.keyboard.strokes_around_text();
        self.send_strokes(&before).await?;
        if text.keys().count() > MAX_DIRECT_TEXT {
            self.input()?.type_text(text).await?;
        } else {
            for key in text.keys() {
                self.rate_limit.wait().await;
                self.send_strokes(&Stroke::tap(key)).await?;
            }
        }
        self.send_strokes(&after).await
    }

    async fn move_pointer(&mut self, x: Coordinate, y: Coordinate) -> Result<(), ComputerError> {
        let to = Point {
            x: x.pixels(),
            y: y.pixels(),
        };
        self.submit(|input| input.move_to(to)).await
    }

    async fn send_strokes(&mut self, strokes: &[Stroke]) -> Result<(), ComputerError> {
        for stroke in strokes {
            self.submit(|input| input.key(stroke.key, stroke.down))
                .await?;
        }
        Ok(())
    }

    fn input(&mut self) -> Result<&LiveInput, ComputerError> {
        match &mut self.input {
            Some(input) => Ok(input),
            none => Ok(none.insert(self.computer.session()?)),
        }
    }

    /// Submits an action. Retries while the input queue is full: dropping the release of a key
    /// would leave it held.
    async fn submit(
        &mut self,
        action: impl Fn(&LiveInput) -> Result<(), ComputerError>,
    ) -> Result<(), ComputerError> {
        for _ in 1..QUEUE_ATTEMPTS {
            match action(self.input()?) {
                Err(ComputerError::Input(InputError::Full)) => sleep(QUEUE_RETRY_DELAY).await,
                result => return result,
            }
        }
        action(self.input()?)
    }

    fn release_all(&mut self) {
        self.keyboard.clear();
        self.input = None;
    }

    /// Sends the viewer the next text on the clipboard. The viewer's next messages are the keys
    /// that copy it.
    async fn watch_for_copy(&mut self) {
        let watch = self.clipboard.watch().await;
        let messages = self.messages.clone();
        let forward = async move {
            let copied = match watch {
                Ok(watch) => watch.next(COPY_TIMEOUT).await,
                Err(error) => Err(error),
            };
            for message in copy_result(copied) {
                let _ = messages.send(message).await;
            }
        };
        self.copy_task = Some(AbortOnDropHandle::new(tokio::spawn(forward)));
    }

    /// Releases everything, so that page and browser agree that nothing is held, and notifies the
    /// viewer.
    fn report_failure(&mut self, error: &ActionError) {
        self.release_all();
        let message = match error {
            // The viewer is notified of the browser's state anyway.
            ActionError::Computer(ComputerError::NoScreen(_))
            | ActionError::Clipboard(ClipboardError::NoScreen(_)) => return,
            ActionError::Computer(ComputerError::Busy(_)) => {
                "Mouse and keyboard are in use by another client.".into()
            }
            ActionError::Computer(_) => "The browser does not accept input at the moment.".into(),
            ActionError::Clipboard(ClipboardError::TooLarge(_)) => {
                "The text is too large for the clipboard.".into()
            }
            ActionError::Clipboard(_) => "The clipboard is not available at the moment.".into(),
            ActionError::Text(problem) => format!("The text {problem}.").into(),
        };
        tracing::debug!(%error, "live view input failed");
        let _ = self.messages.try_send(AgentMessage::Notice { message });
    }
}

/// Returns the messages about the result of a copy.
fn copy_result(copied: Result<Option<String>, ClipboardError>) -> Vec<AgentMessage> {
    let is_too_large = match &copied {
        Ok(text) => text.as_ref().is_some_and(|text| text.len() > MAX_COPIED),
        Err(error) => matches!(error, ClipboardError::Read(ReadError::TooLarge)),
    };
    if is_too_large {
        let message = "The copied text is too large to be transferred.".into();
        let notice = AgentMessage::Notice { message };
        return vec![AgentMessage::Clipboard { text: None }, notice];
    }
    vec![match copied {
        Ok(Some(text)) => AgentMessage::Clipboard {
            text: Some(text).filter(|text| !text.is_empty()),
        },
        Ok(None) | Err(_) => AgentMessage::NothingCopied,
    }]
}
