//! The parameters of actions.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use utoipa::ToSchema;

use super::values::{Bounded, HoldKeys, KeyboardText, Keys, Millis, Notches, PointerPath};
use crate::api::field::{Fields, InvalidField};

/// Clicks a mouse button.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct ClickMouse {
    /// Horizontal position in pixels from the left edge of the screen.
    #[schema(minimum = 0)]
    pub x: i64,
    /// Vertical position in pixels from the top edge of the screen.
    #[schema(minimum = 0)]
    pub y: i64,
    #[deserr(default)]
    #[schema(default = "left")]
    pub button: Option<MouseButton>,
    #[deserr(default)]
    #[schema(default = "click")]
    pub click_type: Option<ClickType>,
    /// Number of clicks; 2 is a double click. More than 1 requires the `click_type` `click`.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 100, default = 1)]
    pub num_clicks: Option<Bounded<1, 100>>,
    /// Keys held during the action, such as `Shift`: at most 8.
    #[deserr(default)]
    #[schema(value_type = Vec<String>, required = false, max_items = 8)]
    pub hold_keys: HoldKeys,
}

/// Moves the mouse pointer.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct MoveMouse {
    /// Horizontal position in pixels from the left edge of the screen.
    #[schema(minimum = 0)]
    pub x: i64,
    /// Vertical position in pixels from the top edge of the screen.
    #[schema(minimum = 0)]
    pub y: i64,
    /// Move along a curve at human speed, instead of at once.
    #[deserr(default)]
    #[schema(default = false)]
    pub smooth: Option<bool>,
    /// Duration of a smooth move in milliseconds. By default it depends on the distance.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 30_000)]
    pub duration_ms: Option<Millis>,
    /// Keys held during the action: at most 8.
    #[deserr(default)]
    #[schema(value_type = Vec<String>, required = false, max_items = 8)]
    pub hold_keys: HoldKeys,
}

/// Types a text in any script.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct TypeText {
    /// Text of at most 65536 characters. A line feed presses Enter, a tab presses Tab. Other
    /// control characters and Unicode noncharacters are rejected.
    #[schema(value_type = String, max_length = 65_536)]
    pub text: KeyboardText,
    /// Delay between two characters, in milliseconds.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 10_000, default = 0)]
    pub delay: Option<Bounded<0, 10_000>>,
}

/// Presses keys and key combinations.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct PressKey {
    /// 1–100 keys or combinations of up to 8 keys, pressed in order: `Return`, `Ctrl+t`,
    /// `Ctrl+Shift+Tab`, `a`. A key is a character, a code point (`U20AC`), an X11 keysym name
    /// (`Page_Down`, `KP_Add`, `eacute`) or a common name in any case (`enter`, `esc`, `ctrl`,
    /// `cmd`, `ArrowUp`, `F5`). With Ctrl, Alt or Super, upper-case letters mean lower-case ones.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 100, example = json!(["Ctrl+t"]))]
    pub keys: Keys,
    /// Time in milliseconds for which all keys are held together. With 0, each is released before
    /// the next is pressed.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 30_000, default = 0)]
    pub duration: Option<Millis>,
    /// Keys held during the action: at most 8.
    #[deserr(default)]
    #[schema(value_type = Vec<String>, required = false, max_items = 8)]
    pub hold_keys: HoldKeys,
}

/// Turns the mouse wheel at a position. At least one of `delta_x` and `delta_y` is required.
#[derive(Debug, Clone, ToSchema)]
pub struct Scroll {
    /// Horizontal position in pixels from the left edge of the screen.
    #[schema(minimum = 0)]
    pub x: i64,
    /// Vertical position in pixels from the top edge of the screen.
    #[schema(minimum = 0)]
    pub y: i64,
    /// Wheel notches to the right, negative to the left.
    #[schema(value_type = Option<i32>, minimum = -1000, maximum = 1000, default = 0)]
    pub delta_x: Notches,
    /// Wheel notches down, negative up. Chromium scrolls by about a tenth of a page per notch.
    #[schema(value_type = Option<i32>, minimum = -1000, maximum = 1000, default = 0)]
    pub delta_y: Notches,
    /// Keys held during the action: at most 8.
    #[schema(value_type = Vec<String>, required = false, max_items = 8)]
    pub hold_keys: HoldKeys,
}

