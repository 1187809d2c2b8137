//! What a viewer says, done: the mouse, the keyboard and the clipboard of one who may, and nothing of one who only looks on.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    allowance::Allowance,
    at,
    camera::Drawn,
    keyboard::{Keyboard, Stroke},
    said::{Doer, Teller},
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
    system::{
        x11::clipboard::ReadError,
        x11::input::{InputError, Point},
    },
};

/// Where more input waits than may, it is tried again so often, for a second in all.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);
/// The X server repeats a key that is held. Where the page, which says several times a second that it is, has not been heard of for so
/// long, its line stands still or is gone: the key is not to go on for as long.
const KEY_SILENCE: Duration = Duration::from_secs(1);
/// The same for what is not repeated.
const SILENCE: Duration = Duration::from_secs(3);
/// A text of so many characters is typed at once; a longer one is a batch, which waits for those of others.
const SHORT_TEXT: usize = 100;
/// A program has so long to have copied what it was told to copy.
const COPY_LIMIT: Duration = Duration::from_millis(1500);
/// More does not fit into a message, whatever of it must be escaped.
const MAX_COPIED: usize = 256 << 10;

/// What a viewer may not do.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("this live view is read-only")]
    ReadOnly,
}

/// Takes what a viewer says. Once it is dropped, nothing more comes.
pub struct Ears {
    drawn: Arc<Drawn>,
    /// Of one who may.
    hands: Option<Teller>,
    allowance: Allowance,
}

impl Ears {
    pub(super) fn new(drawn: Arc<Drawn>, hands: Option<Teller>) -> Self {
        Self {
            drawn,
            hands,
            allowance: Allowance::default(),
        }
    }

    /// Waits until the viewer may say one thing more.
    pub async fn ready(&mut self) {
        self.allowance.wait().await;
    }

    /// That a picture was drawn counts at once, whatever is still being done.
    pub async fn take(&mut self, message: ViewerMessage) -> Result<(), Refusal> {
        if let Some(hands) = &self.hands {
            hands.hear();
        }
        match (message, &self.hands) {
            (ViewerMessage::Seen { sequence }, _) => self.drawn.tell(sequence),
            (_, None) => return Err(Refusal::ReadOnly),
            (ViewerMessage::Holding, Some(_)) => {}
            (message, Some(hands)) => hands.tell(message).await,
        }
        Ok(())
    }
}

/// Does what a viewer says.
pub struct Hands {
    /// Of one who may.
    controls: Option<(Doer, Controls)>,
}

impl Hands {
    pub(super) fn new(controls: Option<(Doer, Controls)>) -> Self {
        Self { controls }
    }

    /// Until nothing more comes and all is done. What is held then is released when this is dropped.
    pub async fn work(&mut self) {
        let Some((said, controls)) = &mut self.controls else {
            return;
        };
        loop {
            let heard = said.heard();
            tokio::select! {
                biased;
                message = said.next() => match message {
                    Some(message) => controls.take(message).await,
                    None => return,
                },
                // Something may have been said meanwhile that nothing is to be done for.
                () = at(controls.held_until(heard)) => if said.heard() == heard {
                    controls.let_go(heard).await;
                },
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum ControlError {
    #[error(transparent)]
    Computer(#[from] ComputerError),
    #[error(transparent)]
    Clipboard(#[from] ClipboardError),
    #[error("the text {0}")]
    Text(String),
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

    async fn take(&mut self, message: ViewerMessage) {
        self.allowance.wait().await;
        if let Err(error) = self.act(message).await {
            self.failed(&error);
        }
    }

    async fn act(&mut self, message: ViewerMessage) -> Result<(), ControlError> {
        match message {
            // Heard is enough.
            ViewerMessage::Seen { .. } | ViewerMessage::Holding => {}
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
                    self.allowance.wait().await;
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
                let text = Text::parse(text.into_string()).map_err(ControlError::Text)?;
                self.write(text).await?;
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

    /// Until when what is held may be, of one who was heard then and not since.
    fn held_until(&self, heard: Instant) -> Option<Instant> {
        let limit = match &self.input {
            _ if self.keyboard.repeats() => KEY_SILENCE,
            Some(_) => SILENCE,
            None => return None,
        };
        Some(heard + limit)
    }

    async fn let_go(&mut self, heard: Instant) {
        if heard.elapsed() >= SILENCE {
            return self.release();
        }
        let strokes = self.keyboard.end_repeats();
        if let Err(error) = self.strike(&strokes).await {
            self.failed(&error.into());
        }
    }

    async fn write(&mut self, text: Text) -> Result<(), ComputerError> {
        let (before, after) = self.keyboard.around_text();
        self.strike(&before).await?;
        if text.keys().count() > SHORT_TEXT {
            self.input()?.type_text(text).await?;
        } else {
            for key in text.keys() {
                self.allowance.wait().await;
                self.strike(&Stroke::tap(key)).await?;
            }
        }
        self.strike(&after).await
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

    /// Has told what comes onto the clipboard next. The keys that copy it are still to come.
    async fn copy(&mut self) {
        let watch = self.clipboard.watch().await;
        let tell = self.tell.clone();
        let telling = async move {
            let copied = match watch {
                Ok(watch) => watch.next(COPY_LIMIT).await,
                Err(error) => Err(error),
            };
            for message in told(copied) {
                let _ = tell.send(message).await;
            }
        };
        self.copying = Some(AbortOnDropHandle::new(tokio::spawn(telling)));
    }

    /// After what was not done nothing is held: the page and the browser begin anew.
    fn failed(&mut self, error: &ControlError) {
        self.release();
        let message = match error {
            // It is told how the browser is.
            ControlError::Computer(ComputerError::NoScreen(_))
            | ControlError::Clipboard(ClipboardError::NoScreen(_)) => return,
            ControlError::Computer(ComputerError::Turn) => {
                "Others have the mouse and the keyboard.".into()
            }
            ControlError::Computer(_) => "The browser takes no input at the moment.".into(),
            ControlError::Clipboard(ClipboardError::TooLarge(_)) => {
                "The text is too large for the clipboard.".into()
            }
            ControlError::Clipboard(_) => "The clipboard cannot be used at the moment.".into(),
            ControlError::Text(problem) => format!("The text {problem}.").into(),
        };
        tracing::debug!(%error, "a viewer's action failed");
        let _ = self.tell.try_send(AgentMessage::Notice { message });
    }
}

/// What is said of what was copied, if anything was.
fn told(copied: Result<Option<String>, ClipboardError>) -> Vec<AgentMessage> {
    let is_too_large = match &copied {
        Ok(text) => text.as_ref().is_some_and(|text| text.len() > MAX_COPIED),
        Err(error) => matches!(error, ClipboardError::Read(ReadError::TooLarge)),
    };
    if is_too_large {
        let message = "What was copied is too large to be passed on.".into();
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
