//! Screenshots, on the wire.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use utoipa::ToSchema;

use super::{
    field::{Fields, whole_number},
    viewport::SIDE,
};

/// What is to be seen.
#[derive(Clone, Copy, Debug, Default, ToSchema)]
pub struct ScreenshotRequest {
    /// The whole screen where nothing is said.
    pub region: Option<Region>,
}

/// A part of the screen in pixels, from its top left corner.
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

struct Offset(u32);
struct Length(u32);

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
        let x: Option<Offset> = fields.required("x");
        let y: Option<Offset> = fields.required("y");
        let width: Option<Length> = fields.required("width");
        let height: Option<Length> = fields.required("height");
        let whole = x.zip(y).zip(width.zip(height));
        fields.finish(whole.map(|((x, y), (width, height))| Self {
            x: x.0,
            y: y.0,
            width: width.0,
            height: height.0,
        }))
    }
}

impl<E: DeserializeError> Deserr<E> for Offset {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        whole_number(value, location, 0..=SIDE.end() - 1).map(Self)
    }
}

impl<E: DeserializeError> Deserr<E> for Length {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        whole_number(value, location, 1..=*SIDE.end()).map(Self)
    }
}