/// Drags the pointer along a path with a mouse button held.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct DragMouse {
    /// 2–1000 points `[x, y]` in pixels from the top left corner of the screen. The button is
    /// pressed at the first and released at the last.
    #[schema(value_type = Vec<Vec<i64>>, min_items = 2, max_items = 1000, example = json!([[100, 100], [300, 200]]))]
    pub path: PointerPath,
    #[deserr(default)]
    #[schema(value_type = Option<DragButton>, default = "left")]
    pub button: Option<DragButton>,
    /// Delay between the press and the first move, in milliseconds.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 30_000, default = 0)]
    pub delay: Option<Millis>,
    /// Number of moves between two points. Ignored if `smooth`.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000, default = 10)]
    pub steps_per_segment: Option<Bounded<1, 1000>>,
    /// Delay between two of these moves, in milliseconds. Ignored if `smooth`.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 10_000, default = 50)]
    pub step_delay_ms: Option<Bounded<0, 10_000>>,
    /// Drag along curves at human speed.
    #[deserr(default)]
    #[schema(default = false)]
    pub smooth: Option<bool>,
    /// Duration of a smooth drag in milliseconds. By default it depends on the distance.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 30_000)]
    pub duration_ms: Option<Millis>,
    /// Keys held during the action: at most 8.
    #[deserr(default)]
    #[schema(value_type = Vec<String>, required = false, max_items = 8)]
    pub hold_keys: HoldKeys,
}

/// Hides or shows the mouse pointer on the screen.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct SetCursor {
    /// `true` hides the pointer, `false` shows it.
    pub hidden: bool,
}

/// Waits before the next action.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct Sleep {
    /// Time in milliseconds.
    #[schema(value_type = u32, minimum = 0, maximum = 30_000)]
    pub duration_ms: Millis,
}

/// A mouse button.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserr, ToSchema)]
#[deserr(rename_all = lowercase)]
#[schema(rename_all = "lowercase")]
pub enum MouseButton {
    #[default]
    Left,
    Right,
    Middle,
    Back,
    Forward,
}

/// A mouse button that can drag.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, ToSchema)]
#[deserr(rename_all = lowercase)]
#[schema(rename_all = "lowercase")]
pub enum DragButton {
    #[default]
    Left,
    Right,
    Middle,
}

impl From<DragButton> for MouseButton {
    fn from(button: DragButton) -> Self {
        match button {
            DragButton::Left => Self::Left,
            DragButton::Right => Self::Right,
            DragButton::Middle => Self::Middle,
        }
    }
}

/// The part of a click to perform.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, ToSchema)]
#[deserr(rename_all = lowercase)]
#[schema(rename_all = "lowercase")]
pub enum ClickType {
    /// Press without releasing: the button stays held for later actions and requests.
    Down,
    /// Release.
    Up,
    /// Press and release.
    #[default]
    Click,
}

impl<E: DeserializeError> Deserr<E> for Scroll {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let position = fields.required("x").zip(fields.required("y"));
        let delta_x: Result<Option<Notches>, InvalidField> = fields.try_optional("delta_x");
        let delta_y: Result<Option<Notches>, InvalidField> = fields.try_optional("delta_y");
        if let (Ok(None), Ok(None)) = (&delta_x, &delta_y) {
            fields.reject("delta_y", "is required if delta_x is absent");
        }
        let hold_keys = fields.optional("hold_keys").unwrap_or_default();
        fields.finish(position.map(|(x, y)| Scroll {
            x,
            y,
            delta_x: delta_x.ok().flatten().unwrap_or_default(),
            delta_y: delta_y.ok().flatten().unwrap_or_default(),
            hold_keys,
        }))
    }
}
