//! What input is made of, whoever plays it.

use std::time::Duration;

use crate::api::{
    computer::{MouseButton, Text},
    keys::Key,
};

/// Pixels of a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub width: u16,
    pub height: u16,
}

/// Pixels from the upper left corner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Point {
    pub x: i32,
    pub y: i32,
}

impl Point {
    /// The place within `size` that is nearest.
    #[must_use]
    pub fn clamped(self, size: Size) -> Self {
        Self {
            x: self.x.min(i32::from(size.width) - 1).max(0),
            y: self.y.min(i32::from(size.height) - 1).max(0),
        }
    }
}

/// One notch of a wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notch {
    Up,
    Down,
    Left,
    Right,
}

/// The least that is done at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Move(Point),
    Button {
        button: MouseButton,
        down: bool,
    },
    Wheel(Notch),
    Key {
        key: Key,
        down: bool,
    },
    /// With that much time from one character to the next.
    Type {
        text: Text,
        delay: Duration,
    },
    Cursor {
        hidden: bool,
    },
    Wait(Duration),
}

impl Step {
    /// What it takes by what it is, beside being done.
    #[must_use]
    pub fn time(&self) -> Duration {
        match self {
            Self::Wait(time) => *time,
            Self::Type { text, delay } => {
                let pauses = text.keys().count().saturating_sub(1);
                *delay * u32::try_from(pauses).unwrap_or(u32::MAX)
            }
            _ => Duration::ZERO,
        }
    }
}
