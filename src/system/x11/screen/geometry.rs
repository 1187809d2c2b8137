//! Sizes and rectangles of pixels.

/// Rows between two changes that are fetched along rather than asked for apart: a request costs about as much.
const NEAR: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

impl Size {
    #[must_use]
    pub fn whole(self) -> Rect {
        Rect {
            x: 0,
            y: 0,
            width: self.width,
            height: self.height,
        }
    }

    #[must_use]
    pub fn contains(self, rect: Rect) -> bool {
        let fits = |at: u32, length: u32, side: u32| {
            length > 0 && at.checked_add(length).is_some_and(|end| end <= side)
        };
        fits(rect.x, rect.width, self.width) && fits(rect.y, rect.height, self.height)
    }
}

/// Never empty where it comes from this module.
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

    /// The part that lies on a screen of that size of what may lie partly beside it.
    #[must_use]
    pub fn clipped(x: i32, y: i32, width: u32, height: u32, size: Size) -> Option<Self> {
        let side = |at: i32, length: u32, side: u32| {
            let end = (i64::from(at) + i64::from(length)).clamp(0, i64::from(side));
            let start = i64::from(at).clamp(0, end);
            (start < end).then_some((start as u32, (end - start) as u32))
        };
        let (x, width) = side(x, width, size.width)?;
        let (y, height) = side(y, height, size.height)?;
        Some(Self {
            x,
            y,
            width,
            height,
        })
    }

    /// The smallest one that holds both.
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
}

/// The rows from the first to before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    pub top: u32,
    pub bottom: u32,
}

/// The rows that the rectangles lie in, from the top down.
pub fn bands(rects: &[Rect]) -> Vec<Band> {
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
            Some(last) if band.top <= last.bottom + NEAR => {
                last.bottom = last.bottom.max(band.bottom);
            }
            _ => merged.push(band),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
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
    fn what_lies_beside_the_screen_is_cut_off() {
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
    fn a_region_must_lie_on_the_screen_and_not_be_empty() {
        for good in [
            SCREEN.whole(),
            rect(0, 0, 1, 1),
            rect(99, 49, 1, 1),
            rect(50, 25, 50, 25),
        ] {
            assert!(SCREEN.contains(good), "{good:?}");
        }
        for bad in [
            rect(0, 0, 0, 1),
            rect(0, 0, 101, 1),
            rect(99, 49, 2, 1),
            rect(100, 0, 1, 1),
            rect(u32::MAX, 0, 1, 1),
            rect(1, 0, u32::MAX, 1),
        ] {
            assert!(!SCREEN.contains(bad), "{bad:?}");
        }
    }

    #[test]
    fn changes_are_fetched_in_few_bands() {
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
}
