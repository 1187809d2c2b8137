//! Pixels that a viewer scrolls by, as notches of a wheel.

use crate::system::x11::input::Notch;

/// What a notch scrolls by, about.
const PIXELS: i32 = 100;

/// What has not made a whole notch yet.
#[derive(Debug, Default)]
pub struct Wheel {
    x: i32,
    y: i32,
}

impl Wheel {
    pub fn turn(&mut self, x: i32, y: i32) -> Vec<Notch> {
        let mut notches = whole(&mut self.y, y, Notch::Up, Notch::Down);
        notches.extend(whole(&mut self.x, x, Notch::Left, Notch::Right));
        notches
    }
}

fn whole(rest: &mut i32, turned: i32, back: Notch, forth: Notch) -> Vec<Notch> {
    // Who turns back means it at once.
    if rest.signum() * turned.signum() < 0 {
        *rest = 0;
    }
    *rest += turned;
    let notches = *rest / PIXELS;
    *rest %= PIXELS;
    let notch = if notches < 0 { back } else { forth };
    vec![notch; notches.unsigned_abs() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_turns_add_up_and_turning_back_counts_at_once() {
        let mut wheel = Wheel::default();
        assert_eq!(wheel.turn(0, 60), []);
        assert_eq!(wheel.turn(0, 60), [Notch::Down]);
        assert_eq!(wheel.turn(0, -90), []);
        assert_eq!(wheel.turn(0, -10), [Notch::Up]);
        assert_eq!(
            wheel.turn(-250, 120),
            [Notch::Down, Notch::Left, Notch::Left]
        );
    }
}
