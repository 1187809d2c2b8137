//! The size of a browser's screen.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Pixels per side, at least and at most.
pub const SIDE: RangeInclusive<u32> = 240..=3840;
/// Pixels in all, at most (3840×2160): the frame buffer is memory of the machine.
pub const MAX_AREA: u32 = 3840 * 2160;
/// Frames per second.
pub const REFRESH_RATE: RangeInclusive<u32> = 1..=120;

/// A screen of `width` by `height` pixels, drawn `refresh_rate` times a second.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Viewport {
    #[schema(minimum = 240, maximum = 3840)]
    pub width: u32,
    #[schema(minimum = 240, maximum = 3840)]
    pub height: u32,
    #[schema(minimum = 1, maximum = 120)]
    pub refresh_rate: u32,
}

impl Default for Viewport {
    fn default() -> Self {
        Self {
            width: 1920,
            height: 1080,
            refresh_rate: 25,
        }
    }
}

impl Viewport {
    /// What is out of bounds: field and message.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        for (field, value, bounds) in [
            ("width", self.width, SIDE),
            ("height", self.height, SIDE),
            ("refresh_rate", self.refresh_rate, REFRESH_RATE),
        ] {
            if !bounds.contains(&value) {
                problems.push((
                    field,
                    format!("must be between {} and {}", bounds.start(), bounds.end()),
                ));
            }
        }
        if problems.is_empty() && self.width * self.height > MAX_AREA {
            problems.push((
                "width",
                format!("width × height must be at most {MAX_AREA} pixels"),
            ));
        }
        problems
    }
}

impl fmt::Display for Viewport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}@{}", self.width, self.height, self.refresh_rate)
    }
}

impl FromStr for Viewport {
    type Err = String;

    /// `1920x1080` or `1920x1080@25`.
    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || format!("`{text}` is not of the form WIDTHxHEIGHT or WIDTHxHEIGHT@RATE");
        let (size, rate) = match text.split_once('@') {
            Some((size, rate)) => (size, Some(rate)),
            None => (text, None),
        };
        let (width, height) = size.split_once('x').ok_or_else(shape)?;
        let number = |text: &str| text.parse().map_err(|_| shape());
        let viewport = Self {
            width: number(width)?,
            height: number(height)?,
            refresh_rate: match rate {
                Some(rate) => number(rate)?,
                None => Self::default().refresh_rate,
            },
        };
        match viewport.problems().as_slice() {
            [] => Ok(viewport),
            [(field, problem), ..] => Err(format!("{field} {problem}")),
        }
    }
}
