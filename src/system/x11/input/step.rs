//! What input is made of, whoever plays it.

use std::time::Duration;

use crate::api::{
    computer::{MouseButton, Text},
    keys::Key,
};
use crate::system::x11::screen::Point;

/// For a step to be done, in the mean: far more than it takes, as other programs take their time too.
const PER_STEP: Duration = Duration::from_millis(20);

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

    /// How many it counts as: each character is one.
    fn count(&self) -> usize {
        match self {
            Self::Type { text, .. } => text.keys().count(),
            _ => 1,
        }
    }
}

/// What the waits of a batch come to, and how much longer it may take for all the rest.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    planned: Duration,
    pub beyond: Duration,
}

impl Budget {
    /// With so much to spare, and some more for each step.
    #[must_use]
    pub fn of(actions: &[Vec<Step>], slack: Duration) -> Self {
        let steps = || actions.iter().flatten();
        let count = steps().map(Step::count).sum::<usize>();
        Self {
            planned: steps().map(Step::time).sum(),
            beyond: slack + PER_STEP * u32::try_from(count).unwrap_or(u32::MAX),
        }
    }

    #[must_use]
    pub fn total(self) -> Duration {
        self.planned + self.beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_has_time_for_each_of_its_characters() {
        let typing = Step::Type {
            text: Text::parse("é".repeat(65_536)).unwrap(),
            delay: Duration::from_millis(1),
        };
        let steps = [vec![typing], vec![Step::Wait(Duration::from_secs(7))]];
        let budget = Budget::of(&steps, Duration::from_secs(120));
        let pauses = Duration::from_millis(65_535);
        assert_eq!(
            budget.total() - budget.beyond,
            pauses + Duration::from_secs(7)
        );
        // One takes some five milliseconds.
        assert!(budget.beyond > Duration::from_millis(10) * 65_536);
    }
}
