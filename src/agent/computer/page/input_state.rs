//! The state that input events to a page depend on.

use std::time::{Duration, Instant};

use crate::{
    api::{computer::MouseButton, keys::Key},
    system::x11::input::Point,
};

/// Presses of one button within this time and distance count as a double or triple click.
const MULTI_CLICK_INTERVAL: Duration = Duration::from_millis(500);
const MULTI_CLICK_DISTANCE: i32 = 2;
const MAX_CLICK_COUNT: u32 = 3;

/// The held input of a page, and the other state that the next event depends on.
#[derive(Default)]
pub(super) struct InputState {
    pub(super) buttons: Vec<MouseButton>,
    pub(super) keys: Vec<Key>,
    /// Held keys that Shift was pressed along with. It is released with them.
    pub(super) with_shift: Vec<Key>,
    pub(super) caps_lock: bool,
    last_click: Option<Click>,
    /// Whether the page has received the pointer's position.
    pub(super) position_sent: bool,
}

#[derive(Clone, Copy)]
struct Click {
    button: MouseButton,
    position: Point,
    time: Instant,
    /// 1 for a single click, 2 for a double click, 3 for a triple click.
    count: u32,
}

impl InputState {
    /// Records a press and returns its click count.
    pub(super) fn record_press(&mut self, button: MouseButton, position: Point) -> u32 {
        let time = Instant::now();
        let previous = self.last_click.filter(|last| {
            last.button == button
                && time - last.time <= MULTI_CLICK_INTERVAL
                && (last.position.x - position.x).abs() <= MULTI_CLICK_DISTANCE
                && (last.position.y - position.y).abs() <= MULTI_CLICK_DISTANCE
        });
        let count = previous.map_or(1, |last| last.count % MAX_CLICK_COUNT + 1);
        self.last_click = Some(Click {
            button,
            position,
            time,
            count,
        });
        count
    }

    /// Returns the click count that the release of a button belongs to.
    pub(super) fn release_count(&self, button: MouseButton) -> u32 {
        let last = self.last_click.filter(|click| click.button == button);
        last.map_or(1, |click| click.count)
    }
}
