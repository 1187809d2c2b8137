//! Mouse and keyboard, on the wire.

use std::{fmt, ops::ControlFlow, time::Duration};

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, MergeWithError, Sequence, Value, ValueKind,
    ValuePointerRef, take_cf_content,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    field::{Fields, InvalidField, add, describe_error, from_text, whole_number},
    keys::{Chord, Key},
};

/// Actions of one batch, at most.
pub const MAX_ACTIONS: usize = 1000;
/// Characters of a text to be typed, at most.
pub const MAX_TEXT: usize = 65_536;
/// Points of a path, at most.
pub const MAX_POINTS: usize = 1000;
/// Names of keys in a list, at most.
const MAX_KEYS: usize = 100;
/// Names of keys that are held, at most.
const MAX_HELD: usize = 8;
/// Notches of a wheel in one action, at most.
const MAX_NOTCHES: i64 = 1000;

/// Actions that are done one after the other, and all as one: no other batch comes between.
#[derive(Debug, ToSchema)]
pub struct BatchRequest {
    #[schema(value_type = Vec<BatchAction>, min_items = 1, max_items = 1000)]
    pub actions: Vec<Result<Action, Problem>>,
}

/// An action: its `type`, and what it is about in the field of that name.
#[derive(Debug, ToSchema)]
pub struct BatchAction {
    pub r#type: ActionType,
    pub click_mouse: Option<ClickMouse>,
    pub move_mouse: Option<MoveMouse>,
    pub type_text: Option<TypeText>,
    pub press_key: Option<PressKey>,
    pub scroll: Option<Scroll>,
    pub drag_mouse: Option<DragMouse>,
    pub set_cursor: Option<SetCursor>,
    pub sleep: Option<Sleep>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserr, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActionType {
    #[deserr(rename = "click_mouse")]
    ClickMouse,
    #[deserr(rename = "move_mouse")]
    MoveMouse,
    #[deserr(rename = "type_text")]
    TypeText,
    #[deserr(rename = "press_key")]
    PressKey,
    #[deserr(rename = "scroll")]
    Scroll,
    #[deserr(rename = "drag_mouse")]
    DragMouse,
    #[deserr(rename = "set_cursor")]
    SetCursor,
    #[deserr(rename = "sleep")]
    Sleep,
}

impl ActionType {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClickMouse => "click_mouse",
            Self::MoveMouse => "move_mouse",
            Self::TypeText => "type_text",
            Self::PressKey => "press_key",
            Self::Scroll => "scroll",
            Self::DragMouse => "drag_mouse",
            Self::SetCursor => "set_cursor",
            Self::Sleep => "sleep",
        }
    }
}

#[derive(Debug)]
pub enum Action {
    ClickMouse(ClickMouse),
    MoveMouse(MoveMouse),
    TypeText(TypeText),
    PressKey(PressKey),
    Scroll(Scroll),
    DragMouse(DragMouse),
    SetCursor(SetCursor),
    Sleep(Sleep),
}

impl Action {
    #[must_use]
    pub fn kind(&self) -> ActionType {
        match self {
            Self::ClickMouse(_) => ActionType::ClickMouse,
            Self::MoveMouse(_) => ActionType::MoveMouse,
            Self::TypeText(_) => ActionType::TypeText,
            Self::PressKey(_) => ActionType::PressKey,
            Self::Scroll(_) => ActionType::Scroll,
            Self::DragMouse(_) => ActionType::DragMouse,
            Self::SetCursor(_) => ActionType::SetCursor,
            Self::Sleep(_) => ActionType::Sleep,
        }
    }
}

/// The first that is wrong with an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `actions[3].click_mouse.x`
    pub field: String,
    pub what: String,
}

/// Presses a button of the mouse.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct ClickMouse {
    /// Pixels from the left edge of the screen.
    #[schema(minimum = 0)]
    pub x: i64,
    /// Pixels from the upper edge.
    #[schema(minimum = 0)]
    pub y: i64,
    #[deserr(default)]
    #[schema(default = "left")]
    pub button: Option<MouseButton>,
    #[deserr(default)]
    #[schema(default = "click")]
    pub click_type: Option<ClickType>,
    /// How many times it is clicked; two are a double click. More than one is for `click_type` `click` alone.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 100, default = 1)]
    pub num_clicks: Option<Bounded<1, 100>>,
    /// Keys that are held meanwhile, such as `Shift`: 8 at most.
    #[deserr(default)]
    #[schema(value_type = Vec<String>, required = false, max_items = 8)]
    pub hold_keys: HoldKeys,
}

