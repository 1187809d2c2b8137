//! Converts the pixels a viewer scrolls by to notches of a mouse wheel.

use crate::system::x11::input::Notch;

/// The pixels that one notch scrolls a page by, approximately.
const PIXELS_PER_NOTCH: i32 = 100;

/// Accumulates scrolled pixels until they make a full notch.
#[derive(Debug, Default)]
pub(super) struct Wheel {
    x: i32,
    y: i32,
}

impl Wheel {
    /// Adds scrolled pixels and returns the notches they complete, vertical ones first.
    pub(super) fn scroll(&mut self, x: i32, y: i32) -> Vec<Notch> {
        let mut notches = full_notches(&mut self.y, y, Notch::Up, Notch::Down);
        notches.extend(full_notches(&mut self.x, x, Notch::Left, Notch::Right));
        notches
    }
}

fn full_notches(remainder: &mut i32, pixels: i32, negative: Notch, positive: Notch) -> Vec<Notch> {
    // A change of direction takes effect at once.
    if remainder.signum() * pixels.signum() < 0 {
        *remainder = 0;
    }
    *remainder += pixels;
    let notches = *remainder / PIXELS_PER_NOTCH;
    *remainder %= PIXELS_PER_NOTCH;
    let notch = if notches < 0 { negative } else { positive };
    vec![notch; notches.unsigned_abs() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheel_accumulates_small_deltas_and_resets_when_the_direction_changes() {
        let mut wheel = Wheel::default();
        assert_eq!(wheel.scroll(0, 60), []);
        assert_eq!(wheel.scroll(0, 60), [Notch::Down]);
        assert_eq!(wheel.scroll(0, -90), []);
        assert_eq!(wheel.scroll(0, -10), [Notch::Up]);
        assert_eq!(
            wheel.scroll(-250, 120),
            [Notch::Down, Notch::Left, Notch::Left]
        );
    }
}
