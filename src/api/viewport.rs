//! The size of a browser's screen.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::field::{self, Fields};

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
    fn problems(&self) -> Vec<(&'static str, String)> {
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
            problems.push(("width", too_large()));
        }
        problems
    }
}

/// A screen size as it is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ToSchema)]
pub struct ViewportRequest {
    #[schema(value_type = u32, minimum = 240, maximum = 3840)]
    pub width: Side,
    #[schema(value_type = u32, minimum = 240, maximum = 3840)]
    pub height: Side,
    /// 25 for a new browser, else what it was.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 120)]
    pub refresh_rate: Option<RefreshRate>,
}

/// Pixels, within [`SIDE`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Side(u32);

/// Frames per second, within [`REFRESH_RATE`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RefreshRate(u32);

impl ViewportRequest {
    /// The whole size, with `refresh_rate` where none is asked for.
    #[must_use]
    pub fn resolve(self, refresh_rate: u32) -> Viewport {
        Viewport {
            width: self.width.0,
            height: self.height.0,
            refresh_rate: self.refresh_rate.map_or(refresh_rate, |rate| rate.0),
        }
    }
}

impl<E: DeserializeError> Deserr<E> for ViewportRequest {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let width: Option<Side> = fields.required("width");
        let height: Option<Side> = fields.required("height");
        let refresh_rate = fields.optional("refresh_rate");
        let sides = width.zip(height);
        if sides.is_some_and(|(width, height)| width.0 * height.0 > MAX_AREA) {
            fields.reject("width", too_large());
        }
        fields.finish(sides.map(|(width, height)| ViewportRequest {
            width,
            height,
            refresh_rate,
        }))
    }
}

impl<E: DeserializeError> Deserr<E> for Side {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::whole_number(value, location, SIDE).map(Side)
    }
}

impl<E: DeserializeError> Deserr<E> for RefreshRate {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::whole_number(value, location, REFRESH_RATE).map(RefreshRate)
    }
}

fn too_large() -> String {
    format!("width × height must be at most {MAX_AREA} pixels")
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
