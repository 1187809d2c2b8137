//! What a viewer says, done: the mouse, the keyboard and the clipboard of one who may, and nothing of one who only looks on.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    allowance::Allowance,
    camera::Drawn,
    keyboard::{Keyboard, Stroke},
    wheel::Wheel,
};
use crate::{
    agent::{
        clipboard::{Clipboard, ClipboardError},
        computer::{Computer, ComputerError, LiveInput},
    },
    api::{
        computer::Text,
        live::{AgentMessage, Place, ViewerMessage},
    },
    system::input::{InputError, Point},
};

/// Where more input waits than may, it is tried again so often, for a second in all.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);
/// For what was on the clipboard before something is copied.
const LOOK_LIMIT: Duration = Duration::from_millis(500);
/// A program has so long to have copied what it was told to copy.
const COPY_LIMIT: Duration = Duration::from_millis(1500);
const COPY_LOOK: Duration = Duration::from_millis(50);
/// More does not fit into a message, whatever of it must be escaped.
const MAX_COPIED: usize = 256 << 10;

/// What a viewer may not do.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("this live view is read-only")]
    ReadOnly,
}

/// What a viewer says and does.
pub struct Hands {
    drawn: Arc<Drawn>,
    /// Of one who may.
    controls: Option<Controls>,
}

impl Hands {
    pub(super) fn new(drawn: Arc<Drawn>, controls: Option<Controls>) -> Self {
        Self { drawn, controls }
    }

    pub async fn take(&mut self, message: ViewerMessage) -> Result<(), Refusal> {
        if let ViewerMessage::Seen { sequence } = message {
            self.drawn.tell(sequence);
            return Ok(());
        }
        let controls = self.controls.as_mut().ok_or(Refusal::ReadOnly)?;
        controls.allowance.wait().await;
        if let Err(error) = controls.act(message).await {
            controls.failed(&error);
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
enum ControlError {
    #[error(transparent)]
    Computer(#[from] ComputerError),
    #[error(transparent)]
    Clipboard(#[from] ClipboardError),
    #[error("has a character that cannot be typed")]
    Text,
}

pub struct Controls {
    computer: Computer,
    clipboard: Clipboard,
    tell: mpsc::Sender<AgentMessage>,
    /// Holds what is pressed, and releases it when it goes; there is one once something was done.
    input: Option<LiveInput>,
    keyboard: Keyboard,
    wheel: Wheel,
    allowance: Allowance,
    copying: Option<AbortOnDropHandle<()>>,
}

impl Controls {
    pub fn new(computer: Computer, clipboard: Clipboard, tell: mpsc::Sender<AgentMessage>) -> Self {
        Self {
            computer,
            clipboard,
            tell,
            input: None,
            keyboard: Keyboard::default(),
            wheel: Wheel::default(),
            allowance: Allowance::default(),
            copying: None,
        }
    }

    async fn act(&mut self, message: ViewerMessage) -> Result<(), ControlError> {
        match message {
            ViewerMessage::Seen { .. } => {}
            ViewerMessage::PointerMove { x, y } => self.point(x, y).await?,
            ViewerMessage::PointerDown { x, y, button } => {
                self.point(x, y).await?;
                self.perform(|input| input.button(button, true)).await?;
            }
            ViewerMessage::PointerUp { x, y, button } => {
                self.point(x, y).await?;
                self.perform(|input| input.button(button, false)).await?;
            }
            ViewerMessage::Wheel {
                x,
                y,
                delta_x,
                delta_y,
            } => {
                self.point(x, y).await?;
                for notch in self.wheel.turn(delta_x.pixels(), delta_y.pixels()) {
                    self.perform(|input| input.wheel(notch)).await?;
                }
            }
            ViewerMessage::KeyDown { code, key } => {
                let strokes = self.keyboard.down(code, &key);
                self.strike(&strokes).await?;
            }
            ViewerMessage::KeyUp { code } => {
                let stroke = self.keyboard.up(&code);
                self.strike(stroke.as_slice()).await?;
            }
            ViewerMessage::Release => self.release(),
            ViewerMessage::Text { text } => {
                let text = Text::parse(text.into_string()).map_err(|_| ControlError::Text)?;
                self.input()?.type_text(text).await?;
            }
            ViewerMessage::Paste { text } => {
                if let Some(text) = text {
                    self.clipboard.write(text.into_string()).await?;
                }
                let strokes = self.keyboard.paste();
                self.strike(&strokes).await?;
            }
            ViewerMessage::Copy => self.copy().await,
        }
        Ok(())
    }

    async fn point(&mut self, x: Place, y: Place) -> Result<(), ComputerError> {
        let to = Point {
            x: x.pixels(),
            y: y.pixels(),
        };
        self.perform(|input| input.move_to(to)).await
    }

    async fn strike(&mut self, strokes: &[Stroke]) -> Result<(), ComputerError> {
        for stroke in strokes {
            self.perform(|input| input.key(stroke.key, stroke.down))
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

    /// Nothing is skipped because others do much: a key whose release was lost would stay down.
    async fn perform(
        &mut self,
        act: impl Fn(&LiveInput) -> Result<(), ComputerError>,
    ) -> Result<(), ComputerError> {
        for _ in 1..ATTEMPTS {
            match act(self.input()?) {
                Err(ComputerError::Input(InputError::Full)) => sleep(PAUSE).await,
                done => return done,
            }
        }
        act(self.input()?)
    }

    fn release(&mut self) {
        self.keyboard.forget();
        self.input = None;
    }

    /// Has the next text that comes onto the clipboard told. The keys that copy it are still to come.
    async fn copy(&mut self) {
        let before = timeout(LOOK_LIMIT, self.clipboard.read()).await;
        let before = before.ok().and_then(Result::ok);
        let (clipboard, tell) = (self.clipboard.clone(), self.tell.clone());
        let watching = async move {
            let Some(text) = copied(&clipboard, before).await else {
                return;
            };
            let message = if text.len() > MAX_COPIED {
                AgentMessage::Notice {
                    message: "What was copied is too large to be passed on.",
                }
            } else {
                AgentMessage::Clipboard { text }
            };
            let _ = tell.send(message).await;
        };
        self.copying = Some(AbortOnDropHandle::new(tokio::spawn(watching)));
    }

    /// After what was not done nothing is held: the page and the browser begin anew.
    fn failed(&mut self, error: &ControlError) {
        self.release();
        let message = match error {
            // It is told how the browser is.
            ControlError::Computer(ComputerError::NoScreen(_))
            | ControlError::Clipboard(ClipboardError::NoScreen(_)) => return,
            ControlError::Computer(ComputerError::Turn) => {
                "Others have the mouse and the keyboard."
            }
            ControlError::Computer(_) => "The browser takes no input at the moment.",
            ControlError::Clipboard(ClipboardError::TooLarge(_)) => {
                "The text is too large for the clipboard."
            }
            ControlError::Clipboard(_) => "The clipboard cannot be used at the moment.",
            ControlError::Text => "The text has a character that cannot be typed.",
        };
        tracing::debug!(%error, "a viewer's action failed");
        let _ = self.tell.try_send(AgentMessage::Notice { message });
    }
}

/// What is on the clipboard once that is something else, or after a while, as the same may have been copied again.
async fn copied(clipboard: &Clipboard, before: Option<String>) -> Option<String> {
    let end = Instant::now() + COPY_LIMIT;
    loop {
        sleep(COPY_LOOK).await;
        let text = clipboard.read().await.ok();
        if text.is_some() && text != before || Instant::now() >= end {
            return text.filter(|text| !text.is_empty());
        }
    }
}
