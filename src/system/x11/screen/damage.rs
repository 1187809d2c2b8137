//! The damaged region of a screen: the areas that have changed.

use super::geometry::{Rect, Size};

/// Beyond this number, sending rectangles separately costs more than sending the area between
/// them.
const MAX_RECTS: usize = 8;
/// Unchanged pixels that are sent rather than one more image.
const MAX_WASTED_PIXELS: u64 = 4096;

/// A few rectangles that cover everything that has changed. Nearby rectangles are merged.
#[derive(Debug, Default)]
pub struct DamageRegion(Vec<Rect>);

impl DamageRegion {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(&mut self, mut rect: Rect) {
        // A merged rectangle may be near to further ones.
        while let Some(near) = self
            .0
            .iter()
            .position(|other| wasted_pixels(rect, *other) <= MAX_WASTED_PIXELS)
        {
            rect = rect.union(self.0.swap_remove(near));
        }
        self.0.push(rect);
        if self.0.len() > MAX_RECTS {
            self.merge_cheapest();
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.extend(other.0.iter().copied());
    }

    /// Returns the parts that lie on a screen of that size.
    #[must_use]
    pub fn clipped(&self, size: Size) -> Vec<Rect> {
        let clipped = |rect: &Rect| {
            Rect::clipped(rect.x as i32, rect.y as i32, rect.width, rect.height, size)
        };
        self.0.iter().filter_map(clipped).collect()
    }

    fn merge_cheapest(&mut self) {
        let pairs = (1..self.0.len()).flat_map(|right| (0..right).map(move |left| (left, right)));
        let cheapest =
            pairs.min_by_key(|&(left, right)| wasted_pixels(self.0[left], self.0[right]));
        if let Some((left, right)) = cheapest {
            let other = self.0.swap_remove(right);
            let merged = self.0.swap_remove(left).union(other);
            self.add(merged);
        }
    }
}

impl Extend<Rect> for DamageRegion {
    fn extend<T: IntoIterator<Item = Rect>>(&mut self, rects: T) {
        rects.into_iter().for_each(|rect| self.add(rect));
    }
}

impl FromIterator<Rect> for DamageRegion {
    fn from_iter<T: IntoIterator<Item = Rect>>(rects: T) -> Self {
        let mut region = Self::default();
        region.extend(rects);
        region
    }
}

/// Returns the number of pixels of the union that belong to neither rectangle.
fn wasted_pixels(one: Rect, other: Rect) -> u64 {
    (one.union(other).area()).saturating_sub(one.area() + other.area())
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

    fn contains(outer: Rect, inner: Rect) -> bool {
        outer.union(inner) == outer
    }

    #[test]
    fn region_merges_nearby_rectangles_only() {
        let region: DamageRegion = [
            rect(0, 0, 20, 20),
            rect(1900, 1000, 20, 20),
            rect(20, 0, 20, 20),
        ]
        .into_iter()
        .collect();
        let mut rects = region.clipped(SCREEN);
        rects.sort_by_key(|rect| rect.x);
        assert_eq!(rects, [rect(0, 0, 40, 20), rect(1900, 1000, 20, 20)]);
    }

    #[test]
    fn region_is_clipped_to_a_smaller_screen() {
        let mut region = DamageRegion::default();
        region.add(rect(0, 0, 1920, 1080));
        let small = Size {
            width: 640,
            height: 480,
        };
        assert_eq!(region.clipped(small), [small.to_rect()]);
        let mut outside = DamageRegion::default();
        outside.add(rect(1000, 1000, 5, 5));
        assert_eq!(outside.clipped(small), []);
    }

    proptest! {
        #[test]
        fn region_covers_every_added_rectangle(
            added in prop::collection::vec((0u32..1900, 0u32..1060, 1u32..600, 1u32..600), 1..60),
        ) {
            let added: Vec<Rect> = added
                .into_iter()
                .filter_map(|(x, y, w, h)| Rect::clipped(x as i32, y as i32, w, h, SCREEN))
                .collect();
            let region: DamageRegion = added.iter().copied().collect();
            let rects = region.clipped(SCREEN);
            prop_assert!(rects.len() <= MAX_RECTS);
            for rect in added {
                prop_assert!(rects.iter().any(|outer| contains(*outer, rect)));
            }
        }
    }
}
