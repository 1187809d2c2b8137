//! What of the screen a viewer has not got yet.

use crate::system::x11::screen::{Rect, Size};

/// More would cost more to send apart than what lies between.
const MAX_RECTS: usize = 8;
/// Pixels that are sent in vain rather than a picture more.
const CHEAP: u64 = 4096;

/// Few rectangles that hold all that has changed.
#[derive(Debug, Default)]
pub struct Dirty(Vec<Rect>);

impl Dirty {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(&mut self, mut rect: Rect) {
        // One that has grown may be near to others now.
        while let Some(near) = self.0.iter().position(|other| waste(rect, *other) <= CHEAP) {
            rect = rect.union(self.0.swap_remove(near));
        }
        self.0.push(rect);
        if self.0.len() > MAX_RECTS {
            self.merge_cheapest();
        }
    }

    pub fn join(&mut self, other: &Self) {
        other.0.iter().for_each(|rect| self.add(*rect));
    }

    /// What of it is on a screen of that size.
    pub fn on(&self, size: Size) -> Vec<Rect> {
        let clipped = |rect: &Rect| {
            Rect::clipped(rect.x as i32, rect.y as i32, rect.width, rect.height, size)
        };
        self.0.iter().filter_map(clipped).collect()
    }

    fn merge_cheapest(&mut self) {
        let pairs = (1..self.0.len()).flat_map(|right| (0..right).map(move |left| (left, right)));
        let cheapest = pairs.min_by_key(|&(left, right)| waste(self.0[left], self.0[right]));
        if let Some((left, right)) = cheapest {
            let other = self.0.swap_remove(right);
            let merged = self.0.swap_remove(left).union(other);
            self.add(merged);
        }
    }
}

fn area(rect: Rect) -> u64 {
    u64::from(rect.width) * u64::from(rect.height)
}

/// Pixels of their union that are in neither.
fn waste(one: Rect, other: Rect) -> u64 {
    area(one.union(other)).saturating_sub(area(one) + area(other))
}

/// Cuts a rectangle from the top down into strips of at most so many pixels, or one row.
pub fn strips(rect: Rect, max_pixels: u32) -> impl Iterator<Item = Rect> {
    let rows = (max_pixels / rect.width.max(1)).max(1);
    (0..rect.height)
        .step_by(rows as usize)
        .map(move |top| Rect {
            y: rect.y + top,
            height: rows.min(rect.height - top),
            ..rect
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SCREEN: Size = Size {
        width: 1920,
        height: 1080,
    };

    fn rect(x: u32, y: u32, width: u32, height: u32) -> Rect {
        Rect {
            x,
            y,
            width,
            height,
        }
    }

    fn holds(outer: Rect, inner: Rect) -> bool {
        outer.union(inner) == outer
    }

    #[test]
    fn what_is_near_is_one_and_what_is_far_is_not() {
        let mut dirty = Dirty::default();
        dirty.add(rect(0, 0, 20, 20));
        dirty.add(rect(1900, 1000, 20, 20));
        dirty.add(rect(20, 0, 20, 20));
        let mut rects = dirty.on(SCREEN);
        rects.sort_by_key(|rect| rect.x);
        assert_eq!(rects, [rect(0, 0, 40, 20), rect(1900, 1000, 20, 20)]);
    }

    #[test]
    fn a_screen_that_shrank_has_no_more_than_it_has() {
        let mut dirty = Dirty::default();
        dirty.add(rect(0, 0, 1920, 1080));
        let small = Size {
            width: 640,
            height: 480,
        };
        assert_eq!(dirty.on(small), [small.whole()]);
        let mut gone = Dirty::default();
        gone.add(rect(1000, 1000, 5, 5));
        assert_eq!(gone.on(small), []);
    }

    proptest! {
        #[test]
        fn nothing_that_changed_is_lost(
            added in prop::collection::vec((0u32..1900, 0u32..1060, 1u32..600, 1u32..600), 1..60),
        ) {
            let mut dirty = Dirty::default();
            let added: Vec<Rect> = added
                .into_iter()
                .filter_map(|(x, y, w, h)| Rect::clipped(x as i32, y as i32, w, h, SCREEN))
                .collect();
            for rect in &added {
                dirty.add(*rect);
            }
            let taken = dirty.on(SCREEN);
            prop_assert!(taken.len() <= MAX_RECTS);
            for rect in added {
                prop_assert!(taken.iter().any(|outer| holds(*outer, rect)));
            }
        }

        #[test]
        fn strips_are_the_whole_and_no_larger_than_they_may_be(
            x in 0u32..100, y in 0u32..100, width in 1u32..4000, height in 1u32..3000, max in 1u32..1_000_000,
        ) {
            let whole = rect(x, y, width, height);
            let mut next = y;
            for strip in strips(whole, max) {
                prop_assert_eq!((strip.x, strip.y, strip.width), (x, next, width));
                prop_assert!(strip.height == 1 || strip.width * strip.height <= max);
                next = strip.bottom();
            }
            prop_assert_eq!(next, whole.bottom());
        }
    }
}