/// Moves the pointer.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct MoveMouse {
    /// Pixels from the left edge of the screen.
    #[schema(minimum = 0)]
    pub x: i64,
    /// Pixels from the upper edge.
    #[schema(minimum = 0)]
    pub y: i64,
    /// Along a curve and at the pace of a hand, not at once.
    #[deserr(default)]
    #[schema(default = false)]
    pub smooth: Option<bool>,
    /// How long a smooth move takes; as long as a hand would need where nothing is said.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 30_000)]
    pub duration_ms: Option<Millis>,
    /// Keys that are held meanwhile: 8 at most.
    #[deserr(default)]
    #[schema(value_type = Vec<String>, required = false, max_items = 8)]
    pub hold_keys: HoldKeys,
}

/// Types a text, of any script: what the keyboard has no key for is given one for the moment.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct TypeText {
    /// 65536 characters at most. A line feed is the Enter key, a tab the Tab key; other control characters, and code points that are
    /// no characters, cannot be typed.
    #[schema(value_type = String, max_length = 65_536)]
    pub text: Text,
    /// Milliseconds from one character to the next.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 10_000, default = 0)]
    pub delay: Option<Bounded<0, 10_000>>,
}

/// Presses keys: single ones and combinations.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct PressKey {
    /// One after the other: 1–100 keys or combinations of up to 8 keys, such as `Return`, `Ctrl+t`, `Ctrl+Shift+Tab`, `a`. X's names of keys are
    /// known (`Page_Down`, `KP_Add`, `eacute`), the usual ones in any case (`enter`, `esc`, `ctrl`, `cmd`, `ArrowUp`, `F5`), characters
    /// themselves, and characters by number (`U20AC`). Next to Ctrl, Alt and Super a capital letter is the same as a small one.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 100, example = json!(["Ctrl+t"]))]
    pub keys: Keys,
    /// Milliseconds for which the keys are held, then all of them at once. Where it is 0, each is released before the next is pressed.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 30_000, default = 0)]
    pub duration: Option<Millis>,
    /// Keys that are held meanwhile: 8 at most.
    #[deserr(default)]
    #[schema(value_type = Vec<String>, required = false, max_items = 8)]
    pub hold_keys: HoldKeys,
}

/// Turns the wheel over a place. One of `delta_x` and `delta_y` must be there.
#[derive(Debug, Clone, ToSchema)]
pub struct Scroll {
    /// Pixels from the left edge of the screen.
    #[schema(minimum = 0)]
    pub x: i64,
    /// Pixels from the upper edge.
    #[schema(minimum = 0)]
    pub y: i64,
    /// Notches of the wheel to the right; to the left where negative.
    #[schema(value_type = Option<i32>, minimum = -1000, maximum = 1000, default = 0)]
    pub delta_x: Notches,
    /// Notches of the wheel down; up where negative. Chromium scrolls by about a tenth of a page for each.
    #[schema(value_type = Option<i32>, minimum = -1000, maximum = 1000, default = 0)]
    pub delta_y: Notches,
    /// Keys that are held meanwhile: 8 at most.
    #[schema(value_type = Vec<String>, required = false, max_items = 8)]
    pub hold_keys: HoldKeys,
}

/// Draws the pointer along a path with a button held.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct DragMouse {
    /// 2–1000 points `[x, y]`, in pixels from the upper left corner of the screen. The button is pressed at the first and released at the last.
    #[schema(value_type = Vec<Vec<i64>>, min_items = 2, max_items = 1000, example = json!([[100, 100], [300, 200]]))]
    pub path: PointerPath,
    #[deserr(default)]
    #[schema(value_type = Option<DragButton>, default = "left")]
    pub button: Option<DragButton>,
    /// Milliseconds between the press and the first move.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 30_000, default = 0)]
    pub delay: Option<Millis>,
    /// Moves from one point to the next.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000, default = 10)]
    pub steps_per_segment: Option<Bounded<1, 1000>>,
    /// Milliseconds from one of these moves to the next.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 10_000, default = 50)]
    pub step_delay_ms: Option<Bounded<0, 10_000>>,
    /// Along curves and at the pace of a hand; `steps_per_segment` and `step_delay_ms` then count for nothing.
    #[deserr(default)]
    #[schema(default = false)]
    pub smooth: Option<bool>,
    /// How long a smooth drag takes from the first point to the last; as long as a hand would need where nothing is said.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 30_000)]
    pub duration_ms: Option<Millis>,
    /// Keys that are held meanwhile: 8 at most.
    #[deserr(default)]
    #[schema(value_type = Vec<String>, required = false, max_items = 8)]
    pub hold_keys: HoldKeys,
}

