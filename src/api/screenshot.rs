//! Screenshots.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use utoipa::ToSchema;

use super::{
    field::{Fields, whole_number},
    viewport::SIDE,
};

/// Options of a screenshot.
#[derive(Clone, Copy, Debug, Default, ToSchema)]
pub struct ScreenshotRequest {
    /// Part of the screen to capture. By default the complete screen.
    pub region: Option<Region>,
}

/// A rectangle of the screen in pixels, from its top left corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
pub struct Region {
    #[schema(minimum = 0, maximum = 3839)]
    pub x: u32,
    #[schema(minimum = 0, maximum = 3839)]
    pub y: u32,
    #[schema(minimum = 1, maximum = 3840)]
    pub width: u32,
    #[schema(minimum = 1, maximum = 3840)]
    pub height: u32,
}

struct RegionOffset(u32);
struct RegionLength(u32);

impl<E: DeserializeError> Deserr<E> for ScreenshotRequest {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let region = fields.optional("region");
        fields.finish(Some(Self { region }))
    }
}

impl<E: DeserializeError> Deserr<E> for Region {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let x: Option<RegionOffset> = fields.required("x");
        let y: Option<RegionOffset> = fields.required("y");
        let width: Option<RegionLength> = fields.required("width");
        let height: Option<RegionLength> = fields.required("height");
        let sides = x.zip(y).zip(width.zip(height));
        fields.finish(sides.map(|((x, y), (width, height))| Self {
            x: x.0,
            y: y.0,
            width: width.0,
            height: height.0,
        }))
    }
}

impl<E: DeserializeError> Deserr<E> for RegionOffset {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        whole_number(value, location, 0..=SIDE.end() - 1).map(Self)
    }
}

impl<E: DeserializeError> Deserr<E> for RegionLength {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        whole_number(value, location, 1..=*SIDE.end()).map(Self)
    }
}
