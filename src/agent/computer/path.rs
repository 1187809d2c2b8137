//! Pointer paths: straight lines, and curves like those of a human hand.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use crate::system::x11::input::{Point, Size};

/// The interval between two reports of a mouse: 125 per second.
const FRAME_INTERVAL: Duration = Duration::from_millis(8);
/// The maximum distance of the control points from the straight line, relative to its length.
const MAX_BEND: f64 = 0.12;
/// The minimum duration of a movement, and the increase per doubling of the distance (Fitts's law).
const MIN_DURATION: Duration = Duration::from_millis(80);
const DURATION_PER_DOUBLING: Duration = Duration::from_millis(110);
/// The distance in pixels at which the doublings start.
const UNIT_DISTANCE: f64 = 12.0;
const MAX_DURATION: Duration = Duration::from_millis(1500);

/// The delay before a position is reached, and that position.
pub(super) type Frame = (Duration, Point);

/// Returns the duration that a human hand would take.
pub(super) fn duration(from: Point, to: Point) -> Duration {
    let doublings = (distance(from, to) / UNIT_DISTANCE + 1.0).log2();
    (MIN_DURATION + DURATION_PER_DOUBLING.mul_f64(doublings)).min(MAX_DURATION)
}

/// Returns the number of frames of a [`curve`].
pub(super) fn frame_count(duration: Duration) -> usize {
    usize::try_from(duration.as_millis() / FRAME_INTERVAL.as_millis())
        .unwrap_or(usize::MAX)
        .max(1)
}

/// Returns the frames of a slightly bent Bezier curve that ends exactly at `to`. It is slow at both
/// ends (minimum jerk). The bend is deterministic: equal arguments give equal curves.
pub(super) fn curve(
    from: Point,
    to: Point,
    duration: Duration,
    screen: Size,
) -> impl Iterator<Item = Frame> {
    let count = frame_count(duration);
    let interval = duration / u32::try_from(count).unwrap_or(u32::MAX);
    let (p0, p3) = (vector(from), vector(to));
    let [first, second] = bends(from, to);
    let (p1, p2) = (
        point_beside_line(p0, p3, 1.0 / 3.0, first),
        point_beside_line(p0, p3, 2.0 / 3.0, second),
    );
    (1..=count).map(move |index| {
        let point = if index == count {
            to
        } else {
            let s = minimum_jerk(index as f64 / count as f64);
            clamped_point(bezier([p0, p1, p2, p3], s), screen)
        };
        (interval, point)
    })
}

/// Returns the positions of a straight line in that many steps of equal length.
pub(super) fn line(from: Point, to: Point, steps: u32) -> impl Iterator<Item = Point> {
    let interpolate = move |a: i32, b: i32, step: u32| {
        let part = f64::from(step) / f64::from(steps);
        (f64::from(a) + f64::from(b - a) * part).round() as i32
    };
    (1..=steps).map(move |step| Point {
        x: interpolate(from.x, to.x, step),
        y: interpolate(from.y, to.y, step),
    })
}

fn distance(from: Point, to: Point) -> f64 {
    f64::from(to.x - from.x).hypot(f64::from(to.y - from.y))
}

type Vector = (f64, f64);

fn vector(point: Point) -> Vector {
    (f64::from(point.x), f64::from(point.y))
}

/// Returns the bends at both control points: numbers between -[`MAX_BEND`] and [`MAX_BEND`] of the
/// same sign, derived from the end points.
fn bends(from: Point, to: Point) -> [f64; 2] {
    let mut hasher = DefaultHasher::new();
    (from, to).hash(&mut hasher);
    let bits = hasher.finish();
    let part = |bits: u64| (bits & 0xff) as f64 / 255.0;
    let sign = if bits & (1 << 32) == 0 { 1.0 } else { -1.0 };
    [part(bits), part(bits >> 8)].map(|part| sign * MAX_BEND * (0.3 + 0.7 * part))
}

/// Returns a point near the line from `a` to `b`. `along` and `aside` are relative to its length.
fn point_beside_line(a: Vector, b: Vector, along: f64, aside: f64) -> Vector {
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

/// Returns the position of a minimum-jerk movement at time `t`, both from 0 to 1.
fn minimum_jerk(t: f64) -> f64 {
    t * t * t * (10.0 + t * (6.0 * t - 15.0))
}

fn clamped_point(position: Vector, screen: Size) -> Point {
    let (x, y) = (position.0.round() as i32, position.1.round() as i32);
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
        fn curve_stays_on_the_screen_near_its_line_and_ends_at_its_target(
            from in point(), to in point(), ms in 0_u64..30_000,
        ) {
            let duration = Duration::from_millis(ms);
            let frames: Vec<Frame> = curve(from, to, duration, SCREEN).collect();
            prop_assert_eq!(frames.len(), frame_count(duration));
            prop_assert_eq!(frames.last().unwrap().1, to);
            prop_assert!(frames.iter().map(|(wait, _)| *wait).sum::<Duration>() <= duration);
            let length = distance(from, to);
            for (_, at) in &frames {
                prop_assert!((0..1280).contains(&at.x) && (0..800).contains(&at.y));
                // The distances to both ends add up to little more than the straight line.
                prop_assert!(distance(from, *at) + distance(*at, to) <= length * 1.1 + 4.0);
            }
        }

        #[test]
        fn line_has_the_given_steps_and_ends_at_its_target(from in point(), to in point(), steps in 1_u32..100) {
            let points: Vec<Point> = line(from, to, steps).collect();
            prop_assert_eq!(points.len(), steps as usize);
            prop_assert_eq!(*points.last().unwrap(), to);
        }
    }

    #[test]
    fn curve_is_slow_at_both_ends_and_longer_for_greater_distances() {
        let (from, to) = (Point { x: 0, y: 400 }, Point { x: 1000, y: 400 });
        let frames: Vec<Frame> = curve(from, to, Duration::from_millis(800), SCREEN).collect();
        let xs: Vec<i32> = frames.iter().map(|(_, at)| at.x).collect();
        let middle = xs[51] - xs[49];
        assert!(
            xs[1] * 10 < middle && (xs[99] - xs[97]) * 10 < middle,
            "{xs:?}"
        );
        assert!(frames.iter().any(|(_, at)| at.y != 400), "no bend");
        let near = Point { x: 20, y: 400 };
        assert!(duration(from, near) < duration(from, to));
        assert!(duration(from, to) <= MAX_DURATION);
    }
}
