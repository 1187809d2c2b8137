//! Mouse and keyboard input: batches of actions.
//!
//! `actions` holds the parameters of the single actions, `values` their checked values. Each action
//! is also a route of its own.

mod actions;
mod values;

use std::ops::ControlFlow;

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, MergeWithError, Sequence, Value, ValueKind,
    ValuePointerRef, take_cf_content,
};
use serde::Serialize;
use utoipa::ToSchema;

pub use self::{
    actions::{
        ClickMouse, ClickType, DragButton, DragMouse, MouseButton, MoveMouse, PressKey, Scroll,
        SetCursor, Sleep, TypeText,
    },
    values::{
        Bounded, HoldKeys, KeyboardText, Keys, MAX_POINTS, MAX_TEXT, Millis, Notches, PointerPath,
    },
};
use super::field::{Fields, add, describe_error};

/// Actions of a batch, at most.
pub const MAX_ACTIONS: usize = 1000;

/// A batch of actions, run in order. Batches do not interleave.
#[derive(Debug, ToSchema)]
pub struct BatchRequest {
    /// 1–1000 actions.
    #[schema(value_type = Vec<BatchAction>, min_items = 1, max_items = 1000)]
    pub actions: Vec<Result<Action, InvalidAction>>,
}

/// An action: its `type`, and its parameters in the field of that name.
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

/// The type of an action, which is also the name of the field with its parameters.
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

/// An action with its parameters.
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

/// The first error of an invalid action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidAction {
    /// Path of the field, such as `actions[3].click_mouse.x`.
    pub field: String,
    pub message: String,
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

/// The actions of a batch. Each is decoded on its own, so that invalid actions are reported
/// together with positions outside of the screen.
struct Actions(Vec<Result<Action, InvalidAction>>);

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
            let message = format!("must have 1 to {MAX_ACTIONS} actions, not {}", items.len());
            return Err(add(None, message, location));
        }
        let read = |(index, item): (usize, V)| {
            Action::deserialize_from_value(item.into_value(), location.push_index(index))
        };
        Ok(Actions(items.into_iter().enumerate().map(read).collect()))
    }
}

/// Keeps only the first error.
impl DeserializeError for InvalidAction {
    fn error<V: IntoValue>(
        earlier: Option<Self>,
        error: ErrorKind<V>,
        location: ValuePointerRef,
    ) -> ControlFlow<Self, Self> {
        ControlFlow::Break(earlier.unwrap_or_else(|| {
            let (field, message) = describe_error(error, location);
            InvalidAction { field, message }
        }))
    }
}

impl MergeWithError<InvalidAction> for InvalidAction {
    fn merge(
        earlier: Option<Self>,
        other: InvalidAction,
        _location: ValuePointerRef,
    ) -> ControlFlow<Self, Self> {
        ControlFlow::Break(earlier.unwrap_or(other))
    }
}

/// The results of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub struct BatchResponse {
    /// Results of the actions, in order.
    pub results: Vec<ActionResult>,
}

/// The result of an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ActionResult {
    /// Index of the action in the batch, from 0.
    pub index: usize,
    pub r#type: ActionType,
    pub ok: bool,
    /// Duration of the action in microseconds. Pointer actions (moves only, if headless) are sent
    /// without waiting for their effect; the wait counts for the next action that needs it, or for
    /// the last.
    pub duration_us: u64,
}

/// The position of the mouse pointer, in pixels from the top left corner of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct MousePosition {
    pub x: i32,
    pub y: i32,
}
