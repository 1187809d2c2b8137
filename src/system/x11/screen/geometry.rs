//! Points, sizes and rectangles in pixels, and their division into rows.

/// Unchanged rows between two changes that are fetched along with them: a separate request costs
/// about as much.
const MAX_BAND_GAP: u32 = 16;

/// A position in pixels from the top left corner. It may lie outside the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Point {
    pub x: i32,
    pub y: i32,
}

impl Point {
    /// Returns the nearest position on a screen of that size.
    #[must_use]
    pub fn clamped(self, size: Size) -> Self {
        let clamp = |value: i32, side: u32| {
            let last = i32::try_from(side).unwrap_or(i32::MAX) - 1;
            value.min(last).max(0)
        };
        Self {
            x: clamp(self.x, size.width),
            y: clamp(self.y, size.height),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

impl Size {
    /// Returns the rectangle of this size at the origin.
    #[must_use]
    pub fn to_rect(self) -> Rect {
        Rect {
            x: 0,
            y: 0,
            width: self.width,
            height: self.height,
        }
    }

    /// Returns whether the rectangle is not empty and lies within the size.
    #[must_use]
    pub fn contains(self, rect: Rect) -> bool {
        let fits = |start: u32, length: u32, side: u32| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= side)
        };
        fits(rect.x, rect.width, self.width) && fits(rect.y, rect.height, self.height)
    }
}

/// A rectangle. The functions of this module never return an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

impl Rect {
    #[must_use]
    pub fn right(self) -> u32 {
        self.x + self.width
    }

    #[must_use]
    pub fn bottom(self) -> u32 {
        self.y + self.height
    }

    #[must_use]
    pub fn area(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Returns the part of a rectangle that lies on a screen of that size, if any does.
    #[must_use]
    pub fn clipped(x: i32, y: i32, width: u32, height: u32, size: Size) -> Option<Self> {
        let clip = |start: i32, length: u32, side: u32| {
            let end = (i64::from(start) + i64::from(length)).clamp(0, i64::from(side));
            let start = i64::from(start).clamp(0, end);
            (start < end).then_some((start as u32, (end - start) as u32))
        };
        let (x, width) = clip(x, width, size.width)?;
        let (y, height) = clip(y, height, size.height)?;
        Some(Self {
            x,
            y,
            width,
            height,
        })
    }

    /// Returns the smallest rectangle that contains both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        let (x, y) = (self.x.min(other.x), self.y.min(other.y));
        Self {
            x,
            y,
            width: self.right().max(other.right()) - x,
            height: self.bottom().max(other.bottom()) - y,
        }
    }

    /// Cuts the rectangle into strips of at most `max_pixels` (or one row), from top to bottom.
    pub fn strips(self, max_pixels: u32) -> impl Iterator<Item = Self> {
        let rows = (max_pixels / self.width.max(1)).max(1);
        (0..self.height)
            .step_by(rows as usize)
            .map(move |top| Self {
                y: self.y + top,
                height: rows.min(self.height - top),
                ..self
            })
    }

    /// Returns the smallest rectangle around this one that starts and ends at even pixels or at
    /// the edge of a screen of that size.
    #[must_use]
    pub fn aligned_to_even(self, size: Size) -> Self {
        let (x, y) = (self.x & !1, self.y & !1);
        Self {
            x,
            y,
            width: self.right().next_multiple_of(2).min(size.width) - x,
            height: self.bottom().next_multiple_of(2).min(size.height) - y,
        }
    }

    /// Returns the rectangle at half the resolution, rounded outwards.
    #[must_use]
    pub fn halved(self) -> Self {
        let (x, y) = (self.x / 2, self.y / 2);
        Self {
            x,
            y,
            width: self.right().div_ceil(2) - x,
            height: self.bottom().div_ceil(2) - y,
        }
    }
}

/// A range of rows; `bottom` is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::system) struct Band {
    pub top: u32,
    pub bottom: u32,
}

/// Returns the rows that the rectangles cover, from top to bottom, with small gaps filled.
pub(in crate::system) fn bands(rects: &[Rect]) -> Vec<Band> {
    let mut sorted: Vec<_> = rects
        .iter()
        .map(|rect| Band {
            top: rect.y,
            bottom: rect.bottom(),
        })
        .collect();
    sorted.sort_unstable_by_key(|band| band.top);
    let mut merged: Vec<Band> = Vec::new();
    for band in sorted {
        match merged.last_mut() {
            Some(last) if band.top <= last.bottom + MAX_BAND_GAP => {
                last.bottom = last.bottom.max(band.bottom);
            }
            _ => merged.push(band),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SCREEN: Size = Size {
        width: 100,
        height: 50,
    };

    fn rect(x: u32, y: u32, width: u32, height: u32) -> Rect {
        Rect {
            x,
            y,
            width,
            height,
        }
    }

    #[test]
    fn rectangle_is_clipped_to_the_screen() {
        let cases = [
            ((-3, -4, 10, 10), Some(rect(0, 0, 7, 6))),
            ((95, 45, 10, 10), Some(rect(95, 45, 5, 5))),
            ((10, 10, 5, 5), Some(rect(10, 10, 5, 5))),
            ((-10, 0, 10, 10), None),
            ((100, 0, 10, 10), None),
            ((0, -20, 10, 10), None),
            ((0, 0, 0, 10), None),
            ((i32::MAX, i32::MIN, u32::MAX, u32::MAX), None),
        ];
        for ((x, y, width, height), expected) in cases {
            assert_eq!(Rect::clipped(x, y, width, height, SCREEN), expected);
        }
    }

    #[test]
    fn size_contains_only_rectangles_that_are_inside_and_not_empty() {
        for inside in [
            SCREEN.to_rect(),
            rect(0, 0, 1, 1),
            rect(99, 49, 1, 1),
            rect(50, 25, 50, 25),
        ] {
            assert!(SCREEN.contains(inside), "{inside:?}");
        }
        for outside in [
            rect(0, 0, 0, 1),
            rect(0, 0, 101, 1),
            rect(99, 49, 2, 1),
            rect(100, 0, 1, 1),
            rect(u32::MAX, 0, 1, 1),
            rect(1, 0, u32::MAX, 1),
        ] {
            assert!(!SCREEN.contains(outside), "{outside:?}");
        }
    }

    #[test]
    fn bands_merge_nearby_rows() {
        let band = |top, bottom| Band { top, bottom };
        let far = rect(0, 200, 5, 5);
        assert_eq!(bands(&[]), []);
        assert_eq!(
            bands(&[far, rect(0, 10, 5, 5), rect(90, 12, 1, 20)]),
            [band(10, 32), band(200, 205)]
        );
        assert_eq!(
            bands(&[rect(0, 0, 1, 40), rect(0, 5, 1, 1), rect(0, 56, 1, 4)]),
            [band(0, 60)]
        );
    }

    proptest! {
        #[test]
        fn strips_cover_the_rectangle_and_respect_the_limit(
            x in 0u32..100, y in 0u32..100, width in 1u32..4000, height in 1u32..3000,
            max in 1u32..1_000_000,
        ) {
            let rect = rect(x, y, width, height);
            let mut next = y;
            for strip in rect.strips(max) {
                prop_assert_eq!((strip.x, strip.y, strip.width), (x, next, width));
                prop_assert!(strip.height == 1 || strip.width * strip.height <= max);
                next = strip.bottom();
            }
            prop_assert_eq!(next, rect.bottom());
        }
    }
}