/// Hides the pointer from the screen, or shows it again.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct SetCursor {
    pub hidden: bool,
}

/// Waits.
#[derive(Debug, Clone, Deserr, ToSchema)]
pub struct Sleep {
    #[schema(value_type = u32, minimum = 0, maximum = 30_000)]
    pub duration_ms: Millis,
}

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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, ToSchema)]
#[deserr(rename_all = lowercase)]
#[schema(rename_all = "lowercase")]
pub enum ClickType {
    /// Press, and leave pressed: later calls go on with the button held.
    Down,
    /// Release.
    Up,
    /// Press and release.
    #[default]
    Click,
}

/// A whole number of these bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounded<const MIN: u32, const MAX: u32>(u32);

/// Up to half a minute.
pub type Millis = Bounded<0, 30_000>;

impl<const MIN: u32, const MAX: u32> Bounded<MIN, MAX> {
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }

    /// Read as milliseconds.
    #[must_use]
    pub fn millis(self) -> Duration {
        Duration::from_millis(self.0.into())
    }
}

impl<const MIN: u32, const MAX: u32, E: DeserializeError> Deserr<E> for Bounded<MIN, MAX> {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        whole_number(value, location, MIN..=MAX).map(Bounded)
    }
}

/// Clicks of a wheel, with their direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Notches(i32);

impl Notches {
    #[must_use]
    pub fn get(self) -> i32 {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for Notches {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let notches: i64 = Deserr::<E>::deserialize_from_value(value, location)?;
        let fits = i32::try_from(notches).ok();
        fits.filter(|_| notches.abs() <= MAX_NOTCHES)
            .map(Notches)
            .ok_or_else(|| {
                let what = format!("must be a whole number from -{MAX_NOTCHES} to {MAX_NOTCHES}");
                add(None, what, location)
            })
    }
}

impl<E: DeserializeError> Deserr<E> for Scroll {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let place = fields.required("x").zip(fields.required("y"));
        let delta_x: Result<Option<Notches>, InvalidField> = fields.try_optional("delta_x");
        let delta_y: Result<Option<Notches>, InvalidField> = fields.try_optional("delta_y");
        if let (Ok(None), Ok(None)) = (&delta_x, &delta_y) {
            fields.reject("delta_y", "is required where there is no delta_x");
        }
        let hold_keys = fields.optional("hold_keys").unwrap_or_default();
        fields.finish(place.map(|(x, y)| Scroll {
            x,
            y,
            delta_x: delta_x.ok().flatten().unwrap_or_default(),
            delta_y: delta_y.ok().flatten().unwrap_or_default(),
            hold_keys,
        }))
    }
}

/// A text to be typed. It may be a secret: it does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(String);

impl Text {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The keys it takes, one for each character; for a line's end one, however it is written.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let mut after_return = false;
        self.0.chars().filter_map(move |c| {
            let skipped = c == '\n' && after_return;
            after_return = c == '\r';
            match c {
                _ if skipped => None,
                '\n' | '\r' => Some(Key::RETURN),
                '\t' => Some(Key::TAB),
                c => Key::of_char(c),
            }
        })
    }

    pub fn parse(text: String) -> Result<Self, String> {
        let mut chars = text.chars().enumerate();
        let strange =
            chars.find(|(_, c)| !matches!(c, '\n' | '\r' | '\t') && Key::of_char(*c).is_none());
        if let Some((at, _)) = strange {
            return Err(format!("has a character that cannot be typed, at {at}"));
        }
        if text.chars().count() > MAX_TEXT {
            return Err(format!("may have {MAX_TEXT} characters at most"));
        }
        Ok(Text(text))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Text")
    }
}

impl<E: DeserializeError> Deserr<E> for Text {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, Text::parse)
    }
}

/// Keys that are held while something else is done.
#[derive(Debug, Clone, Default)]
pub struct HoldKeys(Vec<Chord>);

impl HoldKeys {
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.0.iter().flat_map(|chord| chord.keys().iter().copied())
    }
}

impl<E: DeserializeError> Deserr<E> for HoldKeys {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let keys: Option<Vec<Chord>> = Deserr::<E>::deserialize_from_value(value, location)?;
        let held = HoldKeys(keys.unwrap_or_default());
        // Those of a combination count each.
        if held.keys().count() > MAX_HELD {
            return Err(add(None, format!("may be {MAX_HELD} at most"), location));
        }
        Ok(held)
    }
}

