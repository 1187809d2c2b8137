//! Ways of the pointer that a hand could have gone.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use crate::system::x11::input::{Point, Size};

/// A mouse tells of its place 125 times a second.
const FRAME: Duration = Duration::from_millis(8);
/// How far from the straight line it goes, as a part of the distance.
const BEND: f64 = 0.12;
/// What a hand needs at least, and more for each doubling of the distance.
const REACTION: Duration = Duration::from_millis(80);
const PER_DOUBLING: Duration = Duration::from_millis(110);
/// Pixels that count as one step in this.
const NEAR: f64 = 12.0;
const LONGEST: Duration = Duration::from_millis(1500);

/// A place, and how long before it is reached.
pub type Frame = (Duration, Point);

/// How long a hand would take.
pub fn duration(from: Point, to: Point) -> Duration {
    let doublings = (distance(from, to) / NEAR + 1.0).log2();
    (REACTION + PER_DOUBLING.mul_f64(doublings)).min(LONGEST)
}

/// How many frames [`curve`] has at most.
pub fn frames(takes: Duration) -> usize {
    usize::try_from(takes.as_millis() / FRAME.as_millis())
        .unwrap_or(usize::MAX)
        .max(1)
}

/// From one place to another: a Bezier curve with a slight bend, slow at both ends (the least jerk), ending exactly there. The same
/// way is gone in the same manner each time.
pub fn curve(from: Point, to: Point, takes: Duration, screen: Size) -> impl Iterator<Item = Frame> {
    let count = frames(takes);
    let frame = takes / u32::try_from(count).unwrap_or(u32::MAX);
    let (p0, p3) = (vector(from), vector(to));
    let [first, second] = bends(from, to);
    let (p1, p2) = (
        off_the_line(p0, p3, 1.0 / 3.0, first),
        off_the_line(p0, p3, 2.0 / 3.0, second),
    );
    (1..=count).map(move |at| {
        let point = if at == count {
            to
        } else {
            let s = least_jerk(at as f64 / count as f64);
            on_screen(bezier([p0, p1, p2, p3], s), screen)
        };
        (frame, point)
    })
}

/// Straight, in so many steps of the same length.
pub fn line(from: Point, to: Point, steps: u32) -> impl Iterator<Item = Point> {
    let between = move |a: i32, b: i32, at: u32| {
        let part = f64::from(at) / f64::from(steps);
        (f64::from(a) + f64::from(b - a) * part).round() as i32
    };
    (1..=steps).map(move |at| Point {
        x: between(from.x, to.x, at),
        y: between(from.y, to.y, at),
    })
}

pub fn distance(from: Point, to: Point) -> f64 {
    f64::from(to.x - from.x).hypot(f64::from(to.y - from.y))
}

type Vector = (f64, f64);

fn vector(point: Point) -> Vector {
    (f64::from(point.x), f64::from(point.y))
}

/// Two numbers between -[`BEND`] and [`BEND`] of the same sign, which follow from the ends alone.
fn bends(from: Point, to: Point) -> [f64; 2] {
    let mut hasher = DefaultHasher::new();
    (from, to).hash(&mut hasher);
    let bits = hasher.finish();
    let part = |bits: u64| (bits & 0xff) as f64 / 255.0;
    let sign = if bits & (1 << 32) == 0 { 1.0 } else { -1.0 };
    [part(bits), part(bits >> 8)].map(|part| sign * BEND * (0.3 + 0.7 * part))
}

/// Beside the line from `a` to `b`, `along` it and `aside` of it as parts of its length.
fn off_the_line(a: Vector, b: Vector, along: f64, aside: f64) -> Vector {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    (a.0 + dx * along - dy * aside, a.1 + dy * along + dx * aside)
}

fn bezier(points: [Vector; 4], s: f64) -> Vector {
    let r = 1.0 - s;
    let weights = [r * r * r, 3.0 * r * r * s, 3.0 * r * s * s, s * s * s];
    let sum = |part: fn(&Vector) -> f64| {
        let parts = points.iter().zip(weights);
        parts.map(|(point, weight)| part(point) * weight).sum()
    };
    (sum(|point| point.0), sum(|point| point.1))
}

/// How far a hand has come after a part `t` of its time.
fn least_jerk(t: f64) -> f64 {
    t * t * t * (10.0 + t * (6.0 * t - 15.0))
}

fn on_screen(at: Vector, screen: Size) -> Point {
    let (x, y) = (at.0.round() as i32, at.1.round() as i32);
    Point { x, y }.clamped(screen)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SCREEN: Size = Size {
        width: 1280,
        height: 800,
    };

    fn point() -> impl Strategy<Value = Point> {
        (0..1280, 0..800).prop_map(|(x, y)| Point { x, y })
    }

    proptest! {
        #[test]
        fn a_curve_stays_on_the_screen_near_its_line_and_ends_where_it_should(from in point(), to in point(), ms in 0_u64..30_000) {
            let takes = Duration::from_millis(ms);
            let way: Vec<Frame> = curve(from, to, takes, SCREEN).collect();
            prop_assert_eq!(way.len(), frames(takes));
            prop_assert_eq!(way.last().unwrap().1, to);
            prop_assert!(way.iter().map(|(wait, _)| *wait).sum::<Duration>() <= takes);
            let length = distance(from, to);
            for (_, at) in &way {
                prop_assert!((0..1280).contains(&at.x) && (0..800).contains(&at.y));
                // The sum of the ways to both ends is hardly more than the straight one.
                prop_assert!(distance(from, *at) + distance(*at, to) <= length * 1.1 + 4.0);
            }
        }

        #[test]
        fn a_line_has_its_steps_and_its_end(from in point(), to in point(), steps in 1_u32..100) {
            let way: Vec<Point> = line(from, to, steps).collect();
            prop_assert_eq!(way.len(), steps as usize);
            prop_assert_eq!(*way.last().unwrap(), to);
        }
    }

    #[test]
    fn a_hand_is_slow_at_both_ends_and_takes_longer_for_more() {
        let (from, to) = (Point { x: 0, y: 400 }, Point { x: 1000, y: 400 });
        let way: Vec<Frame> = curve(from, to, Duration::from_millis(800), SCREEN).collect();
        let xs: Vec<i32> = way.iter().map(|(_, at)| at.x).collect();
        let middle = xs[51] - xs[49];
        assert!(
            xs[1] * 10 < middle && (xs[99] - xs[97]) * 10 < middle,
            "{xs:?}"
        );
        assert!(way.iter().any(|(_, at)| at.y != 400), "it bends");
        let near = Point { x: 20, y: 400 };
        assert!(duration(from, near) < duration(from, to));
        assert!(duration(from, to) <= LONGEST);
    }
}
