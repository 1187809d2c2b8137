//! The steps that input consists of, independent of who plays them.

use std::time::Duration;

use crate::{
    api::{
        computer::{KeyboardText, MouseButton},
        keys::Key,
    },
    system::x11::screen::Point,
};

/// The average time allowed per step: far more than needed, as other programs use the CPU too.
const TIME_PER_STEP: Duration = Duration::from_millis(20);

/// A notch of a mouse wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notch {
    Up,
    Down,
    Left,
    Right,
}

/// An atomic unit of input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Move(Point),
    Button {
        button: MouseButton,
        down: bool,
    },
    Wheel(Notch),
    /// The notches before this step take this time to reach the page. Until it has passed, no other
    /// input but further notches at this position may follow.
    Scrolled {
        at: Point,
        time: Duration,
    },
    Key {
        key: Key,
        down: bool,
    },
    /// Types a text with a delay between characters.
    Type {
        text: KeyboardText,
        delay: Duration,
    },
    Cursor {
        hidden: bool,
    },
    Wait(Duration),
}

impl Step {
    /// Returns the planned duration: that of its waits, and of those that it may cause.
    #[must_use]
    pub fn planned_duration(&self) -> Duration {
        match self {
            Self::Wait(time) | Self::Scrolled { time, .. } => *time,
            Self::Type { text, delay } => {
                let delays = text.keys().count().saturating_sub(1);
                *delay * u32::try_from(delays).unwrap_or(u32::MAX)
            }
            _ => Duration::ZERO,
        }
    }

    /// Returns the number of steps it counts as: each character is one.
    fn count(&self) -> usize {
        match self {
            Self::Type { text, .. } => text.keys().count(),
            _ => 1,
        }
    }
}

/// The time that a batch may take: its planned waits and a grace period.
#[derive(Debug, Clone, Copy)]
pub struct TimeBudget {
    planned: Duration,
    pub grace_period: Duration,
}

impl TimeBudget {
    /// Returns the budget with `base` as grace period, plus some time for each step.
    #[must_use]
    pub fn new(actions: &[Vec<Step>], base: Duration) -> Self {
        let steps = || actions.iter().flatten();
        let count = steps().map(Step::count).sum::<usize>();
        Self {
            planned: steps().map(Step::planned_duration).sum(),
            grace_period: base + TIME_PER_STEP * u32::try_from(count).unwrap_or(u32::MAX),
        }
    }

    #[must_use]
    pub fn total(self) -> Duration {
        self.planned + self.grace_period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_includes_time_for_each_character() {
        let typing = Step::Type {
            text: KeyboardText::parse("é".repeat(65_536)).unwrap(),
            delay: Duration::from_millis(1),
        };
        let steps = [vec![typing], vec![Step::Wait(Duration::from_secs(7))]];
        let budget = TimeBudget::new(&steps, Duration::from_secs(120));
        let delays = Duration::from_millis(65_535);
        assert_eq!(
            budget.total() - budget.grace_period,
            delays + Duration::from_secs(7)
        );
        // A character takes about 5 ms.
        assert!(budget.grace_period > Duration::from_millis(10) * 65_536);
    }
}