/// Keys to be pressed.
#[derive(Debug, Clone)]
pub struct Keys(Vec<Chord>);

impl Keys {
    #[must_use]
    pub fn chords(&self) -> &[Chord] {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for Keys {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let keys: Vec<Chord> = Deserr::<E>::deserialize_from_value(value, location)?;
        if !(1..=MAX_KEYS).contains(&keys.len()) {
            return Err(add(None, format!("must be 1 to {MAX_KEYS} keys"), location));
        }
        Ok(Keys(keys))
    }
}

/// Where the pointer goes.
#[derive(Debug, Clone)]
pub struct PointerPath(Vec<(i64, i64)>);

impl PointerPath {
    #[must_use]
    pub fn points(&self) -> &[(i64, i64)] {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for PointerPath {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let points: Vec<(i64, i64)> = Deserr::<E>::deserialize_from_value(value, location)?;
        if !(2..=MAX_POINTS).contains(&points.len()) {
            let what = format!("must have 2 to {MAX_POINTS} points");
            return Err(add(None, what, location));
        }
        Ok(PointerPath(points))
    }
}

impl<E: DeserializeError> Deserr<E> for Action {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let action = fields.required("type").and_then(|kind: ActionType| {
            let name = kind.name();
            match kind {
                ActionType::ClickMouse => fields.required(name).map(Action::ClickMouse),
                ActionType::MoveMouse => fields.required(name).map(Action::MoveMouse),
                ActionType::TypeText => fields.required(name).map(Action::TypeText),
                ActionType::PressKey => fields.required(name).map(Action::PressKey),
                ActionType::Scroll => fields.required(name).map(Action::Scroll),
                ActionType::DragMouse => fields.required(name).map(Action::DragMouse),
                ActionType::SetCursor => fields.required(name).map(Action::SetCursor),
                ActionType::Sleep => fields.required(name).map(Action::Sleep),
            }
        });
        fields.finish(action)
    }
}

impl<E: DeserializeError> Deserr<E> for BatchRequest {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let actions: Option<Actions> = fields.required("actions");
        fields.finish(actions.map(|Actions(actions)| BatchRequest { actions }))
    }
}

/// Each is told of on its own, so that those on the screen and those off it are told of together.
struct Actions(Vec<Result<Action, Problem>>);

impl<E: DeserializeError> Deserr<E> for Actions {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let items = match value {
            Value::Sequence(items) => items,
            actual => {
                let accepted = &[ValueKind::Sequence];
                let kind = ErrorKind::IncorrectValueKind { actual, accepted };
                return Err(take_cf_content(E::error(None, kind, location)));
            }
        };
        if !(1..=MAX_ACTIONS).contains(&items.len()) {
            let what = format!("must be 1 to {MAX_ACTIONS} actions, not {}", items.len());
            return Err(add(None, what, location));
        }
        let read = |(index, item): (usize, V)| {
            Action::deserialize_from_value(item.into_value(), location.push_index(index))
        };
        Ok(Actions(items.into_iter().enumerate().map(read).collect()))
    }
}

/// Of all that is wrong, the first is kept.
impl DeserializeError for Problem {
    fn error<V: IntoValue>(
        earlier: Option<Self>,
        error: ErrorKind<V>,
        location: ValuePointerRef,
    ) -> ControlFlow<Self, Self> {
        ControlFlow::Break(earlier.unwrap_or_else(|| {
            let (field, what) = describe_error(error, location);
            Problem { field, what }
        }))
    }
}

impl MergeWithError<Problem> for Problem {
    fn merge(
        earlier: Option<Self>,
        other: Problem,
        _location: ValuePointerRef,
    ) -> ControlFlow<Self, Self> {
        ControlFlow::Break(earlier.unwrap_or(other))
    }
}

/// What came of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub struct BatchResponse {
    /// One for each action, in order.
    pub results: Vec<ActionResult>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ActionResult {
    /// Its place in the batch, from 0.
    pub index: usize,
    pub r#type: ActionType,
    pub ok: bool,
    /// How long it took, in microseconds. Where there is a screen, the pointer's actions are sent without a wait for each, and where there
    /// is none, moves; the wait for them is part of the next action that needs it, or of the last.
    pub duration_us: u64,
}

/// Where the pointer is, in pixels from the upper left corner of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct MousePosition {
    pub x: i32,
    pub y: i32,
}
