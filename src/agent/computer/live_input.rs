//! The input of a live view's viewer.

use super::{Computer, ComputerError};
use crate::{
    api::{
        computer::{Action, KeyboardText, MouseButton, TypeText},
        keys::Key,
    },
    system::x11::input::{Notch, Point, SessionId, Step},
};

/// A viewer's input session. Its steps are performed at once, even during a batch. Dropping it
/// releases everything that it holds.
pub struct LiveInput {
    computer: Computer,
    session: SessionId,
}

impl Computer {
    /// Opens an input session for a viewer.
    pub fn session(&self) -> Result<LiveInput, ComputerError> {
        self.chromium.screen()?;
        Ok(LiveInput {
            computer: self.clone(),
            session: self.input.new_session(),
        })
    }
}

impl LiveInput {
    /// Moves the pointer. The position is clamped to the screen.
    pub fn move_to(&self, to: Point) -> Result<(), ComputerError> {
        self.act(Step::Move(to))
    }

    pub fn button(&self, button: MouseButton, down: bool) -> Result<(), ComputerError> {
        self.act(Step::Button { button, down })
    }

    pub fn wheel(&self, notch: Notch) -> Result<(), ComputerError> {
        self.act(Step::Wheel(notch))
    }

    pub fn key(&self, key: Key, down: bool) -> Result<(), ComputerError> {
        self.act(Step::Key { key, down })
    }

    /// Types a text as a batch, which waits for its turn.
    pub async fn type_text(&self, text: KeyboardText) -> Result<(), ComputerError> {
        let action = Action::TypeText(TypeText { text, delay: None });
        self.computer.perform_one(action).await.map(drop)
    }

    fn act(&self, step: Step) -> Result<(), ComputerError> {
        let access = self.computer.chromium.screen()?;
        Ok(self.computer.input.act(access, self.session, step)?)
    }
}

impl Drop for LiveInput {
    fn drop(&mut self) {
        self.computer.input.end_session(self.session);
    }
}
